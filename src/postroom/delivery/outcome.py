"""What became of an attempt: `postroom.post.meaning`, recipient by recipient.

A reply about a recipient decides for that recipient; a reply about the sender, the content or the whole transaction
decides for every recipient it did not mention.
"""

from enum import StrEnum

import msgspec

from postroom.post.meaning import Hardness, meaning_of
from postroom.post.reply import Envelope, RecipientReply, Reply, Stage


class Disposition(StrEnum):
    """What a reply means for whoever it concerns."""

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
    """What became of one address in this attempt, and in whose words."""

    address: str
    verdict: Disposition
    code: int | None
    enhanced: str | None
    text: str


class Outcome(msgspec.Struct, frozen=True):
    """What became of an attempt: one verdict per recipient, one for the whole, and the hint to come back later."""

    verdict: Disposition
    recipients: tuple[RecipientVerdict, ...]
    retry_after_s: float | None


def classify(reply: Reply, envelope: Envelope) -> Outcome:
    """Turn what was said into what it means, recipient by recipient."""
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
    if verdict is Disposition.DELIVERED:  # the address was fine; what followed decides
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
    """What is still open decides; then one success makes a success; only unanimous refusal refuses the whole."""
    return next(verdict for verdict in _PRECEDENCE if verdict in verdicts)
