"""The transport seam: hand one message to the other side, report what it said.

A transport returns facts and decides nothing. What a reply means is decided once, in
`postroom.delivery.outcome`. A transport never raises for anything the network or the other side does;
an exception out of `send` is a bug of ours.
"""

from collections.abc import Callable
from contextvars import ContextVar
from enum import StrEnum
from typing import Protocol, runtime_checkable

import msgspec


class Stage(StrEnum):
    """How far the conversation got before the reply that decided it."""

    CONNECT = "connect"  # nothing was said yet: refused, timed out, no such host
    TLS = "tls"  # the channel could not be secured or trusted
    LOGIN = "login"  # our credentials
    SENDER = "sender"  # MAIL FROM
    RECIPIENT = "recipient"  # RCPT TO
    CONTENT = "content"  # DATA was asked for, or content is being transferred
    FINAL = "final"  # the whole content was handed over; with no code, nobody knows what became of it


class Envelope(msgspec.Struct, frozen=True):
    """Who sends, who receives, and the name this message keeps over all its attempts."""

    delivery_id: int
    message_id: str
    sender: str  # return path; empty for the null reverse-path
    recipients: tuple[str, ...]
    lane: str = "transactional"
    has_utf8_headers: bool = False  # an address in the headers is not ASCII

    @property
    def needs_smtputf8(self) -> bool:
        """True if it can only be handed to servers with internationalised mail (RFC 6531)."""
        addresses = (self.sender, *self.recipients)
        return self.has_utf8_headers or not all(address.isascii() for address in addresses)


class Content(Protocol):
    """A composed message that can be put into bytes for what the server can take."""

    def encode(self, *, eight_bit: bool) -> bytes:
        """Return the message with CRLF line ends; with `eight_bit` false, every byte is ASCII."""


class RecipientReply(msgspec.Struct, frozen=True):
    """What was said about one recipient."""

    address: str
    code: int
    enhanced: str | None = None
    text: str = ""


class Reply(msgspec.Struct, frozen=True):
    """What the other side said to one attempt.

    `code` is None when no answer came (a refused connection, a time-out, a dropped line). `recipients` holds one
    entry for each recipient the other side spoke about; one without an entry shares the reply of the whole.
    """

    stage: Stage
    code: int | None = None
    enhanced: str | None = None
    text: str = ""
    retry_after_s: float | None = None
    remote_host: str | None = None
    tls: str | None = None  # protocol version, such as "TLSv1.3"
    recipients: tuple[RecipientReply, ...] = ()
    suppress: bool = False  # the stub transport: end as suppressed, nothing was tried


class Passage:
    """How far one message has come, for the caller of `send`, which cannot ask while it waits.

    The caller makes one in the task that sends, with what tells whether the message has expired. A transport that knows
    its stage says so with `follow`, and asks `may_leave` at the last moment before it offers the message.
    """

    __slots__ = ("_has_expired", "_stage", "is_late")

    def __init__(self, has_expired: Callable[[], bool] = lambda: False) -> None:
        self._has_expired = has_expired
        self._stage: Callable[[], Stage] | None = None
        self.is_late = False
        _current.set(self)

    @staticmethod
    def current() -> "Passage":
        """That of the message this task sends."""
        return _current.get() or Passage()

    def follow(self, stage: Callable[[], Stage]) -> None:
        self._stage = stage

    def may_leave(self) -> bool:
        """False: the message has expired and must not be offered."""
        self.is_late = self._has_expired()
        return not self.is_late

    @property
    def may_have_arrived(self) -> bool:
        """True if the other side can have the whole message, or the transport does not say."""
        return self._stage is None or self._stage() is Stage.FINAL

    @property
    def is_handed_over(self) -> bool:
        """True if the transport says that the whole message has left and nothing but the answer is missing."""
        return self._stage is not None and self._stage() is Stage.FINAL


_current: ContextVar[Passage | None] = ContextVar("passage", default=None)


class Transport(Protocol):
    """One way out. Safe to call from many tasks at once; connections are its own business.

    One that limits its connections has `max_connections`: delivery offers it no more messages at once.
    """

    name: str

    async def send(self, envelope: Envelope, content: Content) -> Reply:
        """Try once to hand the message over."""

    async def close(self) -> None:
        """Give back connections. Messages that were given to `send` before are still sent; later ones are not."""


@runtime_checkable
class Mailbox(Protocol):
    """A transport that can say later whether it sent a message."""

    async def was_sent(self, message_id: str) -> bool | None:
        """True if it did, False if it did not, None if the other side cannot be asked."""
