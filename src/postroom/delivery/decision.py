"""Decides the result of an attempt from its reply. Pure."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import msgspec
from msgspec.structs import replace

from postroom.delivery.model import Channel, DeliveryId, Outgoing, Recipient, RecipientKind, RecipientOutcome
from postroom.delivery.outcome import Disposition, Outcome, RecipientVerdict
from postroom.delivery.retry import GiveUp, RetrySchedule, find_ladder, next_step
from postroom.post.reply import Reply
from postroom.post.text import storable

NO_TIME = timedelta()
NOWHERE = "none"
"""Transport name of an attempt that ended before it had one."""
COMPOSE_FAILED, RENDER_FAILED = "compose_failed", "render_failed"
"""Reasons of a delivery that ends because no message can be made of it."""
MOST_FORGIVEN = 3
"""Limit of uncounted attempts per mail, whose account was throttled or could not log in."""


_ENDS = {
    Disposition.DELIVERED: ("sent", "sent", None),
    Disposition.REFUSED: ("failed", "failed", "refused"),
    Disposition.SUPPRESSED: ("suppressed", "suppressed", "stub_transport"),
}
"""Verdicts that end a delivery: outcome of the attempt, state of the delivery, reason."""

_RECIPIENT_OUTCOMES = {
    Disposition.DELIVERED: RecipientOutcome.DELIVERED,
    Disposition.REFUSED: RecipientOutcome.REFUSED,
    Disposition.SUPPRESSED: RecipientOutcome.SUPPRESSED,
    Disposition.DEFERRED: RecipientOutcome.PENDING,
    Disposition.UNKNOWN: RecipientOutcome.AMBIGUOUS,
}


class AttemptResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of an attempt, ready to be written.

    `state` is the new state, or `waiting`: rendered if a message was composed in this or an earlier attempt, or queued.
    """

    outgoing: Outgoing
    outcome: str | None  # None: no attempt was made, because no message can be made of the delivery
    state: str
    reply: Reply | None = None
    retry_in: timedelta | None = None
    reason: str | None = None
    detail: str | None = None
    dead_letter_reason: str | None = None
    elapsed: timedelta = NO_TIME
    transport: str | None = None
    message_id: str | None = None  # None if no message was composed
    recipients: tuple[Recipient, ...] = ()
    is_throttled: bool = False  # the account was throttled, or could not log in
    is_forgiven: bool = False  # in the ledger, but not counted
    blames_mail: bool = False  # the mail is at fault: another account got the same reply for it
    is_plain: bool = False  # accepted for the only recipient, which needs no entry of its own


def is_uncounted(result: AttemptResult) -> bool:
    """True if the room need not count the mail: no attempt was made, or none of its recipients has got it yet."""
    if result.is_forgiven or result.outcome is None:
        return True
    return result.outcome == "deferred" and all(
        recipient.outcome is not RecipientOutcome.DELIVERED for recipient in result.recipients
    )


class AttemptPolicy(msgspec.Struct, frozen=True):
    """Inputs of a decision besides the attempt: the jitter, and the lanes whose ambiguous mail is held."""

    jitter: float
    held_lanes: Sequence[str]


def accepted(
    outgoing: Outgoing, reply: Reply, *, elapsed: timedelta, transport: str, message_id: str
) -> AttemptResult | None:
    """The result of nearly every attempt: the only recipient was accepted. None: `decide` is needed."""
    if reply.recipients or reply.suppress or reply.code is None or not 200 <= reply.code < 300:  # noqa: PLR2004 - RFC 5321 4.2.1
        return None
    if len(outgoing.recipients) != 1 or outgoing.recipients[0].outcome is RecipientOutcome.SUPPRESSED:
        return None
    return AttemptResult(
        outgoing=outgoing,
        outcome="sent",
        state="sent",
        reply=reply,
        elapsed=elapsed,
        transport=transport,
        message_id=message_id,
        is_plain=True,
    )


