"""The delivery worker: claim, start, attempt, complete.

Each lane has a loop of its own, so that nothing waits behind a slower lane. A batch is claimed at once and started
chunk by chunk: before a chunk goes to the wire its place in the claim is committed, which is how a crash leaves behind
few deliveries whose fate is unknown. Network I/O happens between short transactions, never inside one.

Stopping: nothing more is claimed, what was not started is given back, what is in flight is finished within the grace
time, and what still hangs then is recorded as unknown. Nobody has to wait for a lease.
"""

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from time import monotonic

import structlog

from postroom.db.faults import FLICKER
from postroom.db.pool import Pool
from postroom.db.queries import Connection
from postroom.delivery import store
from postroom.delivery.attempt import Attempter, Compose, Route, unsendable
from postroom.delivery.complete import NO_TIME, Result
from postroom.delivery.completer import Completer
from postroom.delivery.lane import LaneLoad
from postroom.delivery.model import ClaimId, Lane, Outgoing
from postroom.delivery.rows import read_outgoing
from postroom.delivery.silent_hosts import SilentHosts
from postroom.delivery.wake import Waker
from postroom.runtime.clock import Clock, database_time
from postroom.runtime.signals import Signal, unheard
from postroom.runtime.tracing import span
from postroom.senders.desk import SenderDesk
from postroom.senders.model import Slot

_log = structlog.get_logger()

Prepare = Callable[[Sequence[Outgoing]], Awaitable[None]]
"""Fetches, once per claim, what composing and routing these will need; both are too hot to ask the database."""

