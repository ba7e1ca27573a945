"""Results are written, and with them what they mean for accounts and for people: one transaction."""

from collections.abc import Sequence
from datetime import datetime

from msgspec.structs import replace

from postroom.db.pool import Session
from postroom.delivery import store
from postroom.delivery.decision import Result, complete_columns
from postroom.delivery.model import Channel, DeliveryId, Recipient, RecipientOutcome
from postroom.feedback import record as feedback
from postroom.feedback.model import Refusal
from postroom.post.reply import Reply
from postroom.senders.health import Outcome
from postroom.senders.model import HealthPolicy, Slot
from postroom.senders.record import record_outcomes

NOWHERE = "none"
"""The transport of an attempt that never came to one."""


async def settle(
    connection: Session, results: Sequence[Result], *, policy: HealthPolicy, now: datetime | None
) -> set[DeliveryId]:
    """Write results; returns the ids that were still ours to write. Only those have consequences."""
    async with connection.transaction():
        written = await store.complete(connection, now=now, **complete_columns(results))
        ours = [result for result in results if result.outgoing.id in written]
        await _tell_accounts(connection, ours, policy=policy, now=now)
        await _tell_feedback(connection, ours, now=now)
    return written


async def _tell_accounts(
    connection: Session, results: Sequence[Result], *, policy: HealthPolicy, now: datetime | None
) -> None:
    """What the results mean for the accounts that carried the mail: their health, and quota that was not used."""
    outcomes = [_outcome(result, slot) for result in results if (slot := result.outgoing.slot) is not None]
    if not outcomes:
        return
    await record_outcomes(connection, outcomes, policy=policy, now=now)
    untried = [o.slot for o in outcomes if (o.reply is None or o.is_forgiven) and o.slot.account_id is not None]
    if untried:
        await store.return_untried(
            connection,
            account_id=[slot.account_id or 0 for slot in untried],
            claim_id=[slot.claim_id for slot in untried],
        )


async def _tell_feedback(connection: Session, results: Sequence[Result], *, now: datetime | None) -> None:
    """What the results mean for the people: who was refused may be suppressed, who was served is forgiven."""
    mails = [result for result in results if result.outgoing.channel is Channel.EMAIL]
    delivered = [recipient.address for result in mails for recipient in result.recipients if _is_delivered(recipient)]
    refusals = [refusal for result in mails for refusal in _refusals(result)]
    if delivered or refusals:
        await feedback.settle(connection, refusals, delivered=delivered, now=now)


def without_texts(result: Result) -> Result:
    """The same result with nothing in it that the other side or a transport has written."""
    reply = None if result.reply is None else Reply(result.reply.stage, result.reply.code)
    recipients = tuple(replace(recipient, enhanced=None, detail=None) for recipient in result.recipients)
    return replace(result, reply=reply, detail=None, transport="unknown", recipients=recipients)


def _is_delivered(recipient: Recipient) -> bool:
    return recipient.outcome is RecipientOutcome.DELIVERED


def _refusals(result: Result) -> list[Refusal]:
    spoken_of = {answer.address for answer in result.reply.recipients} if result.reply is not None else set()
    return [
        Refusal(
            delivery_id=result.outgoing.id,
            attempt_no=result.outgoing.attempt_no,
            address=recipient.address,
            code=recipient.code,
            enhanced=recipient.enhanced,
            text=recipient.detail or "",
            is_about_recipient=recipient.address in spoken_of,
        )
        for recipient in result.recipients
        if recipient.outcome is RecipientOutcome.REFUSED
    ]


def _outcome(result: Result, slot: Slot) -> Outcome:
    tried = result.reply is not None and result.transport not in (None, NOWHERE)
    return Outcome(
        slot,
        result.reply if tried else None,
        result.outgoing.domain,
        blames_mail=result.blames_mail,
        is_forgiven=result.is_forgiven,
    )
