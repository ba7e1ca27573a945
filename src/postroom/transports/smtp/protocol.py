"""One SMTP connection: bytes out, answers in, no exception for errors of the other side.

`ask` writes commands and returns their answers; fewer answers than commands means that the connection is finished
and `trouble` has the reason. A 421, an answer that is not SMTP, and an unsolicited answer finish it as well: two
sides that are out of step must not exchange mail.

Timeouts need no timer per message: one timer per connection checks, when it fires, whether the deadline has moved.
"""

import asyncio
import math
import ssl
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import cast

from postroom.post.reply import Stage
from postroom.transports.smtp.answer import SERVICE_CLOSING, AnswerReader, SmtpReply, clean_text
from postroom.transports.smtp.channel import TlsChannel, most_encrypted

BLOCK = 262_144  # content is written in blocks, each with its own timeout
FAREWELL_S = 5.0  # QUIT is a courtesy; the mail is accepted already

CLOSED_BY_PEER = "the other side closed the connection"


class SmtpClientConnection(asyncio.Protocol):
    """A connection and its state. Used by one task at a time."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.extensions: Mapping[str, str] = MappingProxyType({})
        self.tls: str | None = None
        self.trouble: str | None = None  # the reason why the connection is finished
        self.lost = False  # the other side closed the connection
        self.closed: asyncio.Future[None] = loop.create_future()
        self.messages = 0
        self.idle_since = 0.0
        self.needs_reset = False
        self.content_started = False
        self._is_patient = self._is_overdue = False
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        self._channel: TlsChannel | None = None
        self._reader = AnswerReader()
        self._answers: list[SmtpReply] = []
        self._expected = 1  # the greeting
        self._awaited = 1  # answers that wake the waiting task
        self._waiter: asyncio.Future[None] | None = None
        self._paused = False  # some bytes have not left
        self._behind: int | None = None  # bytes written behind the content; None: the content is not written
        self._leaving = False
        self._patience = 0.0
        self._deadline = math.inf
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = math.inf

    def now(self) -> float:
        """The clock of its timeouts."""
        return self._loop.time()

    @property
    def content_finished(self) -> bool:
        """True if the server may have all of the content: every byte up to the closing dot has left.

        After a loss, the event loop does not report how many of the last bytes had left: then commands behind the
        content may have stayed alone.
        """
        if self._behind is None or not self._paused:
            return self._behind is not None
        return self._behind > 0 and self._unsent() <= self._behind

    def stage(self) -> Stage:
        """The stage of the current message; only at FINAL the server may have all of it."""
        if self.content_finished:
            return Stage.FINAL
        return Stage.CONTENT if self.content_started else Stage.RECIPIENT

    # Called by sessions

    def begin_message(self) -> None:
        """Let the stage be that of a message of which nothing has left."""
        self.content_started, self._behind = False, None

    async def greeting(self, timeout_s: float) -> list[SmtpReply]:
        """Wait for the server's greeting."""
        return await self._answered(timeout_s)

    async def ask(self, commands: bytes, expected: int, timeout_s: float) -> list[SmtpReply]:
        """Write commands at once and return their answers, up to the one that ends the connection."""
        if self._begin(expected):
            self._write(commands)
        return await self._answered(timeout_s)

    async def hand_over(self, content: bytes, block_timeout_s: float, behind: Sequence[bytes] = ()) -> None:
        """Write dot-stuffed content with its closing dot and, in the same write, commands of the next message.

        Afterwards `content_finished` is true if the server may have all of the content.
        """
        self._behind = None
        if not self._begin(1 + len(behind)):
            return
        self.content_started = True
        blocks = _blocks(b"".join((content, *behind)) if behind else content)
        for block in blocks:
            left = self._write(block)
            if left and block is blocks[-1]:
                size = sum(map(len, behind))
                self._behind = most_encrypted(size) if size and self._channel is not None else size
            while (self._paused or not left) and self.trouble is None:
                await self._woken(block_timeout_s)
            if self._paused or not left:
                return

    async def final_answer(self, timeout_s: float, *, is_patient: bool = False) -> SmtpReply | None:
        """Wait for the answer to the content. With `is_patient`, the end of the timeout does not end the connection."""
        self._awaited, self._is_patient, self._is_overdue = 1, is_patient, False
        while not self._answers and self.trouble is None and not self._is_overdue:
            await self._woken(timeout_s)
        self._is_patient = False
        if not self._answers:
            return None
        self._expected -= 1
        return self._answers.pop(0)

    async def answers_behind(self, timeout_s: float) -> list[SmtpReply]:
        """Wait for the answers to the commands behind the content."""
        self._awaited = self._expected
        return await self._answered(timeout_s)

    @property
    def has_answers_behind(self) -> bool:
        """True if these answers have come, usually together with the answer to the content."""
        return len(self._answers) == self._expected and self.trouble is None

    def take_answers(self) -> list[SmtpReply]:
        """The answers that have come; none is expected any more."""
        answers, self._answers = self._answers, []
        self._expected = 0
        return answers

    async def secure(self, context: ssl.SSLContext, server_name: str, timeout_s: float) -> None:
        """Switch to TLS; on failure `trouble` has the reason."""
        if self._answers or self._reader.pending:
            # Plain text received before the handshake would be taken for protected answers.
            self.fail("plain text was sent ahead of the TLS handshake")
        if self.trouble is not None or self._transport is None:
            return
        try:
            self._channel = channel = TlsChannel(context, server_name)
        except ValueError as error:  # not a host name
            self.fail(describe(error))
            return
        self._read_through(channel, b"")
        while not channel.is_open and self.trouble is None:
            await self._woken(timeout_s)
        self.tls = channel.version if channel.is_open else None

    def quit(self) -> None:
        """Send QUIT; the connection closes when the server has answered, or after a short timeout."""
        if self.trouble is not None:
            self.abort()
            return
        self.trouble = "leaving"
        self._leaving = True
        self._write(b"QUIT\r\n")
        self._arm(FAREWELL_S)

    def abort(self) -> None:
        """Close at once; unwritten bytes are dropped."""
        self.trouble = self.trouble or "closed by us"
        if not self.content_finished:
            self._behind = None  # the rest of the content is dropped here
        if self._transport is not None:
            self._transport.abort()

    def fail(self, trouble: str, *, lost: bool = False) -> None:
        """Finish the connection with a reason and wake the waiting task."""
        if self.trouble is None:
            self.trouble = trouble
            self.lost = lost
        self.abort()
        self._wake()

    # Called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        # With a write buffer limit of zero, "paused" means exactly: some bytes have not left yet.
        self._transport.set_write_buffer_limits(high=0)

    def data_received(self, data: bytes) -> None:
        if self._channel is None:
            self._read(data)
        else:
            self._read_through(self._channel, data)

    def eof_received(self) -> None:
        """The other side will say nothing more: whatever it is sent from now on, it cannot answer."""
        self.fail(CLOSED_BY_PEER, lost=True)

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        if self.trouble is None:
            self.trouble = CLOSED_BY_PEER if exc is None else describe(exc)
            self.lost = True
        if self._timer is not None:
            self._timer.cancel()
        if not self.closed.done():
            self.closed.set_result(None)
        self._wake()

    # Inside

    def _read_through(self, channel: TlsChannel, data: bytes) -> None:
        """Read bytes inside TLS, which may answer them itself."""
        was_open = channel.is_open
        plain = channel.decrypt(data)
        if self._transport is not None and (answer := channel.to_send()):
            self._transport.write(answer)
        if plain:
            self._read(plain)
        if channel.error is not None:
            self.fail(describe(channel.error), lost=was_open)
        elif channel.is_ended:
            self.eof_received()
        elif channel.is_open and not was_open:
            self._wake()

    def _read(self, data: bytes) -> None:
        if self._leaving:
            self._close()
            return
        answers = self._reader.feed(data)
        if not answers:
            return
        if len(self._answers) + len(answers) > self._expected:
            self._out_of_turn(answers)
            return
        for answer in answers:
            self._answers.append(answer)
            if answer.code is None or answer.code == SERVICE_CLOSING:
                self.fail(
                    "the answer was not SMTP" if answer.code is None else answer.text,
                    lost=answer.code is not None,
                )
                return
        if len(self._answers) >= self._awaited:
            self._wake()
        elif self._waiter is not None:
            self._deadline = self._loop.time() + self._patience

    def _begin(self, expected: int) -> bool:
        if self._reader.pending:
            self.fail("spoke out of turn")
        self._answers = []
        if self.trouble is not None:
            return False
        self._expected = self._awaited = expected
        return True

    def _unsent(self) -> int:
        """Bytes that have not left; 0 after a loss."""
        return self._transport.get_write_buffer_size() if self._transport is not None else 0

    def _write(self, data: bytes | memoryview) -> bool:
        """Write; False if the bytes were not taken: a closing connection drops them silently."""
        if self._transport is None:
            return False
        if self._channel is not None:
            try:
                data = self._channel.encrypt(data)
            except ssl.SSLError as error:
                self.fail(describe(error), lost=True)
                return False
        self._transport.write(data)
        return not self._transport.is_closing()

    def _close(self) -> None:
        if self._transport is None:
            return
        if self._channel is not None:
            self._transport.write(self._channel.farewell())
        self._transport.close()

    def _out_of_turn(self, answers: list[SmtpReply]) -> None:
        """Keep the expected answers; after unsolicited ones the connection is not read again."""
        closing = any(answer.code == SERVICE_CLOSING for answer in answers)
        self._answers += answers[: self._expected - len(self._answers)]
        self.fail("spoke out of turn", lost=closing)

    async def _answered(self, timeout_s: float) -> list[SmtpReply]:
        while len(self._answers) < self._expected and self.trouble is None:
            await self._woken(timeout_s)
        return self.take_answers()

    def _woken(self, timeout_s: float) -> asyncio.Future[None]:
        """The next wake-up, within the timeout. A future and not a coroutine: every mail waits for one."""
        self._waiter = waiter = self._loop.create_future()
        self._arm(timeout_s)
        return waiter

    def _wake(self) -> None:
        waiter = self._waiter
        if waiter is None:
            return
        self._waiter = None
        self._deadline = math.inf
        if not waiter.done():  # cancelled: the session then closes the connection
            waiter.set_result(None)

    def _arm(self, timeout_s: float) -> None:
        self._patience = timeout_s
        self._deadline = deadline = self._loop.time() + timeout_s
        if deadline < self._timer_at:
            self._set_timer(deadline)

    def _set_timer(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = when
        self._timer = self._loop.call_at(when, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._timer_at = math.inf
        if self._deadline == math.inf:
            return
        # A timer may fire a clock tick early; without the tolerance it would be set again with no delay.
        if self._loop.time() + 0.001 < self._deadline:
            self._set_timer(self._deadline)
            return
        if self._is_patient:
            self._is_overdue = True
            self._wake()
            return
        self.fail(f"no answer within {self._patience:g} s")


def describe(error: BaseException) -> str:
    """Describe an error in one line, without Python's formatting."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return clean_text(f"certificate not trusted: {error.verify_message}")
    if isinstance(error, ssl.SSLError):
        return clean_text(f"TLS failed: {(error.reason or str(error)).replace('_', ' ').lower()}")
    if isinstance(error, OSError) and error.strerror:
        return clean_text(error.strerror.lower())
    return clean_text(str(error) or type(error).__name__)


def _blocks(content: bytes) -> list[bytes | memoryview]:
    if len(content) <= BLOCK:
        return [content]
    view = memoryview(content)
    return [view[start : start + BLOCK] for start in range(0, len(content), BLOCK)]
