"""The transport seam: hand one message to the other side, report what it said.

A transport returns facts and decides nothing. What a reply means is decided once, in
`postroom.post.meaning`. A transport never raises for anything the network or the other side does;
an exception out of `send` is a bug of ours.
"""

from collections.abc import Callable
from contextvars import ContextVar
from typing import Protocol, runtime_checkable

from postroom.post.reply import Content, Envelope, Reply, Stage


class SendProgress:
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
    def current() -> "SendProgress":
        """That of the message this task sends."""
        return _current.get() or SendProgress()

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


_current: ContextVar[SendProgress | None] = ContextVar("passage", default=None)


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
class SentMailbox(Protocol):
    """A transport that can say later whether it sent a message."""

    async def was_sent(self, message_id: str) -> bool | None:
        """True if it did, False if it did not, None if the other side cannot be asked."""