def decide(
    outgoing: Outgoing, reply: Reply, outcome: Outcome, policy: AttemptPolicy, *, elapsed: timedelta, transport: str
) -> AttemptResult:
    """The result of one reply, for the delivery and for each recipient."""
    changed = _recipients(outgoing.recipients, outcome.recipients)
    facts: dict[str, Any] = {"reply": reply, "elapsed": elapsed, "transport": transport, "recipients": changed}
    verdict = outcome.verdict
    if verdict is Disposition.REFUSED and _reached_somebody(outgoing):
        # this attempt failed, but an earlier one succeeded: only these addresses are rejected, not the delivery
        return AttemptResult(outgoing=outgoing, outcome="failed", state="sent", **facts)
    if verdict in _ENDS:
        written, state, reason = _ENDS[verdict]
        detail = _excerpt(_deciding_words(reply, outcome)) if reason == "refused" else None
        return AttemptResult(outgoing=outgoing, outcome=written, state=state, reason=reason, detail=detail, **facts)
    written = "ambiguous" if verdict is Disposition.UNKNOWN else "deferred"
    step = next_step(
        outcome,
        ladder=_ladder_of(outgoing),
        attempts=outgoing.attempt_no - outgoing.attempt_base,
        age=outgoing.age + elapsed,
        jitter=policy.jitter,
        hold_unknown=outgoing.lane in policy.held_lanes,
    )
    detail = _excerpt(_deciding_words(reply, outcome)) or f"no answer at {reply.stage}"
    if isinstance(step, GiveUp):
        return AttemptResult(
            outgoing=outgoing,
            outcome=written,
            state="dead_letter",
            reason=step.reason,
            detail=detail,
            dead_letter_reason=step.reason,
            **facts,
        )
    return AttemptResult(
        outgoing=outgoing, outcome=written, state="waiting", retry_in=step.wait, reason=written, detail=detail, **facts
    )


def forgiven(result: AttemptResult, *, about_account: bool) -> AttemptResult:
    """The account was throttled or rejected: the mail is due at once for another account, and loses no attempt.

    A mail is forgiven a few times, and never beyond its age limit. Unless the reply is certainly about the account
    (`about_account`: it came before the mail was mentioned), a second account with the same reply shows that the
    mail is at fault: a content filter that answers 421 would otherwise pause every account in turn.
    """
    outgoing = result.outgoing
    if result.outcome != "deferred":
        return result
    used_up = len(outgoing.throttled_by) >= MOST_FORGIVEN
    others = set(outgoing.throttled_by) - {outgoing.sender_account_id}
    blames_mail = not about_account and (used_up or bool(others))
    if blames_mail or used_up or outgoing.age + result.elapsed > _ladder_of(outgoing).max_age:
        return replace(result, is_throttled=True, blames_mail=blames_mail)
    return replace(
        result,
        state="waiting",
        retry_in=NO_TIME,
        reason="sender_unavailable",
        dead_letter_reason=None,
        is_throttled=True,
        is_forgiven=True,
    )


def expired(outgoing: Outgoing) -> AttemptResult:
    """The result of an expired delivery, such as a code that is no longer valid."""
    return AttemptResult(outgoing=outgoing, outcome="cancelled", state="cancelled", reason="expired")


def suppressed(outgoing: Outgoing) -> AttemptResult:
    """The result if every open recipient was suppressed after acceptance."""
    recipients = tuple(r for r in outgoing.recipients if r.outcome is RecipientOutcome.SUPPRESSED)
    if _reached_somebody(outgoing):
        return AttemptResult(outgoing=outgoing, outcome="suppressed", state="sent", recipients=recipients)
    return AttemptResult(
        outgoing=outgoing,
        outcome="suppressed",
        state="suppressed",
        reason="recipient_suppressed",
        recipients=recipients,
    )


def unwritable(outgoing: Outgoing, problem: str, *, reason: str = COMPOSE_FAILED) -> AttemptResult:
    """The result of a delivery that cannot be rendered or composed: no attempt, and a retry would not help."""
    return AttemptResult(outgoing=outgoing, outcome=None, state="failed", reason=reason, detail=problem)


def _ladder_of(outgoing: Outgoing) -> RetrySchedule:
    return find_ladder(outgoing.ladder, max_retries=outgoing.max_retries, give_up_after=outgoing.give_up_after)


def _deciding_words(reply: Reply, outcome: Outcome) -> str:
    """The final reply, unless it was a success: then the reply of the recipients with the overall verdict."""
    apart = (each.text for each in outcome.recipients if each.verdict is outcome.verdict and each.code != reply.code)
    return next(apart, reply.text)


