"""One attempt: compose the message, send it through a transport, decide the result for the delivery.

The writer of the delivery's channel makes envelope and content; a table names the transport. Every attempt has a
result, except one cancelled before the other side can have the message: that one is released. A delivery of which no
message can be made fails without an attempt. A bug in a writer defers the delivery; after a bug in a transport the
result is ambiguous. An expired delivery is not sent: the attempt checks at its start, and the transport checks again
when it has a connection.
"""

import asyncio
import random
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from functools import lru_cache, partial
from time import perf_counter
from typing import Protocol, cast

import structlog
from msgspec.structs import replace

from postroom.delivery.decision import (
    COMPOSE_FAILED,
    NO_TIME,
    NOWHERE,
    RENDER_FAILED,
    AttemptPolicy,
    AttemptResult,
    accepted,
    decide,
    expired,
    forgiven,
    suppressed,
    unwritable,
)
from postroom.delivery.model import Channel, ClaimId, Lane, Outgoing
from postroom.delivery.outcome import classify
from postroom.delivery.slots import TransportSlots
from postroom.post.reply import Content, Envelope, Reply, Stage
from postroom.runtime.loop import Signal
from postroom.runtime.metrics import ATTEMPT_SECONDS
from postroom.runtime.tracing import is_tracing
from postroom.senders.accounts_in_use import AccountsInUse
from postroom.senders.health import FORGIVEN, is_about_account, judge
from postroom.transports.base import FeedTransport, SendProgress, Transport

_log = structlog.get_logger()


class Undeliverable(Exception):  # noqa: N818 - a writer's result, not an error
    """Raised by a writer instead of a message: nothing is sent, and `reply` is handled like a server's reply."""

    def __init__(self, reply: Reply) -> None:
        super().__init__(reply.text)
        self.reply = reply


class RenderFailed(ValueError):  # noqa: N818 - as above
    """Raised by a writer: the template of a delivery cannot be rendered with its variables."""


class Writer(Protocol):
    """Composes the deliveries of one channel."""

    async def prepare(self, claim: Sequence[Outgoing], open_claims: Collection[ClaimId], /) -> None:
        """Load, once per claim, everything that `write` needs, and keep it while the claim is open.

        If this raises, the claim is released.
        """

    def write(self, outgoing: Outgoing) -> tuple[Envelope, Content]:
        """Make envelope and content. ValueError: composition can never succeed; `Undeliverable`: see there."""


Writers = Mapping[Channel, Writer]

Routes = Mapping[Channel, Mapping[Lane, Transport]]
"""The transport of each channel and lane, for deliveries without a sender account."""


