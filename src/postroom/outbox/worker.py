"""The outbox worker: instances divide the pairs among themselves, and each publishes its own.

Once a second an instance updates its heartbeat, reads the live instances and all pairs, and computes the same
assignment as every other instance. It takes over its pairs that are free, and releases those assigned
to another instance between two batches. When it loses its connection it stops at once, because another instance will
publish.
"""

import asyncio
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from time import monotonic

import structlog

from postroom.db.faults import INTERRUPTIONS
from postroom.db.pool import session_options
from postroom.db.retention import Retention
from postroom.db.room import Room
from postroom.events.service import adopt_restored_events
from postroom.outbox import metrics, service, store
from postroom.outbox.leadership import Leadership
from postroom.outbox.model import Subscription
from postroom.outbox.publisher import Publishers
from postroom.outbox.relay import Relay, RelayOptions
from postroom.runtime.loop import Loop, Signal, unheard, wait_for_any

_log = structlog.get_logger()

RETENTION = (Retention(store.delete_old_lag, timedelta(days=1)),)


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxOptions:
    """Options of an instance."""

    relay: RelayOptions = field(default_factory=RelayOptions)
    tick: timedelta = timedelta(seconds=1)  # heartbeat, and the time until a free pair gets a leader
    silence: timedelta = timedelta(seconds=15)  # a leader without a heartbeat for this long is considered dead
    observe: timedelta = timedelta(seconds=15)  # interval of the metrics
    grace: timedelta = timedelta(seconds=10)  # time to finish current batches on shutdown


@dataclass(slots=True)
class _Leader:
    relay: Relay
    task: asyncio.Task[None]


class Outbox:
    """One instance. Any number may run, on any host."""

    def __init__(
        self,
        room: Room,
        publishers: Publishers,
        options: OutboxOptions | None = None,
        *,
        signal: Signal = unheard,
    ) -> None:
        self._room, self._publishers, self._options = room, publishers, options or OutboxOptions()
        self._signal = signal
        self._leads: dict[Subscription, _Leader] = {}
        self._resting: dict[Subscription, float] = {}  # end of the back-off of a pair whose relay crashed
        self._called = asyncio.Event()
        self._observed_at = float("-inf")

    @property
    def led(self) -> frozenset[Subscription]:
        return frozenset(self._leads)

    def loop(self, stop: asyncio.Event) -> Loop:
        return Loop("outbox", partial(self._lead_until_lost, stop), rest=timedelta(milliseconds=100))

    async def _lead_until_lost(self, stop: asyncio.Event) -> None:
        """Publish until stopped, or until the connection that holds the locks is lost; without pairs it opens none."""
        room, names, tick_s = self._room, self._publishers.names, self._options.tick.total_seconds()
        if not await store.list_pairs(room.pool):
            await wait_for_any(stop, timeout_s=tick_s)
            return
        # Closed as soon as the server is gone: on a new primary another instance gets the locks at once.
        connector = room.listener.connector.beside(session_options(room.name))
        async with Leadership(connector, room.name, publishers=names, on_wake=self._wake) as seat:
            await adopt_restored_events(room.pool)  # after a restore from a dump, events would never settle otherwise
            try:
                while not stop.is_set() and not seat.lost.is_set():
                    async with asyncio.timeout(self._options.silence.total_seconds() / 2):
                        await self._tick(seat)
                    self._called.clear()
                    await wait_for_any(stop, seat.lost, self._called, timeout_s=tick_s)
                if not seat.lost.is_set():
                    await self._leave(seat)
            finally:
                await self._drop()
        if not stop.is_set():
            _log.warning("outbox_connection_lost")

    async def _tick(self, seat: Leadership) -> None:
        led = await seat.beat(self._options.silence)
        duties = await seat.duties(self._options.silence)
        for pair, lead in list(self._leads.items()):
            if lead.task.done():
                await self._finish(seat, pair, lead)
            elif pair not in duties or pair not in led:
                lead.relay.stop()
        for pair in sorted(filter(self._is_rested, duties - self._leads.keys())):
            is_taken, follower_id = await seat.take(pair)
            if is_taken:
                self._lead(seat.instance, pair, follower_id)
        await self._observe()
        self._signal("ticked")

    def _lead(self, instance: str, pair: Subscription, follower_id: int | None) -> None:
        relay = Relay(
            self._room.pool,
            pair,
            self._publishers[pair.publisher],
            instance=instance,
            options=self._options.relay,
            signal=self._signal,
        )
        task = asyncio.create_task(relay.run(follower_id), name=f"relay {pair}")
        task.add_done_callback(lambda _task: self._called.set())
        self._leads[pair] = _Leader(relay, task)
        _log.info("outbox_lead_taken", pair=str(pair), instance=instance)
        self._signal("lead_taken")

    async def _finish(self, seat: Leadership, pair: Subscription, lead: _Leader) -> None:
        del self._leads[pair]
        error = asyncio.CancelledError() if lead.task.cancelled() else lead.task.exception()
        if error is not None:
            await self._bury(lead.relay, error)
        await seat.release(pair)
        _log.info("outbox_lead_released", pair=str(pair), instance=seat.instance)

    async def _bury(self, relay: Relay, error: BaseException) -> None:
        """Count the crash of a relay as a failure, and back off."""
        detail = str(error)[:200]
        _log.error("relay_failed", pair=str(relay.pair), error=type(error).__name__, detail=detail)
        try:
            async with asyncio.timeout(2):  # waiting for a busy pool would delay the heartbeat and lose the locks
                await relay.fail(f"{type(error).__name__}: {detail}".rstrip(": "))
        except Exception as trouble:  # noqa: BLE001 - no error here may end the other relays
            _log.error("relay_failure_not_recorded", pair=str(relay.pair), error=type(trouble).__name__)
        self._resting[relay.pair] = monotonic() + relay.pause_after_failure().total_seconds()

    def _is_rested(self, pair: Subscription) -> bool:
        return self._resting.get(pair, 0.0) <= monotonic()

    async def _leave(self, seat: Leadership) -> None:
        """Finish current batches and release all pairs."""
        for lead in self._leads.values():
            lead.relay.stop()
        if self._leads:
            tasks = [lead.task for lead in self._leads.values()]
            await asyncio.wait(tasks, timeout=self._options.grace.total_seconds())
        for pair, lead in list(self._leads.items()):
            if lead.task.done():
                await self._finish(seat, pair, lead)

    async def _drop(self) -> None:
        """Cancel everything at once: the locks are lost."""
        tasks = [lead.task for lead in self._leads.values()]
        self._leads.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _observe(self) -> None:
        if monotonic() - self._observed_at < self._options.observe.total_seconds():
            return
        self._observed_at = monotonic()
        try:
            async with asyncio.timeout(2):  # waiting for a busy pool would delay the heartbeat and lose the locks
                lines = await service.list_progress(self._room.pool)
                await service.record_lag(self._room.pool, lines)
        except INTERRUPTIONS as error:
            _log.info("outbox_metrics_not_updated", error=type(error).__name__)
            return
        stall = next((line.stall for line in lines if line.stall is not None), None)
        metrics.show_progress(lines, self._leads, stall)

    def _wake(self, *, by_hand: bool) -> None:
        """Notify the relays of new events; after a change by an operator, also end every back-off."""
        if by_hand:
            self._resting.clear()
            self._called.set()
        for lead in self._leads.values():
            lead.relay.ring(by_hand=by_hand)
