"""The outcome of an attempt for each recipient, from `postroom.post.meaning`.

A reply about a recipient decides for that recipient; a reply about the sender, the content or the whole transaction
decides for every recipient it did not mention.
"""

from enum import StrEnum

import msgspec

from postroom.post.meaning import Hardness, meaning_of
from postroom.post.reply import Envelope, RecipientReply, Reply, Stage


class Disposition(StrEnum):
    """The meaning of a reply for a recipient or a delivery."""

    DELIVERED = "delivered"
    DEFERRED = "deferred"
    REFUSED = "refused"
    UNKNOWN = "unknown"
    SUPPRESSED = "suppressed"


_VERDICTS = {
    Hardness.TAKEN: Disposition.DELIVERED,
    Hardness.LATER: Disposition.DEFERRED,
    Hardness.REFUSED: Disposition.REFUSED,
    Hardness.GONE: Disposition.REFUSED,
    Hardness.LOST: Disposition.UNKNOWN,
}


class RecipientVerdict(msgspec.Struct, frozen=True, gc=False):
    """The outcome of one address in this attempt, and the deciding reply."""

    address: str
    verdict: Disposition
    code: int | None
    enhanced: str | None
    text: str


class Outcome(msgspec.Struct, frozen=True):
    """The outcome of an attempt: one verdict per recipient, one for the whole, and the retry hint."""

    verdict: Disposition
    recipients: tuple[RecipientVerdict, ...]
    retry_after_s: float | None


def classify(reply: Reply, envelope: Envelope) -> Outcome:
    """Decide the outcome of a reply for each recipient."""
    spoken = {answer.address: answer for answer in reply.recipients}
    shared = _VERDICTS[meaning_of(reply.stage, reply.code, reply.enhanced, reply.text).hardness]
    if reply.suppress:
        shared = Disposition.SUPPRESSED
    verdicts = tuple(_for_recipient(address, spoken.get(address), reply, shared) for address in envelope.recipients)
    return Outcome(_overall([verdict.verdict for verdict in verdicts] or [shared]), verdicts, reply.retry_after_s)


def _for_recipient(address: str, answer: RecipientReply | None, reply: Reply, shared: Disposition) -> RecipientVerdict:
    if answer is None:
        return RecipientVerdict(address, shared, reply.code, reply.enhanced, reply.text)
    verdict = _VERDICTS[meaning_of(Stage.RECIPIENT, answer.code, answer.enhanced, answer.text).hardness]
    if verdict is Disposition.DELIVERED:  # the address was accepted; the reply to the content decides
        return RecipientVerdict(address, shared, reply.code, reply.enhanced, reply.text)
    return RecipientVerdict(address, verdict, answer.code, answer.enhanced, answer.text)


_PRECEDENCE = (
    Disposition.UNKNOWN,
    Disposition.DEFERRED,
    Disposition.DELIVERED,
    Disposition.REFUSED,
    Disposition.SUPPRESSED,
)


def _overall(verdicts: list[Disposition]) -> Disposition:
    """An open recipient decides; then one success makes a success; only a unanimous rejection rejects the whole."""
    return next(verdict for verdict in _PRECEDENCE if verdict in verdicts)
