"""The replies of an SMTP server: lines in, `SmtpReply` values out, and their verdict on an envelope. Pure.

HOSTILE INPUT everything here comes from the other side. Lines and replies have a length limit, control characters
are removed, text is truncated, and input that is not an SMTP reply becomes an answer without a code.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import msgspec

from postroom.post.meaning import Hardness, meaning_of
from postroom.post.reply import RecipientReply, Stage

MAX_LINE = 8_192  # RFC 5321 allows 512; servers with long policy texts exceed it
MAX_LINES = 256  # of one reply; a server that sends more is not an SMTP server
MAX_TEXT = 1_000  # characters that are stored; a reply line has at most 512

SERVICE_CLOSING = 421  # RFC 5321, 3.8
GO_AHEAD = 354  # reply to DATA (RFC 5321)
_YES = frozenset(range(200, 300))

_CODES = {b"%d" % code: code for code in range(200, 600)}

_ENHANCED = re.compile(r"([245]\.\d{1,3}\.\d{1,3})(?:\s+|$)")
# C0 and C1 controls, line separators and bidirectional marks.
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069]+")


class SmtpReply(msgspec.Struct, frozen=True, gc=False):
    """One whole reply; its lines are decoded on demand. `code` is absent if it was not an SMTP reply."""

    code: int | None
    lines: tuple[bytes, ...]

    @property
    def positive(self) -> bool:
        return self.code is not None and 200 <= self.code < 300  # noqa: PLR2004 - RFC 5321 4.2.1

    @property
    def negative(self) -> bool:
        return self.code is not None and self.code >= 400  # noqa: PLR2004 - RFC 5321 4.2.1

    @property
    def enhanced(self) -> str | None:
        """The status code `x.y.z` at the start of the text, if its class matches the reply code (RFC 2034)."""
        if self.code is None:
            return None
        found = _ENHANCED.match(_decode(self.lines[0][4:]))
        return found[1] if found and found[1][0] == str(self.code)[0] else None

    @property
    def text(self) -> str:
        """The text of the reply on one line, without codes."""
        return self.parts[1]

    @property
    def parts(self) -> tuple[str | None, str]:
        """The enhanced code and the text."""
        return _single_parts(self) if len(self.lines) == 1 else _parts(self)

    @property
    def body(self) -> list[str]:
        """The text of each line; EHLO lists its keywords there."""
        return [_decode(line[4:]).strip() for line in self.lines]


def clean_text(said: bytes | str) -> str:
    """Make foreign text safe to store and show: no control characters, at most 1,000 characters."""
    text = _decode(said) if isinstance(said, bytes) else said
    is_clean = text.isascii() and text.isprintable()  # nearly always, and quicker to find out
    return (text if is_clean else _UNPRINTABLE.sub(" ", text)).strip()[:MAX_TEXT]


def _decode(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


@lru_cache(maxsize=64)  # a server repeats most of its answers for every mail; few, because lines may have 8 KB
def _single(line: bytes) -> SmtpReply | None:
    """The reply that consists of this line; None if it is not a whole reply."""
    bare = line.rstrip(b"\r")
    code = _CODES.get(bare[:3])
    return None if code is None or bare[3:4] not in b" " or len(bare) > MAX_LINE else SmtpReply(code, (bare,))


def _parts(answer: SmtpReply) -> tuple[str | None, str]:
    if answer.code is None:
        return None, clean_text(b" ".join(answer.lines))
    enhanced = answer.enhanced
    texts = answer.body
    if enhanced is not None:
        texts = [text.removeprefix(enhanced).strip() for text in texts]
    return enhanced, clean_text(" ".join(texts))


_single_parts = lru_cache(maxsize=64)(_parts)


class AnswerReader:
    """Splits a stream of bytes into answers. Stops after invalid input: the two sides are out of step."""

    __slots__ = ("_buffer", "_lines", "junk")

    def __init__(self) -> None:
        self._buffer = b""
        self._lines: list[bytes] = []
        self.junk = False

    @property
    def pending(self) -> bool:
        """True if part of an answer has been read."""
        return bool(self._buffer or self._lines)

    def feed(self, data: bytes) -> list[SmtpReply]:
        """Add received bytes; return the answers that are now complete."""
        *lines, self._buffer = (self._buffer + data if self._buffer else data).split(b"\n")
        answers: list[SmtpReply] = []
        for line in lines:
            if self.junk:
                break
            answer = None if self._lines else _single(line)
            if answer is None:
                answer = self._line(line.rstrip(b"\r"))
            if answer is not None:
                answers.append(answer)
        if len(self._buffer) > MAX_LINE and not self.junk:
            answers.append(self._reject(self._buffer))
        return answers

    def _line(self, line: bytes) -> SmtpReply | None:
        code = _CODES.get(line[:3])
        separator = line[3:4]
        if code is None or separator not in b" -" or len(line) > MAX_LINE:
            return self._reject(line)
        if separator == b"-":
            self._lines.append(line)
            return None if len(self._lines) < MAX_LINES else self._reject(line)
        whole = SmtpReply(code, (*self._lines, line))
        self._lines.clear()
        return whole

    def _reject(self, line: bytes) -> SmtpReply:
        self.junk = True
        self._buffer = b""
        self._lines.clear()
        return SmtpReply(None, (line[:MAX_TEXT],))


# ── the answers to an envelope ────────────────────────────────────────────────────────────────────────────────────────


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
    # for every mail: to ask each answer whether it is positive takes twice as long
    return {answer.code for answer in answers[:-1]} <= _YES


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
