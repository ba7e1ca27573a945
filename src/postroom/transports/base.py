"""The transport protocol: hand over one message and report the reply.

A transport returns facts; `postroom.post.meaning` decides what a reply means. A transport never raises for an error
of the network or the other side; an exception out of `send` is a bug.
"""

from collections.abc import Callable
from contextvars import ContextVar
from typing import Protocol, runtime_checkable

from postroom.post.reply import Content, Envelope, Reply, Stage


class SendProgress:
    """Progress of one message, readable by the caller of `send` while it waits.

    The caller of `send` creates it in the sending task, with a check whether the message has expired. A transport that
    knows its stage reports it with `follow`, and calls `may_leave` immediately before it offers the message. Each
    message of a feed has its own, which is not that of the task (`is_current`).
    """

    __slots__ = ("_has_expired", "_stage", "is_late")

    def __init__(self, has_expired: Callable[[], bool] | None = None, *, is_current: bool = True) -> None:
        self._has_expired = has_expired
        self._stage: Callable[[], Stage] | None = None
        self.is_late = False
        if is_current:
            _current.set(self)

    @staticmethod
    def current() -> "SendProgress":
        """The progress of the message that this task sends."""
        return _current.get() or SendProgress()

    def follow(self, stage: Callable[[], Stage]) -> None:
        self._stage = stage

    def may_leave(self) -> bool:
        """False if the message has expired and must not be offered."""
        self.is_late = self._has_expired is not None and self._has_expired()
        return not self.is_late

    @property
    def may_have_arrived(self) -> bool:
        """True if the other side may have the whole message, or the transport does not report its stage."""
        return self._stage is None or self._stage() is Stage.FINAL

    @property
    def is_handed_over(self) -> bool:
        """True if the transport reports that the whole message has left and only the reply is missing."""
        return self._stage is not None and self._stage() is Stage.FINAL


_current: ContextVar[SendProgress | None] = ContextVar("passage", default=None)


class FeedMail:
    """One message of a `MailFeed`."""

    __slots__ = ("content", "envelope", "progress")

    def __init__(self, envelope: Envelope, content: Content, progress: SendProgress) -> None:
        self.envelope, self.content, self.progress = envelope, content, progress

    def encode(self, *, eight_bit: bool) -> bytes | Reply:
        """The encoded message, or the reply that ends the attempt because it cannot be encoded."""
        return self.content.encode(eight_bit=eight_bit)


class MailFeed(Protocol):
    """Messages for one connection, one after another. Each one taken is ended or returned, once.

    After an exception out of `send_all` their `SendProgress` decides: one that cannot have arrived was not sent.
    """

    def take(self) -> FeedMail | None:
        """The next message that may start now, or None. It may still be returned."""

    def begin(self, mail: FeedMail) -> bool:
        """Called immediately before a message is offered or, if its envelope was offered early, before its content.

        False: it must not be sent, and the feed has ended it. Called again for a second connection.
        """

    def ended(self, mail: FeedMail, reply: Reply) -> None:
        """Take the reply to a message."""

    def returned(self, mail: FeedMail) -> None:
        """Take back a message that did not begin, for another connection."""


class Transport(Protocol):
    """One transport. Safe to call from many tasks at once; it manages its own connections.

    A transport with a connection limit has `max_connections`: delivery offers it no more messages at once. A transport
    that never waits also has `answer(envelope, content)`, which returns the reply at once: delivery needs no task then.
    A transport that sends several messages over one connection has `send_all(feed)`, which sends until the feed has no
    more.
    """

    name: str

    async def send(self, envelope: Envelope, content: Content) -> Reply:
        """Try once to hand the message over."""

    async def close(self) -> None:
        """Close connections. Messages already passed to `send` are still sent; later ones are not."""


class FeedTransport(Transport, Protocol):
    """A transport that sends several messages over one connection."""

    async def send_all(self, feed: MailFeed) -> None:
        """Send the messages of a feed until it has no more."""


@runtime_checkable
class SentMailbox(Protocol):
    """A transport that can report later whether it sent a message."""

    async def was_sent(self, message_id: str) -> bool | None:
        """True if it was sent, False if not, None if the other side cannot be queried."""