LINGER = timedelta(milliseconds=20)
LINGERS = 10
"""After work, look again every 20 ms for a while before asking for notifications: work comes in bursts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOptions:
    """How a worker behaves; the defaults are those of the settings."""

    batch: int = 500
    chunk: int = 100
    lease: timedelta = timedelta(seconds=30)
    poll_interval: timedelta = timedelta(milliseconds=500)
    grace: timedelta = timedelta(seconds=25)
    held_lanes: Sequence[str] = ("bulk",)
    lanes: Sequence[Lane] = tuple(Lane)
    until_empty: bool = False


class Worker:
    """One process's share of the work. `run` until `stop`; `run_once` for one batch."""

    def __init__(  # noqa: PLR0913 - the seams a worker stands on, each replaceable in tests
        self,
        pool: Pool,
        *,
        compose: Compose,
        route: Route,
        prepare: Prepare | None = None,
        senders: SenderDesk | None = None,
        options: WorkerOptions | None = None,
        waker: Waker | None = None,
        clock: Clock = database_time,
        signal: Signal = unheard,
    ) -> None:
        self._pool, self._prepare, self._senders = pool, prepare, senders
        self._options = options or WorkerOptions()
        self._waker = waker or Waker()
        self._clock, self._signal = clock, signal
        self._attempter = Attempter(compose, route, senders=senders, signal=signal, held_lanes=self._options.held_lanes)
        self._completer = Completer(pool, clock=clock, signal=signal, policy=senders.policy if senders else None)
        self._completer.on_written = self._written
        if senders is not None:
            self._completer.on_closed = senders.turns.forget
            senders.on_free = self._ring_all
        self._lanes = {lane: LaneLoad() for lane in self._options.lanes}
        self._silent = SilentHosts()
        self._lapsed: set[ClaimId] = set()  # leases that ran out: their results are written, nothing more is started
        self._stopping = asyncio.Event()
        self._worker_id: int | None = None

    # ── life ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def stop(self) -> None:
        """Ask the worker to finish what it has begun and return from `run`."""
        self._stopping.set()
        self._completer.hurry(self._options.grace)
        self._ring_all()
        for state in self._lanes.values():
            state.changed.set()

    async def run(self) -> None:
        """Work until stopped; with `until_empty`, until nothing is due."""
        await self._register()
        try:
            async with asyncio.TaskGroup() as group:  # whichever loop fails ends them all: none is missed silently
                completing = group.create_task(self._completer.run(), name="completer")
                renewing = group.create_task(self._keep_leases(), name="leases")
                lanes = [group.create_task(self._run_lane(lane), name=f"lane-{lane}") for lane in self._options.lanes]
                await asyncio.wait(lanes)
                await self._finish_in_flight()
                await self._completer.drain()
                completing.cancel()
                renewing.cancel()
        finally:
            await self._say_goodbye()

    async def run_once(self, lane: Lane) -> int:
        """Claim one batch, attempt it and write the results; returns how many deliveries it was."""
        await self._register()
        async with asyncio.TaskGroup() as group:
            completing = group.create_task(self._completer.run())
            claimed = await self._claim(lane)
            await self._work_through(lane, claimed)
            await self._finish_in_flight()
            await self._completer.drain()
            completing.cancel()
        return len(claimed)

    # ── the loop of a lane ────────────────────────────────────────────────────────────────────────────────────────

    async def _run_lane(self, lane: Lane) -> None:
        while not self._stopping.is_set():
            was_at_work = self._lanes[lane].is_busy  # then the claim was not for all that is due
            try:
                claimed = await self._claim(lane)
                if claimed:
                    await self._work_through(lane, claimed)
                elif self._options.until_empty and not was_at_work and await self._is_empty(lane):
                    return
                else:
                    await self._rest(lane)
            except FLICKER as error:
                _log.warning("lane_interrupted", lane=lane, error=type(error).__name__)
                await self._waker.wait(lane, self._options.poll_interval)

    async def _claim(self, lane: Lane) -> list[Outgoing]:
        asked_at = monotonic()
        async with self._pool.acquire() as connection:
            rows = await store.claim_due(
                connection,
                lane=lane,
                batch_limit=self._options.batch,
                worker_id=self._worker_id or 0,
                lease=self._options.lease,
                now=self._clock(),
                use_senders=self._senders is not None,
                webhook_limit=max(self._options.chunk - self._lanes[lane].webhooks, 0),
            )
            if not rows:
                return []
            claim_id = rows[0]["claim_id"]
            recipients = await store.list_claim_recipients(connection, claim_id=claim_id, now=self._clock())
            await self._wake_up(lane, connection)
        self._completer.expect(claim_id, len(rows))
        self._signal("claimed")
        claimed = [read_outgoing(row, recipients.get(row["id"], ())) for row in rows]
        await self._get_ready(claimed, asked_at)
        return claimed

    async def _get_ready(self, claimed: list[Outgoing], asked_at: float) -> None:
        """Fetch what these need beyond themselves; if that fails, they go back before anybody waits for them."""
        slots = [outgoing.slot for outgoing in claimed if outgoing.slot is not None]
        try:
            if self._senders is not None and slots:
                await self._senders.prepare(slots)
                self._renewed([claimed[0].claim_id], asked_at)
            if self._prepare is not None:
                await self._prepare(claimed)
        except Exception:
            await self._give_back(claimed)
            raise

    async def _work_through(self, lane: Lane, claimed: list[Outgoing]) -> None:
        """Start a claim chunk by chunk, as fast as earlier attempts make room."""
        through, not_started = 0, claimed
        for chunk in _chunks(claimed, self._options.chunk):
            await self._make_room(lane)
            if self._stopping.is_set():
                break
            through += len(chunk)
            ready = await self._let_some_wait(chunk)
            not_started = [*ready, *claimed[through:]]
            if ready and not await self._start(ready, through):
                break
            not_started = claimed[through:]
            for outgoing in ready:
                self._lanes[lane].opened(outgoing, asyncio.create_task(self._attempt(outgoing)))
        if not_started:
            await self._give_back(not_started)

    async def _let_some_wait(self, chunk: list[Outgoing]) -> list[Outgoing]:
        """Give back, for later, webhooks to silent hosts and bulk mail to addresses on hold; the rest may start."""
        ready, waiting = self._silent.sift(chunk)
        for wait, delivery_ids in waiting.items():
            await self._completer.give_back(chunk[0].claim_id, delivery_ids, wait=wait)
        for outgoing in ready:
            if outgoing.held_for is not None and not outgoing.is_expired:
                await self._give_back([outgoing], wait=outgoing.held_for)
        return [outgoing for outgoing in ready if outgoing.held_for is None or outgoing.is_expired]

    async def _make_room(self, lane: Lane) -> None:
        """Wait until few enough mails are open, or the worker is to stop. Webhooks were limited by the claim."""
        load = self._lanes[lane]
        while load.mails > self._options.chunk and not self._stopping.is_set():
            load.changed.clear()  # one event for all: waiting on each task costs more than the attempts
            await load.changed.wait()

    async def _start(self, chunk: list[Outgoing], through: int) -> bool:
        """Commit that this chunk is about to go to the wire. False: the claim was lost, or nobody knows."""
        if chunk[0].claim_id in self._lapsed:
            return False
        asked_at = monotonic()
        try:
            async with self._pool.acquire() as connection:
                held = await store.mark_started(
                    connection,
                    claim_id=chunk[0].claim_id,
                    started_through=through,
                    lease=self._options.lease,
                    now=self._clock(),
                )
        except FLICKER as error:
            _log.warning("start_postponed", error=type(error).__name__)
            return False
        self._signal("started")
        if held:
            self._renewed([chunk[0].claim_id], asked_at)
        return held

    async def _rest(self, lane: Lane) -> None:
        """Nothing is due: look again soon, then ask to be notified, look once more, and wait."""
        state = self._lanes[lane]
        has_many_webhooks = state.webhooks * 2 > self._options.chunk  # more may be due than may be in flight
        state.empty_looks += not has_many_webhooks
        if has_many_webhooks or state.empty_looks <= LINGERS:
            await self._waker.wait(lane, LINGER)
        elif not state.asleep:
            async with self._pool.acquire() as connection:
                await store.put_to_sleep(connection, worker_id=self._worker_id or 0, lane=lane)
            state.asleep = True
            self._signal("asleep")
        else:
            await self._waker.wait(lane, self._options.poll_interval)

    async def _wake_up(self, lane: Lane, connection: Connection) -> None:
        state = self._lanes[lane]
        state.empty_looks = 0
        if state.asleep:
            await store.wake_up(connection, worker_id=self._worker_id or 0, lane=lane)
            state.asleep = False

    # ── an attempt ────────────────────────────────────────────────────────────────────────────────────────────────

    async def _attempt(self, outgoing: Outgoing) -> None:
        """One delivery, from claimed to a result."""
        with span("attempt", traceparent=outgoing.traceparent, delivery_id=outgoing.id, attempt=outgoing.attempt_no):
            result = unsendable(outgoing)
            if outgoing.slot is not None and self._senders is not None:
                await self._attempt_in_turn(outgoing, outgoing.slot, self._senders, result)
            else:
                result = result or await self._attempter.send(outgoing)
                self._silent.ended(outgoing, result.reply)
                self._completer.add(result)

    async def _attempt_in_turn(
        self, outgoing: Outgoing, slot: Slot, senders: SenderDesk, result: Result | None
    ) -> None:
        """One mail that has to wait for its turn. Without one it goes back, as if it had never been claimed."""
        if result is not None:
            senders.turns.skip(slot)
            self._completer.add(result)
            return
        try:
            async with senders.turn(slot) as turn:
                if turn is not None:
                    self._completer.add(await self._attempter.send(outgoing, on_start=turn.begin))
                    return
        except asyncio.CancelledError:  # stopped while waiting: nothing was sent
            _log.info("turn_cancelled", delivery_id=outgoing.id)
        await self._completer.give_back(outgoing.claim_id, [outgoing.id])
        self._written([outgoing])

    # ── keeping and giving back ───────────────────────────────────────────────────────────────────────────────────

    async def _register(self) -> None:
        """Get an id for this worker's claims; a database that does not answer is asked again."""
        while self._worker_id is None and not self._stopping.is_set():
            try:
                async with self._pool.acquire() as connection:
                    self._worker_id = await store.register_worker(
                        connection, pid=os.getpid(), host=socket.gethostname()
                    )
            except FLICKER as error:
                _log.warning("registration_postponed", error=type(error).__name__)
                await asyncio.sleep(self._options.poll_interval.total_seconds())

    async def _keep_leases(self) -> None:
        while True:
            await asyncio.sleep(self._options.lease.total_seconds() / 3)
            asked_at = monotonic()
            try:
                async with self._pool.acquire() as connection:
                    renewed = await store.renew_claims(
                        connection,
                        worker_id=self._worker_id or 0,
                        claim_ids=(held := self._completer.held()),
                        lease=self._options.lease,
                        now=self._clock(),
                    )
                self._lapsed = {each for each in held if each in self._lapsed or not renewed.get(each)}
                self._renewed(set(held) - self._lapsed, asked_at)
            except FLICKER as error:
                _log.warning("renewal_postponed", error=type(error).__name__)

    def _renewed(self, claim_ids: Iterable[ClaimId], asked_at: float) -> None:
        if self._senders is not None:
            self._senders.turns.renew(claim_ids, asked_at + self._options.lease.total_seconds())

    async def _give_back(self, outgoing: list[Outgoing], *, wait: timedelta = NO_TIME) -> None:
        for each in outgoing:
            if each.slot is not None and self._senders is not None:
                self._senders.turns.skip(each.slot)
        await self._completer.give_back(outgoing[0].claim_id, [each.id for each in outgoing], wait=wait)

    async def _is_empty(self, lane: Lane) -> bool:
        """True if nothing is due for which there is, or will soon be, a way."""
        if self._senders is None or not await self._senders.has_turns(lane.value):
            return True
        async with self._pool.acquire() as connection:
            due_at = await store.find_schedule(connection, lane=lane)
        return due_at is None or due_at > (self._clock() or datetime.now(UTC))

    def _written(self, settled: Iterable[Outgoing]) -> None:
        """These have their result in the ledger, or were released."""
        for outgoing in settled:
            self._lanes[outgoing.lane].closed(outgoing)

    def _ring_all(self) -> None:
        for lane in self._lanes:
            self._waker.ring(lane)

    async def _finish_in_flight(self) -> None:
        tasks = {task for state in self._lanes.values() for task in state.tasks}
        if not tasks:
            return
        timeout = self._options.grace.total_seconds() if self._stopping.is_set() else None
        _done, hanging = await asyncio.wait(tasks, timeout=timeout)
        for task in hanging:
            task.cancel()
        if hanging:
            await asyncio.wait(hanging)

    async def _say_goodbye(self) -> None:
        with suppress(*FLICKER):
            async with self._pool.acquire() as connection:
                await store.forget_workers(
                    connection, worker_id=self._worker_id or 0, silence=timedelta(minutes=5), now=self._clock()
                )


def _chunks(claimed: list[Outgoing], size: int) -> Iterator[list[Outgoing]]:
    for start in range(0, len(claimed), size):
        yield claimed[start : start + size]


__all__ = ["ClaimId", "Compose", "Prepare", "Route", "Worker", "WorkerOptions"]
