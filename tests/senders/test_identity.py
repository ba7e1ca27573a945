"""From and Reply-To of mail sent through an account."""

from dataclasses import replace

import pytest
from tests.support.senders import ACCOUNT

from postroom.post.address import Address
from postroom.senders.identity import Identity, identify
from postroom.senders.model import SenderAccount

OWN = Address("news@shop.example", "The Shop")
NAMELESS = replace(ACCOUNT, display_name=None)


@pytest.mark.parametrize(
    "account, named, has_reply_to, identity",
    [
        (ACCOUNT, None, False, Identity(OWN)),
        (ACCOUNT, Address("ada@shop.example", "Ada"), False, Identity(Address("ada@shop.example", "Ada"))),
        (ACCOUNT, Address("ada@SHOP.example"), True, Identity(Address("ada@SHOP.example"))),
        (ACCOUNT, Address("ada@else.example"), False, Identity(OWN, Address("ada@else.example"))),
        (ACCOUNT, Address("ada@else.example"), True, Identity(OWN)),
        (ACCOUNT, Address("ada@sub.shop.example"), False, Identity(OWN, Address("ada@sub.shop.example"))),
        (
            NAMELESS,
            Address("ada@else.example", "Ada"),
            False,
            Identity(Address("news@shop.example", "Ada"), Address("ada@else.example", "Ada")),
        ),
    ],
)
def test_from_and_reply_to(
    account: SenderAccount,
    named: Address | None,
    has_reply_to: bool,  # noqa: FBT001 - a case
    identity: Identity,
) -> None:
    """A From of the account's domain stays; any other becomes the Reply-To."""
    assert identify(account, named, has_reply_to=has_reply_to) == identity
