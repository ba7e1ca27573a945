"""Buffer of opens and clicks: collected in memory and written in batches.

No request waits for a write, so hits are collected for a tenth of a second and written in one statement. While the
database is unavailable they stay in memory, up to a limit; beyond it the oldest are dropped, counted and logged at
intervals. A batch whose connection broke during the commit may be written twice: a duplicate hit is better than a lost
one.

`run` until `stop`, which writes the rest; if the database is unavailable then, it gets a few more seconds.
"""

import asyncio
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import asyncpg
import structlog

from postroom.db.failures import record_loop_failure
from postroom.db.pool import Pool
from postroom.db.queries import arrays
from postroom.runtime.loop import Backoff, Loop, Signal, unheard
from postroom.tracking import store
from postroom.tracking.metrics import HITS, HITS_DROPPED, HITS_WAITING
from postroom.tracking.model import TrackedRequest
from postroom.tracking.visitors import nowhere

_log = structlog.get_logger()

FindPlace = Callable[[str], tuple[str | None, str | None]]

_FAULTS = (asyncpg.DataError, asyncpg.IntegrityConstraintViolationError, ValueError, OverflowError)
"""Errors caused by the data of a hit. All other errors concern the database and are retried."""


_COLUMNS = {
    "delivery_ids": "mark.delivery_id", "campaign_ids": "mark.campaign_id", "addresses": "mark.address", "times": "at",
    "link_urls": "link_url", "machines": "agent.is_machine", "agent_kinds": "agent.kind", "ip_addresses": "ip_address",
    "user_agents": "user_agent",
}  # fmt: skip
"""The arrays of `record_hits`, and the attributes of a hit in them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BufferOptions:
    """Options of the buffer; only the first has a setting."""

    capacity: int = 100_000  # hits in memory, besides the batch being written; about half a kilobyte each
    batch_limit: int = 2_000  # bounds the statement that a failure repeats as a whole
    linger_s: float = 0.1  # hits come in bursts; no person waits for the write
    first_pause_s: float = 0.1  # back-off after a failure; doubles up to longest_pause_s
    longest_pause_s: float = 5.0  # the buffer empties at most so long after the database is back
    statement_timeout_s: float = 30.0  # of a server that is gone without closing the connection
    stop_grace_s: float = 5.0  # within the 30 s that orchestrators wait before they kill
    complaint_interval_s: float = 10.0  # a full buffer would log each hit


class EngagementBuffer:
    """The buffer of one process. `add` never waits and never fails."""

    def __init__(
        self,
        pool: Pool,
        *,
        options: BufferOptions | None = None,
        find_place: FindPlace = nowhere,
        signal: Signal = unheard,
    ) -> None:
        self._pool, self._find_place, self._signal = pool, find_place, signal
        self._options = options or BufferOptions()
        self._hits: deque[TrackedRequest] = deque()
        self._in_hand = 0  # of the batch that is being written
        self._arrived, self._full, self._stopping = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._dropped, self._complained_at = 0, float("-inf")
        HITS_WAITING.set_function(lambda: len(self))

    def __len__(self) -> int:
        """Hits in memory, not yet committed."""
        return len(self._hits) + self._in_hand

    def add(self, hit: TrackedRequest) -> None:
        """Add a hit. A full buffer drops its oldest hit."""
        hits = self._hits
        if len(hits) >= self._options.capacity:
            hits.popleft()
            self._drop(1, "full")
        hits.append(hit)
        if len(hits) == 1:
            self._arrived.set()
        elif len(hits) == self._options.batch_limit:
            self._full.set()

    def stop(self) -> None:
        """Write the rest and end `run`."""
        self._stopping.set()
        self._arrived.set()
        self._full.set()

    async def run(self) -> None:
        """Write until stopped, then write the rest."""
        first_s, longest_s = self._options.first_pause_s, self._options.longest_pause_s
        writing = Loop("hits", self._write_waiting, more=bool, interruption=Backoff(first_s, longest_s, jitter=0.5))
        await writing.run(self._stopping, partial(record_loop_failure, self._pool))
        await self._drain()

    async def _drain(self) -> None:
        """Write the rest, with retries for a few seconds."""
        pause = Backoff(self._options.first_pause_s, self._options.first_pause_s)
        drain = Loop("hits", self.run_once, more=bool, ends=lambda _written: not self._hits, interruption=pause)
        with suppress(TimeoutError):
            async with asyncio.timeout(self._options.stop_grace_s):
                await drain.run(asyncio.Event())
        if self._hits:
            _log.error("hits_lost_at_stop", hits=len(self._hits))
            HITS_DROPPED.labels("stop").inc(len(self._hits))

    async def run_once(self) -> int:
        """Write one batch now; returns its number of hits. Raises errors of the database."""
        batch = self._take()
        self._in_hand = len(batch)
        try:
            await self._write(batch)
        except BaseException:
            self._put_back(batch)
            raise
        finally:
            self._in_hand = 0
        return len(batch)

    async def _write_waiting(self) -> bool:
        """Wait for hits and write them; while full batches wait, the next one at once."""
        await self._gather()
        try:
            await self.run_once()
            while len(self._hits) >= self._options.batch_limit:  # few large statements cost less than many small ones
                await self.run_once()
        except Exception:
            self._signal("postponed")
            raise
        if not self._hits:
            self._signal("written")
        return True

    async def _gather(self) -> None:
        """Wait for a hit and then for the collection interval, unless a batch fills up before."""
        await self._arrived.wait()
        with suppress(TimeoutError):
            async with asyncio.timeout(self._options.linger_s):
                await self._full.wait()
        if not self._stopping.is_set():
            self._full.clear()

    def _take(self) -> list[TrackedRequest]:
        hits = self._hits
        batch = [hits.popleft() for _ in range(min(len(hits), self._options.batch_limit))]
        if not hits and not self._stopping.is_set():
            self._arrived.clear()
        return batch

    def _put_back(self, batch: Sequence[TrackedRequest]) -> None:
        """Put a failed batch back to the front; a full buffer drops its hits first, because they are the oldest."""
        room = max(self._options.capacity - len(self._hits), 0)
        if len(batch) > room:
            self._drop(len(batch) - room, "full")
        self._hits.extendleft(reversed(batch[len(batch) - room :] if room else []))
        self._arrived.set()
        self._full.set()  # they have waited already: the next try does not collect again

    async def _write(self, batch: Sequence[TrackedRequest]) -> None:
        """Write in one statement. On a data error, bisect the batch and drop only the invalid hit."""
        if not batch:
            return
        try:
            async with asyncio.timeout(self._options.statement_timeout_s), self._pool.acquire() as connection:
                await store.record_hits(connection, **self._columns(batch))
        except _FAULTS as error:
            await self._write_halves(batch, error)
        else:
            for (hit, machine), count in Counter((h.link_url is None, h.agent.is_machine) for h in batch).items():
                HITS.labels("open" if hit else "click", "yes" if machine else "no").inc(count)

    async def _write_halves(self, batch: Sequence[TrackedRequest], error: Exception) -> None:
        if len(batch) == 1:
            _log.error("hit_refused", delivery_id=batch[0].mark.delivery_id, error=type(error).__name__)
            HITS_DROPPED.labels("refused").inc()
            return
        middle = len(batch) // 2
        await self._write(batch[:middle])
        await self._write(batch[middle:])

    def _columns(self, batch: Sequence[TrackedRequest]) -> dict[str, Sequence[object]]:
        places = [self._find_place(hit.ip_address) if hit.ip_address else (None, None) for hit in batch]
        countries, cities = zip(*places, strict=True)
        return {**arrays(batch, **_COLUMNS), "countries": countries, "cities": cities}

    def _drop(self, count: int, cause: str) -> None:
        HITS_DROPPED.labels(cause).inc(count)
        self._dropped += count
        now = time.monotonic()
        if now - self._complained_at >= self._options.complaint_interval_s:
            self._complained_at = now
            _log.error("hits_dropped", cause=cause, hits=self._dropped, waiting=len(self._hits))
            self._dropped = 0
