"""Evaluation of the answers to an envelope. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from postroom.post.meaning import Hardness, meaning_of
from postroom.post.reply import RecipientReply, Stage
from postroom.transports.smtp.answer import SERVICE_CLOSING, SmtpReply

GO_AHEAD = 354  # reply to DATA (RFC 5321)


@dataclass(frozen=True, slots=True)
class RefusedStage:
    """The reason why the content is not sent: the deciding answer (None: no answer) and its stage."""

    stage: Stage
    answer: SmtpReply | None
    refused: tuple[RecipientReply, ...] = ()


def judge(recipients: Sequence[str], answers: Sequence[SmtpReply]) -> RefusedStage | None:
    """Return the rejection that ends the attempt before the content, or None if the content may follow.

    `answers` are the received answers to MAIL, each RCPT and DATA.
    """
    if _accepts_all(answers, len(recipients)):
        return None
    if not (answers and answers[0].positive):
        return RefusedStage(Stage.SENDER, answers[0] if answers else None)
    about = answers[1 : len(recipients) + 1]
    if (verdict := _judge_recipients(recipients, about)) is not None:
        return verdict
    go_ahead = answers[len(recipients) + 1] if len(answers) > len(recipients) + 1 else None
    if go_ahead is None or go_ahead.code != GO_AHEAD:
        return RefusedStage(Stage.CONTENT, go_ahead, refusals(recipients, about))
    return None


def _accepts_all(answers: Sequence[SmtpReply], recipients: int) -> bool:
    """True for the usual answers: yes to MAIL and every RCPT, go ahead to DATA."""
    if len(answers) != recipients + 2 or answers[-1].code != GO_AHEAD:
        return False
    return False not in [answer.positive for answer in answers[:-1]]  # for every mail: half the time of a generator


def refusals(
    recipients: Sequence[str], about: Sequence[SmtpReply], *, but: SmtpReply | None = None
) -> tuple[RecipientReply, ...]:
    """The rejected recipients, without those that share the answer `but`."""
    return tuple(
        [
            RecipientReply(address, answer.code, answer.enhanced, answer.text)
            for address, answer in zip(recipients, about, strict=False)
            if answer.code is not None and answer.negative and answer != but
        ]
    )


def _judge_recipients(recipients: Sequence[str], about: Sequence[SmtpReply]) -> RefusedStage | None:
    ending = next((answer for answer in about if _ends_everything(answer)), None)
    complete = len(about) == len(recipients)
    if ending is None and complete and any(answer.positive for answer in about):
        return None
    decisive = ending
    if decisive is None and complete:
        # A temporary answer decides for the whole message; permanently rejected recipients keep their own entry.
        decisive = next((answer for answer in about if _is_later(answer)), about[0])
    return RefusedStage(Stage.RECIPIENT, decisive, refusals(recipients, about, but=decisive))


def _is_later(answer: SmtpReply) -> bool:
    return meaning_of(Stage.RECIPIENT, answer.code, answer.enhanced, answer.text).hardness is Hardness.LATER


def _ends_everything(answer: SmtpReply) -> bool:
    return answer.code == SERVICE_CLOSING or not (answer.positive or answer.negative)
