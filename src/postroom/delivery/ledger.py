"""Writes the results of attempts, many at a time.

Results gather while the previous batch is being written, and a moment longer, so the batch grows with the load. The
completer retries after every database error, however long the outage lasts: a known result is never dropped. If the
database rejects the data itself, the completer halves the batch until it has found the result at fault, writes that one
without its texts, and all others as they are. A result that cannot be written even then keeps its claim: its delivery
is recovered as ambiguous after this process has ended, not before. A result whose claim was lost changes nothing, and
is counted.
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

from postroom.db.faults import DATABASE_ERRORS, is_about_data
from postroom.db.pool import Pool, Session
from postroom.delivery import store
from postroom.delivery.decision import NO_TIME, Result
from postroom.delivery.model import ClaimId, DeliveryId, Outgoing
from postroom.delivery.settle import settle, without_texts
from postroom.post.reply import Reply, Stage
from postroom.runtime.clock import Clock
from postroom.runtime.metrics import ATTEMPTS, CLAIMS_LOST
from postroom.runtime.signals import Signal
from postroom.senders.health import Outcome
from postroom.senders.model import HealthPolicy
from postroom.senders.record import record_outcomes

_log = structlog.get_logger()

T = TypeVar("T")

LINGER_S = 0.005
"""A result waits this long for others: nobody waits for it, and one statement for many makes the ledger cheap."""


class Ledger:
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
        self.on_written: Callable[[list[Outgoing]], None] = lambda _written: None
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

    async def report_silence(self, silent: list[Outgoing]) -> None:
        """Tell the health of accounts about servers that have a message and do not answer; once, not insisting."""
        reply = Reply(Stage.FINAL, text="the server has the message and does not answer")
        outcomes = [Outcome(each.slot, reply, None) for each in silent if each.slot is not None]
        try:
            async with self._pool.acquire() as connection, connection.transaction():
                await record_outcomes(connection, outcomes, policy=self._policy, now=self._clock())
        except DATABASE_ERRORS as error:
            _log.warning("silence_unreported", error=type(error).__name__)

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
        written, rejected = await self._settle(list(newest.values()))
        self._signal("completed")
        counted: Counter[tuple[str, str, str]] = Counter()
        for result in batch:
            if result.outgoing.id in written and newest[result.outgoing.id] is result:
                counted[result.outgoing.lane.value, result.transport or "none", result.outcome] += 1
            elif result.outgoing.id not in rejected:
                CLAIMS_LOST.inc()
                _log.warning("claim_lost", delivery_id=result.outgoing.id, outcome=result.outcome)
        for labels, count in counted.items():
            ATTEMPTS.labels(*labels).inc(count)
        over = [result.outgoing for result in batch if result.outgoing.id not in rejected]
        self.on_written(over)
        await self._close(Counter(outgoing.claim_id for outgoing in over))

    async def _settle(
        self, results: list[Result], *, is_last_try: bool = False
    ) -> tuple[set[DeliveryId], set[DeliveryId]]:
        """Write results: the ids that were written, and those that the database rejects in any form."""
        try:
            written = await self._insist(
                lambda connection: settle(connection, results, policy=self._policy, now=self._clock())
            )
        except Exception as error:
            if not is_about_data(error):
                raise
            return await self._isolate(results, error, is_last_try=is_last_try)
        return written, set()

    async def _isolate(
        self, results: list[Result], error: Exception, *, is_last_try: bool
    ) -> tuple[set[DeliveryId], set[DeliveryId]]:
        """The database rejects something in these: write the rest, and of the one at fault what can be written."""
        middle = len(results) // 2
        if middle:
            first, second = await self._settle(results[:middle]), await self._settle(results[middle:])
            return first[0] | second[0], first[1] | second[1]
        [result] = results
        _log.error(
            "result_rejected",
            delivery_id=result.outgoing.id,
            outcome=result.outcome,
            error=repr(error),
            held=is_last_try,
        )
        if is_last_try:
            return set(), {result.outgoing.id}
        return await self._settle([without_texts(result)], is_last_try=True)

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
        """Do it, and do it again after every error of the database that is not about the data."""
        pause_s = 0.05
        while True:
            try:
                async with self._pool.acquire() as connection:
                    return await step(connection)
            except DATABASE_ERRORS as error:
                if is_about_data(error) or monotonic() > self._give_up_at:
                    raise
                _log.warning("completion_postponed", error=type(error).__name__, retry_in_s=pause_s)
                await asyncio.sleep(pause_s)
                pause_s = min(pause_s * 2, 2)


def _newest(batch: Sequence[Result]) -> dict[DeliveryId, Result]:
    """One result per delivery. Who lost a claim and claimed again may bring two; only the last claim can still hold."""
    return {result.outgoing.id: result for result in sorted(batch, key=lambda result: result.outgoing.claim_id)}