def _reached_somebody(outgoing: Outgoing) -> bool:
    """True if an earlier attempt delivered to one of the recipients."""
    return any(recipient.outcome is RecipientOutcome.DELIVERED for recipient in outgoing.recipients)


def complete_columns(results: Sequence[AttemptResult]) -> dict[str, list[Any]]:
    """Results as columns for one statement, those of `accepted` last.

    A column may be shorter than the others. For those of `_repeated` the last value applies to all further results,
    others are NULL there. The driver needs longer to encode a value than a result otherwise costs, and most values are
    absent or the same.
    """
    eventful = [result for result in results if not result.is_plain]
    plain = [result for result in results if result.is_plain]
    # the ledger stores the first recipient's address, lowered by PostgreSQL, which lowers only ASCII as Python does
    usual = [result for result in plain if result.outgoing.recipients[0].address.isascii()]
    unusual = [result for result in plain if not result.outgoing.recipients[0].address.isascii()]
    addressed = [*eventful, *unusual]
    ordered = [*addressed, *usual]
    return {
        **_result_columns(ordered),
        **_eventful_columns(eventful),
        **_reply_columns([r.reply for r in ordered]),
        **_address_columns([r.outgoing for r in addressed]),
        **_first_recipient_columns([_first_recipient(r.recipients) for r in eventful]),
        **_recipient_columns([(r.outgoing.id, each) for r in eventful for each in r.recipients if not each.is_first]),
    }


def unwritable_columns(results: Sequence[AttemptResult]) -> dict[str, list[Any]]:
    """Results of `unwritable` as columns for one statement."""
    return {
        "delivery_id": [r.outgoing.id for r in results],
        "claim_id": [r.outgoing.claim_id for r in results],
        "reason": [r.reason for r in results],
        "detail": [_storable(r.detail) for r in results],
    }


def erased_columns(results: Sequence[AttemptResult]) -> dict[str, list[Any]]:
    """Results of mail whose recipient was erased, as columns for one statement: without what may name a person."""
    replies = [result.reply for result in results]
    said = ("stage", "code", "enhanced", "remote_host", "tls")
    return {
        "claim_id": [result.outgoing.claim_id for result in results],
        "delivery_id": [result.outgoing.id for result in results],
        **{name: [getattr(result, name) for result in results] for name in ("outcome", "elapsed", "transport")},
        **{name: [reply and getattr(reply, name) for reply in replies] for name in said},
    }


def _result_columns(results: Sequence[AttemptResult]) -> dict[str, list[Any]]:
    return {
        "delivery_id": [r.outgoing.id for r in results],
        "claim_id": _repeated([r.outgoing.claim_id for r in results]),
        "outcome": _repeated([r.outcome for r in results]),
        "state": _repeated([r.state for r in results]),
        "elapsed": [r.elapsed for r in results],
        "transport": _repeated([r.transport for r in results]),
        "is_plain": _repeated([r.is_plain for r in results]),
        "message_id": _trim([r.message_id for r in results]),
    }


def _eventful_columns(results: Sequence[AttemptResult]) -> dict[str, list[Any]]:
    """Columns that have no value in a result of `accepted`."""
    return {
        "retry_in": _trim([r.retry_in for r in results]),
        "reason": _trim([r.reason for r in results]),
        "detail": _trim([_storable(r.detail) for r in results]),
        "dead_letter_reason": _trim([r.dead_letter_reason for r in results]),
        "is_forgiven": _trim([r.is_forgiven or None for r in results]),
        "is_throttled": _trim([r.is_throttled or None for r in results]),
    }


def _reply_columns(replies: Sequence[Reply | None]) -> dict[str, list[Any]]:
    return {
        "stage": _repeated([r.stage if r else None for r in replies]),
        "code": _repeated([r.code if r else None for r in replies]),
        "enhanced_code": _repeated([r.enhanced if r else None for r in replies]),
        "remote_host": _repeated([r.remote_host if r else None for r in replies]),
        "tls": _repeated([r.tls if r else None for r in replies]),
        "reply_text": _repeated([_storable(r.text) if r else None for r in replies]),
    }


