"""Writes what became of attempts, many at a time.

Results gather while the previous batch is being written, and a moment longer, so the batch grows with the load.
Writing is tried again while the database flickers; sending is not. A result whose claim was lost meanwhile changes
nothing, and is counted.
"""

import asyncio
import math
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from functools import partial
from time import monotonic
from typing import TypeVar

import structlog

from postroom.db.faults import FLICKER
from postroom.db.pool import Pool, Session
from postroom.delivery import store
from postroom.delivery.complete import NO_TIME, Result
from postroom.delivery.model import ClaimId, DeliveryId
from postroom.delivery.settle import settle
from postroom.runtime.clock import Clock
from postroom.runtime.metrics import ATTEMPTS, CLAIMS_LOST
from postroom.runtime.signals import Signal
from postroom.senders.model import HealthPolicy

_log = structlog.get_logger()

T = TypeVar("T")

LINGER_S = 0.005
"""A result waits this long for others: nobody waits for it, and one statement for many makes the ledger cheap."""


class Completer:
    """Takes results from any task; `run` writes them until cancelled, `drain` waits until all are written."""

    def __init__(
        self,
        pool: Pool,
        *,
        clock: Clock,
        signal: Signal,
        batch_limit: int = 1000,
        policy: HealthPolicy | None = None,
    ) -> None:
        self._pool, self._clock, self._signal, self._batch_limit = pool, clock, signal, batch_limit
        self._policy = policy or HealthPolicy()
        self.on_closed: Callable[[list[ClaimId]], None] = lambda _closed: None
        self._results: list[Result] = []
        self._open: Counter[ClaimId] = Counter()
        self._arrived = asyncio.Event()
        self._all_written = asyncio.Event()
        self._all_written.set()
        self._give_up_at = math.inf

    def expect(self, claim_id: ClaimId, count: int) -> None:
        """A claim holds this many deliveries; it is closed when each has its result or was given back."""
        self._open[claim_id] += count

    def held(self) -> list[ClaimId]:
        """The claims whose leases are worth keeping: something in them still waits for its result."""
        return list(self._open)

    def add(self, result: Result) -> None:
        self._results.append(result)
        self._all_written.clear()
        self._arrived.set()

    async def give_back(self, claim_id: ClaimId, delivery_ids: Sequence[int], *, wait: timedelta = NO_TIME) -> None:
        """Return deliveries that were never started: it costs them nothing and nobody waits for a lease."""
        await self._insist(
            lambda connection: store.release(
                connection, claim_id=claim_id, delivery_ids=delivery_ids, wait=wait, now=self._clock()
            )
        )
        await self._close({claim_id: len(delivery_ids)})

    def hurry(self, patience: timedelta) -> None:
        """Insist no longer than that: without a database a process must still end, and leases tell what it was at."""
        self._give_up_at = monotonic() + patience.total_seconds()

    async def drain(self) -> None:
        await self._all_written.wait()

    async def run(self) -> None:
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            if len(self._results) < self._batch_limit:
                await asyncio.sleep(LINGER_S)
            while self._results:
                batch, self._results = self._results[: self._batch_limit], self._results[self._batch_limit :]
                await self._write(batch)
            self._all_written.set()

    async def _write(self, batch: list[Result]) -> None:
        newest = _newest(batch)
        results = list(newest.values())
        written = await self._insist(
            lambda connection: settle(connection, results, policy=self._policy, now=self._clock())
        )
        self._signal("completed")
        counted: Counter[tuple[str, str, str]] = Counter()
        for result in batch:
            if result.outgoing.id in written and newest[result.outgoing.id] is result:
                counted[result.outgoing.lane.value, result.transport or "none", result.outcome] += 1
            else:
                CLAIMS_LOST.inc()
                _log.warning("claim_lost", delivery_id=result.outgoing.id, outcome=result.outcome)
        for labels, count in counted.items():
            ATTEMPTS.labels(*labels).inc(count)
        await self._close(Counter(result.outgoing.claim_id for result in batch))

    async def _close(self, settled: dict[ClaimId, int] | Counter[ClaimId]) -> None:
        for claim_id, count in settled.items():
            self._open[claim_id] -= count
        finished = [claim_id for claim_id in settled if self._open[claim_id] <= 0]
        if finished:
            await self._insist(partial(store.close_claims, claim_ids=finished))
            for claim_id in finished:
                del self._open[claim_id]
            self.on_closed(finished)

    async def _insist(self, step: Callable[[Session], Awaitable[T]]) -> T:
        """Do it, and do it again while the database flickers."""
        pause_s = 0.05
        while True:
            try:
                async with self._pool.acquire() as connection:
                    return await step(connection)
            except ValueError:  # the driver cannot encode a value: a bug, which no patience mends
                raise
            except FLICKER as error:
                if monotonic() > self._give_up_at:
                    raise
                _log.warning("completion_postponed", error=type(error).__name__, retry_in_s=pause_s)
                await asyncio.sleep(pause_s)
                pause_s = min(pause_s * 2, 2)


def _newest(batch: Sequence[Result]) -> dict[DeliveryId, Result]:
    """One result per delivery. Who lost a claim and claimed again may bring two; only the last claim can still hold."""
    return {result.outgoing.id: result for result in sorted(batch, key=lambda result: result.outgoing.claim_id)}
