"""The mails that one task sends over one connection after another: a `MailFeed` of the mails that wait for a transport.

A mail that is taken while another one is in flight has not begun: its turn, its slot and its time count from the reply
to the mail before it. Until then it can expire, be returned to the queue and be released.
"""

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Protocol

from postroom.delivery.attempt import AttemptRunner, reply_to_error
from postroom.delivery.decision import AttemptResult, expired
from postroom.delivery.model import Lane, Outgoing
from postroom.delivery.slots import TransportSlots
from postroom.post.reply import Content, Envelope, Reply, Stage
from postroom.transports.base import FeedMail, FeedTransport, SendProgress

STOPPED = Reply(Stage.FINAL, text="stopped while in flight; the message may have been handed over")


class OutgoingFeedMail(FeedMail):
    """A mail in a feed."""

    __slots__ = ("outgoing", "started", "transport")

    def __init__(
        self,
        outgoing: Outgoing,
        transport: FeedTransport,
        written: tuple[Envelope, Content],
        has_expired: Callable[[], bool] | None,
    ) -> None:
        self.envelope, self.content = written  # as the base class does, whose call would take half of the time
        self.progress = SendProgress(has_expired, is_current=False)
        self.outgoing, self.transport = outgoing, transport
        self.started: float | None = None

    def encode(self, *, eight_bit: bool) -> bytes | Reply:
        try:
            return self.content.encode(eight_bit=eight_bit)
        except Exception as error:  # noqa: BLE001 - a bug in one mail must not end another on the same connection
            return reply_to_error(error, self.transport, self.outgoing.id)


class FeedDispatcher(Protocol):
    """Takes the mails of a feed back, with their results."""

    def finished(self, gate: TransportSlots, outgoing: Outgoing, result: AttemptResult) -> None: ...

    def crashed(self, outgoing: Outgoing, error: Exception) -> None: ...

    def queue_again(self, outgoing: Outgoing) -> None: ...

    def release(self, lane: Lane, waiting: Sequence[Outgoing]) -> None: ...


class TransportFeed:
    """The mails that wait for one transport."""

    def __init__(
        self,
        attempter: AttemptRunner,
        transport: FeedTransport,
        gate: TransportSlots,
        owner: FeedDispatcher,
        holds_back: Callable[[], bool],
    ) -> None:
        self._attempter, self._transport, self._gate, self._owner = attempter, transport, gate, owner
        self._holds_back = holds_back
        self._open: list[OutgoingFeedMail] = []

    def take(self) -> OutgoingFeedMail | None:
        """The next mail that can start without waiting and leaves through the same transport."""
        if self._holds_back():
            return None
        while (outgoing := self._gate.next(self._may_take)) is not None:
            try:
                written = self._attempter.compose(outgoing)
            except Exception as error:  # noqa: BLE001 - a bug must not leave a delivery without a result
                self._owner.crashed(outgoing, error)
                continue
            if not isinstance(written, tuple):
                self._attempter.skip_turn(outgoing)
                self._owner.finished(self._gate, outgoing, written)
                continue
            mail = OutgoingFeedMail(outgoing, self._transport, written, self._attempter.expiry(outgoing))
            self._open.append(mail)
            return mail
        return None

    def begin(self, mail: FeedMail) -> bool:
        """Begin the turn of a mail, unless it has expired or its account was stopped meanwhile."""
        assert isinstance(mail, OutgoingFeedMail)
        outgoing = mail.outgoing
        if not mail.progress.may_leave():
            self._end(mail)
            self._owner.finished(self._gate, outgoing, expired(outgoing))
            return False
        if mail.started is not None:
            return True
        if not self._attempter.begin_turn(outgoing):
            self._end(mail)
            self._owner.release(outgoing.lane, [outgoing])
            return False
        self._gate.begin(outgoing, mail.progress)
        mail.started = perf_counter()
        return True

    def ended(self, mail: FeedMail, reply: Reply) -> None:
        """Decide the result of a mail."""
        assert isinstance(mail, OutgoingFeedMail)
        self._conclude(mail, reply)

    def returned(self, mail: FeedMail) -> None:
        """Queue a mail again that did not begin."""
        assert isinstance(mail, OutgoingFeedMail)
        self._open.remove(mail)
        self._owner.queue_again(mail.outgoing)

    def stop(self, error: Exception | None) -> list[Outgoing]:
        """Decide the results of mails in flight after a cancellation or a bug. Returns those that were not sent."""
        unsent = []
        for mail in list(self._open):
            if mail.started is None or (error is None and not mail.progress.may_have_arrived):
                self._end(mail)
                unsent.append(mail.outgoing)
            else:
                reply = STOPPED if error is None else reply_to_error(error, self._transport, mail.outgoing.id)
                self._conclude(mail, reply)
        return unsent

    def _may_take(self, outgoing: Outgoing) -> bool:
        return self._attempter.feed_transport(outgoing) is self._transport

    def _conclude(self, mail: OutgoingFeedMail, reply: Reply) -> None:
        outgoing, started = mail.outgoing, mail.started
        self._end(mail)
        try:
            elapsed = perf_counter() - (started or perf_counter())
            result = self._attempter.conclude(outgoing, mail.envelope, self._transport, reply, elapsed)
            self._owner.finished(self._gate, outgoing, result)
        except Exception as error:  # noqa: BLE001 - as above
            self._owner.crashed(outgoing, error)

    def _end(self, mail: OutgoingFeedMail) -> None:
        self._open.remove(mail)
        if mail.started is None:
            self._attempter.skip_turn(mail.outgoing)
        else:
            self._gate.end(mail.outgoing)