class AttemptRunner:
    """Makes attempts for one worker."""

    def __init__(
        self,
        writers: Writers,
        routes: Routes,
        *,
        senders: AccountsInUse | None,
        now: Callable[[], datetime],
        signal: Signal,
        held_lanes: Sequence[str],
    ) -> None:
        self._writers, self._routes, self._senders = writers, routes, senders
        self.is_counted: Callable[[int], bool] = lambda _delivery_id: True  # False: not on this day
        self._now, self._signal, self._held_lanes = now, signal, held_lanes

    def attempt_now(self, outgoing: Outgoing) -> AttemptResult | None:
        """The result of a delivery that is not sent, or whose transport never waits; None for all others."""
        result = self._unsendable(outgoing)
        if result is not None:
            self.skip_turn(outgoing)
            return result
        transport = self.way_out(outgoing)
        answer: Callable[[Envelope, Content], Reply] | None = getattr(transport, "answer", None)
        if answer is None or outgoing.slot is not None:
            return None
        written = self.compose(outgoing)
        if isinstance(written, AttemptResult):
            return written
        started = perf_counter()
        try:
            reply = answer(*written)
        except Exception as error:  # noqa: BLE001 - as in `_say`
            reply = reply_to_error(error, transport, outgoing.id)
        return self.conclude(outgoing, written[0], transport, reply, perf_counter() - started)

    async def attempt(self, outgoing: Outgoing, gate: TransportSlots | None) -> AttemptResult | None:
        """One attempt, with a slot of the gate if there is one. None: nothing was sent, release the delivery."""
        if gate is None:
            return await self._in_turn(outgoing, lambda _passage: None)
        try:
            return await self._in_turn(outgoing, partial(gate.begin, outgoing))
        finally:
            gate.end(outgoing)

    def crashed(self, outgoing: Outgoing) -> AttemptResult:
        """The result of an attempt that ended with a bug; the message may have been handed over."""
        return self._not_sent(outgoing, Reply(Stage.FINAL, text="the attempt crashed; it may have been handed over"))

    async def _in_turn(self, outgoing: Outgoing, begin: Callable[[SendProgress], None]) -> AttemptResult | None:
        """Wait for the turn of a mail with a paced account or destination, and try. None: it must not start."""
        if outgoing.slot is None or self._senders is None:
            return await self._send(outgoing, begin)
        try:
            async with self._senders.turn(outgoing.slot) as turn:
                if turn is None:
                    return None

                def begin_turn(passage: SendProgress) -> None:
                    turn.begin()
                    begin(passage)

                return await self._send(outgoing, begin_turn)
        except asyncio.CancelledError:  # stopped while waiting: nothing was sent
            return None

    def skip_turn(self, outgoing: Outgoing) -> None:
        """Give up the turn of a mail that is not sent, so that others of its account need not wait for it."""
        if outgoing.slot is not None and self._senders is not None:
            self._senders.turns.skip(outgoing.slot)

    def begin_turn(self, outgoing: Outgoing) -> bool:
        """Begin the turn of a mail that need not wait. False: its account was stopped, or another day has begun."""
        if not self.is_counted(outgoing.id):
            return False
        if outgoing.slot is None or self._senders is None:
            return True
        return self._senders.turns.begin_now(outgoing.slot)

    def feed_transport(self, outgoing: Outgoing) -> FeedTransport | None:
        """The transport of a mail that can be one of a feed: it waits for no turn and needs no span of its own."""
        slot = outgoing.slot
        if is_tracing() or (slot is not None and not slot.is_free):
            return None
        transport = self.way_out(outgoing)
        return cast("FeedTransport", transport) if hasattr(transport, "send_all") else None

    def _unsendable(self, outgoing: Outgoing) -> AttemptResult | None:
        """The result of a delivery that must not be attempted; None if it may."""
        if self.has_expired(outgoing):
            return expired(outgoing)
        if outgoing.problem is not None:
            reason = COMPOSE_FAILED if outgoing.template_id is None else RENDER_FAILED
            return unwritable(outgoing, outgoing.problem, reason=reason)
        if outgoing.channel is Channel.EMAIL and not outgoing.open_addresses:
            return suppressed(outgoing)
        return None

    def has_expired(self, outgoing: Outgoing) -> bool:
        return outgoing.expires_at is not None and outgoing.expires_at <= self._now()

    def expiry(self, outgoing: Outgoing) -> Callable[[], bool] | None:
        """The check whether a delivery has expired; None, as for most: it never does."""
        return None if outgoing.expires_at is None else partial(self.has_expired, outgoing)

    def way_out(self, outgoing: Outgoing) -> Transport:
        """The transport of its sender account, or of its channel and lane."""
        if outgoing.sender_account_id is not None and self._senders is not None:
            return self._senders.transport(outgoing.sender_account_id, outgoing.lane)
        return self._routes[outgoing.channel][outgoing.lane]

    async def _send(self, outgoing: Outgoing, on_start: Callable[[SendProgress], None]) -> AttemptResult | None:
        """Try once; `on_start` is called immediately before the transport.

        None: the attempt was cancelled before the other side can have had the message, or the mail waited for it until
        a day on which the room has not counted it.
        """
        written = self.compose(outgoing)
        if isinstance(written, AttemptResult):
            return written
        envelope, content = written
        transport = self.way_out(outgoing)
        passage = SendProgress(self.expiry(outgoing))
        if not passage.may_leave():
            return expired(outgoing)
        if not self.is_counted(outgoing.id):
            return None
        on_start(passage)
        started = perf_counter()
        said = await self._say_once(outgoing, transport, envelope, content, passage)
        if said is None or passage.is_late:
            return expired(outgoing) if passage.is_late else None
        return self.conclude(outgoing, envelope, transport, said, perf_counter() - started)

    def compose(self, outgoing: Outgoing) -> tuple[Envelope, Content] | AttemptResult:
        """Envelope and content, or the result of a delivery that cannot be composed; nothing was sent."""
        try:
            return self._writers[outgoing.channel].write(outgoing)
        except ValueError as error:
            reason = RENDER_FAILED if isinstance(error, RenderFailed) else COMPOSE_FAILED
            return unwritable(outgoing, str(error), reason=reason)
        except Undeliverable as error:
            return self._not_sent(outgoing, error.reply)
        except Exception:  # noqa: BLE001 - a bug must not leave a delivery without a result
            _log.exception("compose_crashed", delivery_id=outgoing.id)
            return self._not_sent(outgoing, Reply(Stage.CONNECT, text="it could not be composed; nothing was sent"))

    def _not_sent(self, outgoing: Outgoing, reply: Reply) -> AttemptResult:
        envelope = Envelope(outgoing.id, "", "", outgoing.open_addresses)
        outcome = classify(reply, envelope)
        return decide(outgoing, reply, outcome, self._policy(), elapsed=NO_TIME, transport=NOWHERE)

    def conclude(
        self, outgoing: Outgoing, envelope: Envelope, transport: Transport, reply: Reply, elapsed: float
    ) -> AttemptResult:
        """The result of a reply to a delivery."""
        self._signal("sent")
        name, duration = transport.name, timedelta(seconds=elapsed)
        _durations(name).observe(elapsed)
        result = accepted(outgoing, reply, elapsed=duration, transport=name, message_id=envelope.message_id)
        if result is not None:
            return result
        outcome = classify(reply, envelope)
        result = decide(outgoing, reply, outcome, self._policy(), elapsed=duration, transport=name)
        return replace(self._for_the_account(outgoing, reply, result), message_id=envelope.message_id)

    def _for_the_account(self, outgoing: Outgoing, reply: Reply, result: AttemptResult) -> AttemptResult:
        """If the reply was about the account, requeue the mail and stop the account for this claim."""
        if outgoing.sender_account_id is None or self._senders is None or judge(reply) not in FORGIVEN:
            return result
        result = forgiven(result, about_account=is_about_account(reply))
        if outgoing.slot is not None and not result.blames_mail:
            self._senders.turns.close(outgoing.slot)
        return result

    def _policy(self) -> AttemptPolicy:
        return AttemptPolicy(random.uniform(-1, 1), self._held_lanes)  # noqa: S311 - jitter

    async def _say_once(
        self, outgoing: Outgoing, transport: Transport, envelope: Envelope, content: Content, passage: SendProgress
    ) -> Reply | None:
        """Send, unless the account of an earlier ambiguous attempt reports that it sent the message."""
        doubtful = outgoing.slot.doubtful_account_id if outgoing.slot is not None else None
        if doubtful is None or self._senders is None:
            return await self._say(transport, envelope, content, passage)
        try:
            if await self._senders.was_sent(doubtful, outgoing.lane.value, envelope.message_id):
                return Reply(Stage.FINAL, 250, "2.0.0", "the mailbox holds the message: an earlier attempt sent it")
        except Exception:  # noqa: BLE001 - a bug in the query must not prevent the sending
            _log.exception("question_crashed", delivery_id=envelope.delivery_id)
        changed = self.way_out(outgoing)  # the account may have changed meanwhile
        return await self._say(changed, envelope, content, passage)

    async def _say(
        self, transport: Transport, envelope: Envelope, content: Content, passage: SendProgress
    ) -> Reply | None:
        try:
            return await transport.send(envelope, content)
        except asyncio.CancelledError:
            if not passage.may_have_arrived:
                return None
            return Reply(Stage.FINAL, text="stopped while in flight; the message may have been handed over")
        except Exception as error:  # noqa: BLE001 - a bug in a transport must not stop the worker
            return reply_to_error(error, transport, envelope.delivery_id)


_durations = lru_cache(maxsize=64)(ATTEMPT_SECONDS.labels)  # the label's lookup costs more than the count


def reply_to_error(error: Exception, transport: Transport, delivery_id: int) -> Reply:
    """A ValueError: the content cannot be encoded, and nothing was sent. Any other error is a bug, not a reply."""
    if isinstance(error, ValueError):
        return Reply(Stage.CONTENT, code=554, enhanced="5.6.0", text=f"cannot be encoded: {error}")
    _log.error("transport_crashed", transport=transport.name, delivery_id=delivery_id, exc_info=error)
    return Reply(Stage.FINAL, text="the transport crashed; the message may have been handed over")
