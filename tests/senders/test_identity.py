"""Who a mail is from when an account carries it."""

from dataclasses import replace

import pytest
from tests.support.senders import ACCOUNT

from postroom.senders.identity import Identity, Mailbox, identify
from postroom.senders.model import SenderAccount

OWN = Mailbox("news@shop.example", "The Shop")
NAMELESS = replace(ACCOUNT, display_name=None)


@pytest.mark.parametrize(
    "account, named, has_reply_to, identity",
    [
        (ACCOUNT, None, False, Identity(OWN)),
        (ACCOUNT, Mailbox("ada@shop.example", "Ada"), False, Identity(Mailbox("ada@shop.example", "Ada"))),
        (ACCOUNT, Mailbox("ada@SHOP.example"), True, Identity(Mailbox("ada@SHOP.example"))),
        (ACCOUNT, Mailbox("ada@else.example"), False, Identity(OWN, Mailbox("ada@else.example"))),
        (ACCOUNT, Mailbox("ada@else.example"), True, Identity(OWN)),
        (ACCOUNT, Mailbox("ada@sub.shop.example"), False, Identity(OWN, Mailbox("ada@sub.shop.example"))),
        (
            NAMELESS,
            Mailbox("ada@else.example", "Ada"),
            False,
            Identity(Mailbox("news@shop.example", "Ada"), Mailbox("ada@else.example", "Ada")),
        ),
    ],
)
def test_from_and_reply_to(
    account: SenderAccount,
    named: Mailbox | None,
    has_reply_to: bool,  # noqa: FBT001 - a case
    identity: Identity,
) -> None:
    """A From of the account's domain stays; any other becomes the account, and answers go to whom the mail named."""
    assert identify(account, named, has_reply_to=has_reply_to) == identity
