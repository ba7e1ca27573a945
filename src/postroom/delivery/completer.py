"""Writes what became of attempts, many at a time.

Results gather while the previous batch is being written, so the batch grows with the load and a lone result waits for
nobody. Writing is tried again while the database flickers; sending is not. A result whose claim was lost meanwhile
changes nothing, and is counted.
"""

import asyncio
from collections import Counter
from datetime import datetime

import asyncpg
import structlog

from postroom.db.pool import Pool
from postroom.delivery import store
from postroom.delivery.complete import Result, complete_columns
from postroom.delivery.model import ClaimId
from postroom.runtime.clock import Clock
from postroom.runtime.metrics import ATTEMPTS, CLAIMS_LOST
from postroom.runtime.signals import Signal

_log = structlog.get_logger()

FLICKER = (OSError, asyncpg.PostgresConnectionError, asyncpg.InterfaceError, asyncpg.TransactionRollbackError)
"""Errors that pass: a dropped connection, a restart, a deadlock with the recovery of a lost claim."""


class Completer:
    """Takes results from any task; `run` writes them until cancelled, `drain` waits until all are written."""

    def __init__(self, pool: Pool, *, clock: Clock, signal: Signal, batch_limit: int = 1000) -> None:
        self._pool, self._clock, self._signal, self._batch_limit = pool, clock, signal, batch_limit
        self._results: list[Result] = []
        self._open: Counter[ClaimId] = Counter()
        self._arrived = asyncio.Event()
        self._all_written = asyncio.Event()
        self._all_written.set()

    def expect(self, claim_id: ClaimId, count: int) -> None:
        """A claim holds this many deliveries; it is closed when each has its result or was given back."""
        self._open[claim_id] += count

    def add(self, result: Result) -> None:
        self._results.append(result)
        self._all_written.clear()
        self._arrived.set()

    async def give_back(self, claim_id: ClaimId, delivery_ids: list[int]) -> None:
        """Return deliveries that were never started: it costs them nothing and nobody waits for a lease."""
        async with self._pool.acquire() as connection:
            await store.release(connection, claim_id=claim_id, delivery_ids=delivery_ids, now=self._clock())
        await self._close({claim_id: len(delivery_ids)})

    async def drain(self) -> None:
        await self._all_written.wait()

    async def run(self) -> None:
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            while self._results:
                batch, self._results = self._results[: self._batch_limit], self._results[self._batch_limit :]
                await self._write(batch)
            self._all_written.set()

    async def _write(self, batch: list[Result]) -> None:
        pause_s = 0.05
        while True:
            try:
                await self._write_once(batch, self._clock())
            except FLICKER as error:
                _log.warning("completion_postponed", count=len(batch), error=type(error).__name__, retry_in_s=pause_s)
                await asyncio.sleep(pause_s)
                pause_s = min(pause_s * 2, 2)
            else:
                return

    async def _write_once(self, batch: list[Result], now: datetime | None) -> None:
        async with self._pool.acquire() as connection:
            written = await store.complete(connection, now=now, **complete_columns(batch))
        self._signal("completed")
        for result in batch:
            if result.outgoing.id in written:
                ATTEMPTS.labels(result.outgoing.lane, result.transport or "none", result.outcome).inc()
            else:
                CLAIMS_LOST.inc()
                _log.warning("claim_lost", delivery_id=result.outgoing.id, outcome=result.outcome)
        await self._close(Counter(result.outgoing.claim_id for result in batch))

    async def _close(self, settled: dict[ClaimId, int] | Counter[ClaimId]) -> None:
        for claim_id, count in settled.items():
            self._open[claim_id] -= count
        finished = [claim_id for claim_id in settled if self._open[claim_id] <= 0]
        if finished:
            async with self._pool.acquire() as connection:
                await store.close_claims(connection, claim_ids=finished)
            for claim_id in finished:
                del self._open[claim_id]
