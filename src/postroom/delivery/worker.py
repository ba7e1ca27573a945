"""The delivery worker: claim, start, attempt, complete.

Each lane has its own loop, so that no lane waits for a slower one. A batch is claimed at once, limited by the size
of its content, and started chunk by chunk: before a chunk is sent its position in the claim is committed, so a crash
leaves few ambiguous deliveries. Recipients, suppression and content are read when a chunk starts. Network I/O
happens between short transactions, never inside one.

Stopping: the worker claims nothing more, releases deliveries it has not started, and finishes those in flight within
the grace time. An attempt that is then cancelled is released if the other side cannot have the message, and recorded
as ambiguous if it can.
"""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from time import monotonic

import structlog

from postroom.db.faults import DATABASE_ERRORS, INTERRUPTIONS
from postroom.db.pool import Pool
from postroom.delivery import store
from postroom.delivery.attempt import AttemptRunner, Routes, Writers
from postroom.delivery.decision import NO_TIME
from postroom.delivery.dispatch import Dispatcher
from postroom.delivery.lane import LaneLoad, LaneWakeups, Precedence, RoomHold, WokenWorker, chunks
from postroom.delivery.lease import Leases, trace_claim
from postroom.delivery.ledger import Ledger
from postroom.delivery.model import Channel, DeliveryId, Lane, Outgoing
from postroom.delivery.rows import read_started
from postroom.delivery.slots import TransportSlots, WorkerSlots
from postroom.delivery.ways_out.watch import WayOutWatch
from postroom.runtime.clock import Clock, DatabaseClock, database_time
from postroom.runtime.loop import Failed, Loop, Signal, unheard
from postroom.senders.accounts_in_use import AccountsInUse
from postroom.transports.webhook.host_backoff import HostBackoff

_log = structlog.get_logger()