def _address_columns(deliveries: Sequence[Outgoing]) -> dict[str, list[Any]]:
    addressed = [_addressed(outgoing) for outgoing in deliveries]
    return {
        "domain": _trim([outgoing.domain for outgoing in deliveries]),
        "recipient": _trim([addresses[0] if addresses else None for addresses in addressed]),
        "other_recipients": _trim(
            ["\n".join(addresses[1:]) if len(addresses) > 1 else None for addresses in addressed]
        ),
    }


def _first_recipient(changed: Sequence[Recipient]) -> Recipient | None:
    return next((recipient for recipient in changed if recipient.is_first), None)


def _first_recipient_columns(changed: Sequence[Recipient | None]) -> dict[str, list[Any]]:
    """The new outcome of each first recipient, which is stored with its delivery; None: it does not change."""
    return {
        "first_outcome": _trim([recipient.outcome if recipient else None for recipient in changed]),
        "first_code": _trim([recipient.code if recipient else None for recipient in changed]),
        "first_enhanced_code": _trim([recipient.enhanced if recipient else None for recipient in changed]),
        "first_detail": _trim([_storable(recipient.detail) if recipient else None for recipient in changed]),
    }


def _recipient_columns(changed: Sequence[tuple[DeliveryId, Recipient]]) -> dict[str, list[Any]]:
    return {
        "recipient_delivery_id": [delivery_id for delivery_id, _ in changed],
        "recipient_kind": [recipient.kind for _, recipient in changed],
        "recipient_position": [recipient.position for _, recipient in changed],
        "recipient_outcome": [recipient.outcome for _, recipient in changed],
        "recipient_code": [recipient.code for _, recipient in changed],
        "recipient_enhanced_code": [recipient.enhanced for _, recipient in changed],
        "recipient_detail": [_storable(recipient.detail) for _, recipient in changed],
    }


def _repeated(values: list[Any]) -> list[Any]:
    """The column without repetitions of its last value at its end."""
    if values and values.count(values[-1]) == len(values):  # nearly always
        return values[-1:]
    while len(values) > 1 and values[-1] == values[-2]:
        values.pop()
    return values


def _trim(values: list[Any]) -> list[Any]:
    """The column without the absent values at its end."""
    while values and values[-1] is None:
        values.pop()
    return values


def _addressed(outgoing: Outgoing) -> list[str]:
    """The addresses that an attempt is for, as the ledger stores them; all of them if no recipient was still open."""
    receiving = outgoing.recipients
    if len(receiving) > 1:
        receiving = tuple(r for r in receiving if r.kind is not RecipientKind.REPLY_TO)
        receiving = tuple(r for r in receiving if r.is_open) or receiving
    is_mail = outgoing.channel is Channel.EMAIL
    return [r.address.lower() if is_mail else r.address for r in receiving]


def _excerpt(reply: str) -> str:
    """The beginning of the reply on one line; the attempt keeps all of it."""
    return " ".join(reply.split())[:500]


def _storable(text: str | None) -> str | None:
    """Replace the characters that PostgreSQL's text cannot hold; those of printable text it can."""
    return text if text is None or text.isprintable() else storable(text)


def _recipients(recipients: Sequence[Recipient], verdicts: Sequence[RecipientVerdict]) -> tuple[Recipient, ...]:
    """The recipients whose outcome changes. An address given twice gets the same verdict twice."""
    by_address = {verdict.address: verdict for verdict in verdicts}
    changed = [r for r in recipients if r.outcome is RecipientOutcome.SUPPRESSED]
    for recipient in recipients:
        verdict = by_address.get(recipient.address) if recipient.is_open else None
        if verdict is not None:
            detail = _excerpt(verdict.text) if verdict.verdict is not Disposition.DELIVERED else None
            changed.append(
                Recipient(
                    recipient.kind,
                    recipient.position,
                    recipient.address,
                    recipient.name,
                    _outcome_after(recipient, verdict.verdict),
                    verdict.code,
                    verdict.enhanced,
                    detail,
                )
            )
    return tuple(changed)


def _outcome_after(recipient: Recipient, verdict: Disposition) -> RecipientOutcome:
    """The new outcome. A deferral proves nothing about an earlier ambiguous attempt: the recipient stays ambiguous."""
    outcome = _RECIPIENT_OUTCOMES[verdict]
    return recipient.outcome if outcome is RecipientOutcome.PENDING else outcome
