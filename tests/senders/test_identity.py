"""Who a mail is from when an account carries it."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from postroom.senders.identity import Identity, Mailbox, identify
from postroom.senders.model import AuthType, SenderAccount, SenderId, Status

MOMENT = datetime(2030, 1, 1, tzinfo=UTC)
ACCOUNT = SenderAccount(
    id=SenderId(1),
    email="news@shop.example",
    display_name="The Shop",
    auth_type=AuthType.SMTP,
    status=Status.ACTIVE,
    status_reason=None,
    paused_by=None,
    resume_status=None,
    gmail_subject_email=None,
    smtp_host="mail.shop.example",
    smtp_port=587,
    smtp_username=None,
    smtp_use_tls=True,
    ses_region=None,
    daily_limit=2000,
    batch_size=50,
    send_delay_ms=100,
    lanes=("bulk",),
    daily_sent=0,
    daily_bounces=0,
    daily_errors=0,
    consecutive_errors=0,
    last_reset_at=MOMENT,
    warmup_stage=0,
    warmup_current_limit=None,
    warmup_days=0,
    warmup_limits=(50,),
    warmup_days_per_stage=7,
    paused_until=None,
    last_used_at=None,
    created_at=MOMENT,
    updated_at=MOMENT,
    notes=None,
)
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
