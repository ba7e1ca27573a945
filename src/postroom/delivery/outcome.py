"""What a reply means: the one place where facts become a verdict.

Scope. A reply about a recipient decides for that recipient; a reply about the sender, the content or the whole
transaction decides for every recipient it did not speak of; a reply about the connection, the channel's security or our
login decides for nobody: it says that this way out is not usable now.

Hardness, for whatever scope the reply has:

| reply                                              | means                                                        |
|----------------------------------------------------|--------------------------------------------------------------|
| 2xx                                                | delivered                                                    |
| 4xx, and 421 at any stage                          | deferred                                                     |
| 5xx at connect, tls or login                       | deferred: the trouble is between us and the relay            |
| 5xx that is really temporary (x.2.2 mailbox full)  | deferred                                                     |
| other 5xx                                          | refused                                                      |
| no answer before the content was handed over       | deferred                                                     |
| no answer after it was                             | unknown: it may have been delivered                          |
| suppressed by the transport                        | suppressed                                                   |
"""

from enum import StrEnum

import msgspec

from postroom.post.reply import Envelope, RecipientReply, Reply, Stage

_OURS = frozenset({Stage.CONNECT, Stage.TLS, Stage.LOGIN})
_TEMPORARY_5XX = frozenset({"5.2.2", "5.3.1", "5.4.5"})
"""Hard in form, temporary in fact: mailbox full, mail system full, mail system congested (RFC 3463)."""


class Verdict(StrEnum):
    """What a reply means for whoever it concerns."""

    DELIVERED = "delivered"
    DEFERRED = "deferred"
    REFUSED = "refused"
    UNKNOWN = "unknown"
    SUPPRESSED = "suppressed"


class RecipientVerdict(msgspec.Struct, frozen=True, gc=False):
    """What became of one address in this attempt, and in whose words."""

    address: str
    verdict: Verdict
    code: int | None
    enhanced: str | None
    text: str


class Outcome(msgspec.Struct, frozen=True):
    """What became of an attempt: one verdict per recipient, one for the whole, and the hint to come back later."""

    verdict: Verdict
    recipients: tuple[RecipientVerdict, ...]
    retry_after_s: float | None


def classify(reply: Reply, envelope: Envelope) -> Outcome:
    """Turn what was said into what it means, recipient by recipient."""
    spoken = {answer.address: answer for answer in reply.recipients}
    shared = _judge(reply.stage, reply.code, reply.enhanced, suppressed=reply.suppress)
    verdicts = tuple(_for_recipient(address, spoken.get(address), reply, shared) for address in envelope.recipients)
    return Outcome(_overall([verdict.verdict for verdict in verdicts] or [shared]), verdicts, reply.retry_after_s)


def _for_recipient(address: str, answer: RecipientReply | None, reply: Reply, shared: Verdict) -> RecipientVerdict:
    if answer is None:
        return RecipientVerdict(address, shared, reply.code, reply.enhanced, reply.text)
    verdict = _judge(Stage.RECIPIENT, answer.code, answer.enhanced)
    if verdict is Verdict.DELIVERED:  # the address was fine; what followed decides
        return RecipientVerdict(address, shared, reply.code, reply.enhanced, reply.text)
    return RecipientVerdict(address, verdict, answer.code, answer.enhanced, answer.text)


def _judge(stage: Stage, code: int | None, enhanced: str | None, *, suppressed: bool = False) -> Verdict:
    if suppressed:
        return Verdict.SUPPRESSED
    if code is None:
        return Verdict.UNKNOWN if stage is Stage.FINAL else Verdict.DEFERRED
    match code // 100:
        case 2:
            return Verdict.DELIVERED
        case 5 if stage not in _OURS and enhanced not in _TEMPORARY_5XX:
            return Verdict.REFUSED
        case _:
            return Verdict.DEFERRED


_PRECEDENCE = (Verdict.UNKNOWN, Verdict.DEFERRED, Verdict.DELIVERED, Verdict.REFUSED, Verdict.SUPPRESSED)


def _overall(verdicts: list[Verdict]) -> Verdict:
    """What is still open decides; then one success makes a success; only unanimous refusal refuses the whole."""
    return next(verdict for verdict in _PRECEDENCE if verdict in verdicts)