LINGER = timedelta(milliseconds=10)
"""The interval of polls under load, while no notification is requested (`LaneLoad.calm`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOptions:
    """Options of a worker; the defaults are those of the settings."""

    batch: int = 500
    chunk: int = 100  # marked as started and completed together: one statement for many mails
    byte_limit: int = 32 * 2**20  # content of a claim in memory, unless one mail is larger
    lease: timedelta = timedelta(seconds=30)
    poll_interval: timedelta = timedelta(milliseconds=500)
    grace: timedelta = timedelta(seconds=25)
    held_lanes: Sequence[str] = ("bulk",)
    lanes: Sequence[Lane] = tuple(Lane)
    until_empty: bool = False


class Worker:
    """The worker of one process. `run` until `stop`; `run_once` for one batch."""

    def __init__(  # noqa: PLR0913 - the dependencies of a worker, each replaceable in tests
        self,
        pool: Pool,
        *,
        writers: Writers,
        routes: Routes,
        senders: AccountsInUse | None = None,
        options: WorkerOptions | None = None,
        waker: LaneWakeups | None = None,
        clock: Clock = database_time,
        signal: Signal = unheard,
        on_started: Callable[[Sequence[Outgoing]], Awaitable[list[Outgoing]]] | None = None,
        failed: Failed | None = None,
        woken: WokenWorker | None = None,
        precedence: Precedence | None = None,
        ways_out: WayOutWatch | None = None,
    ) -> None:
        self._failed, self._precedence = failed, precedence or Precedence()
        self._pool, self._writers, self._senders, self._options = pool, writers, senders, options or WorkerOptions()
        self._waker, self._clock, self._signal, self._on_started = waker or LaneWakeups(), clock, signal, on_started
        self._now, self._hosts, self._stopping = DatabaseClock(clock), HostBackoff(), asyncio.Event()
        self._room = RoomHold(pool, now=self._now)
        self._ledger = Ledger(
            pool,
            worker_id=lambda: self._leases.worker_id,
            clock=clock,
            signal=signal,
            enough=self._options.chunk,
            policy=senders.policy if senders else None,
        )
        self._ledger.on_written, self._ledger.on_unsent = self._written, self._room.give_back
        self._ways_out = ways_out or WayOutWatch(pool, clock=clock)
        self._ledger.on_results = self._ways_out.counts.add
        if senders is not None:
            self._ledger.on_closed = senders.turns.forget
            senders.on_free = self._ring_all
        self._leases = Leases(
            pool,
            lease=self._options.lease,
            clock=clock,
            held=self._ledger.held,
            on_renewed=senders.turns.renew if senders is not None else lambda _claims, _until: None,
            worker_id=0 if woken is None else woken.worker_id,
        )
        self._lanes = {lane: LaneLoad(asleep=woken is not None) for lane in self._options.lanes}
        self._later = {} if woken is None else woken.later(self._options.lanes)
        self._waker.fresh.update(() if woken is None else woken.lanes)
        self._places = WorkerSlots(
            on_silence=self._ledger.report_silence, on_stall=self._on_stall, on_delay=self._on_delay
        )
        self._attempter = AttemptRunner(
            writers, routes, senders=senders, now=self._now, signal=signal, held_lanes=self._options.held_lanes
        )
        self._attempter.is_counted = self._room.may_begin
        self._dispatcher = Dispatcher(
            self._attempter, self._ledger, self._precedence, lanes=self._lanes, places=self._places, hosts=self._hosts
        )

    # ── life ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def stop(self) -> None:
        """Ask the worker to finish started deliveries and return from `run`."""
        self._stopping.set()
        self._ledger.hurry(self._options.grace)
        self._ring_all()
        for state in self._lanes.values():
            state.changed.set()

    async def run(self) -> None:
        """Work until stopped; with `until_empty`, until nothing is due."""
        await self._leases.register(self._stopping)
        try:
            async with asyncio.TaskGroup() as group:
                served = self._run_services(
                    group, self._ledger.loop(), self._leases.loop(), self._places.loop(), self._ways_out.loop()
                )
                loops = [self._lane_loop(lane) for lane in self._options.lanes]
                lanes = [group.create_task(loop.run(self._stopping, self._failed), name=loop.name) for loop in loops]
                await asyncio.wait(lanes)
                await self._finish_in_flight()
                await self._ledger.drain()
                for task in served:
                    task.cancel()
                with suppress(*DATABASE_ERRORS):  # these counts are not worth a failed end
                    await self._ways_out.report()
        finally:
            await self._leases.say_goodbye()
            await self._room.aclose()

    async def run_once(self, lane: Lane) -> int:
        """Claim one batch, attempt it and write the results; returns the number of deliveries."""
        await self._leases.register(self._stopping)
        async with aclosing(self._room), asyncio.TaskGroup() as group:
            [writing] = self._run_services(group, self._ledger.loop())
            claimed = await self._claim(lane)
            await self._work_through(lane, claimed)
            await self._finish_in_flight()
            await self._ledger.drain()
            writing.cancel()
        return len(claimed)

    def _run_services(self, group: asyncio.TaskGroup, *loops: Loop) -> list[asyncio.Task[None]]:
        """Run loops that the lanes depend on. They go on while the lanes finish, and are cancelled after them."""
        never = asyncio.Event()
        return [group.create_task(loop.run(never, self._failed), name=loop.name) for loop in loops]

    # ── the loop of a lane ────────────────────────────────────────────────────────────────────────────────────────

    def _lane_loop(self, lane: Lane) -> Loop:
        return Loop(f"lane-{lane}", partial(self._run_lane, lane), more=lambda _: True, ends=bool)

    async def _run_lane(self, lane: Lane) -> bool:
        """Claim and work through one batch, or rest. True: nothing is due, and the worker should end then."""
        if (wait := self._later.pop(lane, None)) is not None:
            await self._waker.wait(lane, wait)
        was_at_work = self._lanes[lane].is_busy  # then the claim did not cover everything due
        is_notified = self._waker.take_fresh(lane)
        async with self._precedence.turn(lane, is_notified=is_notified):
            if claimed := await self._claim(lane):
                await self._work_through(lane, claimed)
                return False
        if is_notified:  # mail that is due later was accepted: neither acceptance nor a claim wakes followers of facts
            async with self._pool.acquire() as connection:
                await store.wake_followers(connection)
        if self._options.until_empty and not was_at_work and await self._is_empty(lane):
            return True
        await self._rest(lane)
        return False

    async def _claim(self, lane: Lane) -> list[Outgoing]:
        """Claim a batch. If preparing it fails, the batch is released at once."""
        asked_at, with_mail = monotonic(), not await self._room.holds_mail()
        async with self._pool.acquire() as connection:
            claimed = await store.claim_due(
                connection,
                lane=lane,
                batch_limit=self._options.batch,
                worker_id=self._leases.worker_id,
                lease=self._options.lease,
                now=self._clock(),
                use_senders=self._senders is not None,
                webhook_limit=max(self._options.chunk - self._lanes[lane].webhooks, 0),
                byte_limit=self._options.byte_limit,
                with_mail=with_mail,
                busy_accounts=[account_id for account_id, _gate in self._places.stalled(lane)],
            )
            if not claimed:
                return []
            self._ledger.expect(claimed[0].claim_id, len(claimed))
        trace_claim(claimed, asked_at)
        self._signal("claimed")
        try:
            await self._get_ready(lane, claimed, asked_at)
        except Exception:
            await self._release(claimed)
            raise
        return claimed

    async def _get_ready(self, lane: Lane, claimed: list[Outgoing], asked_at: float) -> None:
        """Load the accounts, campaigns and endpoints of a claim; the lease of a paced claim starts with its turns."""
        slots = [outgoing.slot for outgoing in claimed if outgoing.slot is not None]
        if self._senders is not None and slots:
            await self._senders.prepare(slots)
            self._leases.renewed([claimed[0].claim_id], asked_at)
        for channel, writer in self._writers.items():
            if mine := [outgoing for outgoing in claimed if outgoing.channel is channel]:
                await writer.prepare(mine, self._ledger.held())
        await self._wake_up(lane, is_much=len(claimed) >= self._options.chunk)

    async def _work_through(self, lane: Lane, claimed: list[Outgoing]) -> None:
        """Start a claim chunk by chunk, as fast as earlier attempts make room; release the rest after any error."""
        not_started = claimed
        try:
            for chunk in chunks(claimed, self._options.chunk, self._options.byte_limit):
                await self._make_room(lane, sum(outgoing.size for outgoing in chunk))
                await self._precedence.give_way(lane)
                through = len(claimed) - len(not_started) + len(chunk)
                if self._stopping.is_set() or (started := await self._start(lane, chunk, through)) is None:
                    break
                ready = await self._let_some_wait(started)
                not_started = claimed[through:]
                self._dispatcher.start(lane, ready)
        finally:
            if not_started:
                await self._release(not_started)

    async def _make_room(self, lane: Lane, size: int) -> None:
        """Wait until few enough mails and bytes are open, or the worker stops. The claim limited the webhooks."""
        load = self._lanes[lane]
        while self._is_full(lane, size) and not self._stopping.is_set():
            load.changed.clear()  # one event for all: waiting on each task costs more than the attempts
            await load.changed.wait()

    def _is_full(self, lane: Lane, size: int) -> bool:
        """True if the lane is full. Mails at unresponsive servers are not counted: connections limit them."""
        load = self._lanes[lane]
        stuck = [flight.outgoing for _, gate in self._places.stalled(lane) for flight in gate.flights.values()]
        mails = load.mails - len(stuck)
        open_bytes = load.bytes - sum(outgoing.size for outgoing in stuck)
        return mails > self._options.chunk or (open_bytes > 0 and open_bytes + size > self._options.byte_limit)

    async def _let_some_wait(self, chunk: list[Outgoing]) -> list[Outgoing]:
        """Postpone webhooks to hosts that time out, and mail on hold, beyond room limits, or stopped by a person.

        After the start, so that one statement reads all that a chunk needs; released deliveries were not attempted.
        """
        ready: list[Outgoing] = []
        waiting: defaultdict[timedelta, list[DeliveryId]] = defaultdict(list)
        for outgoing in chunk:
            wait = self._wait(outgoing)
            if wait is None:
                ready.append(outgoing)
            else:
                self._attempter.skip_turn(outgoing)
                waiting[wait].append(outgoing.id)
        for wait, delivery_ids in waiting.items():
            await self._ledger.give_back(chunk[0].claim_id, delivery_ids, wait=wait)
        return await self._within_room(ready)

    async def _within_room(self, chunk: list[Outgoing]) -> list[Outgoing]:
        """The deliveries within the rate and the quota of the room; the others are released and stay due."""
        fitting = await self._room.count_fitting(chunk)
        if fitting < len(chunk):
            await self._release(chunk[fitting:])
        return chunk[:fitting]

    def _wait(self, outgoing: Outgoing) -> timedelta | None:
        if outgoing.is_stopped:
            return NO_TIME
        if outgoing.channel is Channel.WEBHOOK:
            return self._hosts.wait(outgoing.url)
        return None if outgoing.held_for is None or self._attempter.has_expired(outgoing) else outgoing.held_for

    async def _start(self, lane: Lane, chunk: list[Outgoing], through: int) -> list[Outgoing] | None:
        """Commit that this chunk is about to be sent, and read its content and its recipients.

        None: the claim was lost, or the database was unavailable.
        """
        if self._leases.has_lapsed(chunk[0].claim_id):
            return None
        asked_at = monotonic()
        try:
            async with self._pool.acquire() as connection:
                rows = await store.mark_started(
                    connection,
                    worker_id=self._leases.worker_id,
                    claim_id=chunk[0].claim_id,
                    started_through=through,
                    lease=self._options.lease,
                    now=self._clock(),
                    delivery_ids=[outgoing.id for outgoing in chunk],
                    with_variables=any(
                        outgoing.template_id is not None or outgoing.campaign_id is not None for outgoing in chunk
                    ),
                )
                others = [row["id"] for row in rows if row["has_others"]]
                several = await store.list_claim_recipients(
                    connection, lane=lane, delivery_ids=others, now=self._clock()
                )
        except INTERRUPTIONS as error:
            _log.warning("start_postponed", error=type(error).__name__)
            return None
        self._signal("started")
        if not rows:
            return None
        self._leases.renewed([chunk[0].claim_id], asked_at)
        first = next(row for row in rows if row["now"] is not None)
        self._now.hear(first["now"])
        self._room.is_limited = first["is_limited"]
        found = {row["id"]: row for row in rows}
        started = [read_started(each, found[each.id], several.get(each.id)) for each in chunk]
        if self._on_started is not None:
            return await self._on_started(started)
        return started

    async def _rest(self, lane: Lane) -> None:
        """Nothing is due: poll under load; otherwise request notifications, look once more, and wait."""
        state = self._lanes[lane]
        if state.webhooks * 2 > self._options.chunk:  # more may be due than may be in flight
            await self._waker.wait(lane, LINGER)
            return
        state.found_nothing()
        if state.may_sleep:
            async with self._pool.acquire() as connection:
                await store.put_to_sleep(connection, worker_id=self._leases.worker_id, lane=lane)
            state.asleep = True
            self._signal("asleep")
        else:
            await self._waker.wait(lane, self._options.poll_interval if state.asleep else LINGER)

    async def _wake_up(self, lane: Lane, *, is_much: bool) -> None:
        """Withdraw the request for notifications if work is no longer scarce."""
        state = self._lanes[lane]
        state.found(is_much=is_much)
        if state.must_wake:
            async with self._pool.acquire() as connection:
                await store.wake_up(connection, worker_id=self._leases.worker_id, lane=lane)
            state.asleep = False

    # ── releasing and ending ──────────────────────────────────────────────────────────────────────────────────────

    async def _release(self, outgoing: list[Outgoing], *, wait: timedelta = NO_TIME) -> None:
        """Release deliveries that were not started."""
        for each in outgoing:
            self._attempter.skip_turn(each)
        await self._ledger.give_back(outgoing[0].claim_id, [each.id for each in outgoing], wait=wait)

    async def _is_empty(self, lane: Lane) -> bool:
        """True if no due delivery can be sent now or soon."""
        if self._senders is None or await self._room.holds_mail() or not await self._senders.has_turns(lane.value):
            return True
        async with self._pool.acquire() as connection:
            due_at = await store.find_schedule(connection, lane=lane)
        return due_at is None or due_at > self._now()

    def _written(self, settled: Iterable[Outgoing]) -> None:
        """Close deliveries whose result is in the ledger or that were released."""
        for outgoing in settled:
            self._lanes[outgoing.lane].closed(outgoing)
            self._room.forget(outgoing.id)

    def _ring_all(self) -> None:
        for lane in self._lanes:
            self._waker.ring(lane)

    def _on_stall(self, lane: Lane, waiting: list[Outgoing]) -> None:
        self._dispatcher.release(lane, waiting)
        self._lanes[lane].changed.set()

    def _on_delay(self, lane: Lane, gate: TransportSlots) -> None:
        self._dispatcher.spread(lane, gate)

    async def _finish_in_flight(self) -> None:
        await self._dispatcher.finish(self._options.grace.total_seconds() if self._stopping.is_set() else None)
