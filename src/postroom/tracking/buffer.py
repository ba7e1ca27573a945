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

import asyncpg
import structlog

from postroom.db.pool import Pool
from postroom.runtime.backoff import Backoff
from postroom.runtime.signals import Signal, unheard
from postroom.tracking import store
from postroom.tracking.metrics import HITS, HITS_DROPPED, HITS_WAITING
from postroom.tracking.model import TrackedRequest
from postroom.tracking.visitors import nowhere

_log = structlog.get_logger()

FindPlace = Callable[[str], tuple[str | None, str | None]]

_FAULTS = (asyncpg.DataError, asyncpg.IntegrityConstraintViolationError, ValueError, OverflowError)
"""Errors caused by the data of a hit. All other errors concern the database and are retried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BufferOptions:
    """Options of the buffer; only the first has a setting."""

    capacity: int = 100_000  # hits in memory, besides the batch being written; about half a kilobyte each
    batch_limit: int = 2_000
    linger_s: float = 0.1
    first_pause_s: float = 0.1  # back-off after a failure; doubles up to longest_pause_s
    longest_pause_s: float = 5.0
    statement_timeout_s: float = 30.0
    stop_grace_s: float = 5.0
    complaint_interval_s: float = 10.0


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
        """Write until stopped."""
        while not self._stopping.is_set():
            await self._gather()
            await self._write_all()
        grace_s = self._options.stop_grace_s
        with suppress(TimeoutError):
            async with asyncio.timeout(grace_s):
                await self._write_all(until_empty=True)
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

    async def _gather(self) -> None:
        """Wait for a hit and then for the collection interval, unless a batch fills up before."""
        await self._arrived.wait()
        with suppress(TimeoutError):
            async with asyncio.timeout(self._options.linger_s):
                await self._full.wait()
        if not self._stopping.is_set():
            self._full.clear()

    async def _write_all(self, *, until_empty: bool = False) -> None:
        """Write batches while full ones are waiting; back off while the database is unavailable."""
        backoff = Backoff(self._options.first_pause_s, self._options.longest_pause_s, jitter=0.5)
        while self._hits and (until_empty or not self._stopping.is_set()):
            try:
                await self.run_once()
            except Exception as error:  # noqa: BLE001 - no kind of error may lose the hits
                _log.warning("hits_postponed", error=type(error).__name__, waiting=len(self._hits))
                self._signal("postponed")
                await self._pause(backoff.fail())
            else:
                backoff.reset()
                if len(self._hits) < self._options.batch_limit and not until_empty:
                    break  # collect again: many small statements cost more than few large ones
        if not self._hits:
            self._signal("written")

    async def _pause(self, seconds: float) -> None:
        """Wait before the next retry; only briefly once the buffer is stopping."""
        if self._stopping.is_set():
            await asyncio.sleep(min(seconds, self._options.first_pause_s))
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopping.wait()

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
        return {
            "delivery_ids": [hit.mark.delivery_id for hit in batch],
            "campaign_ids": [hit.mark.campaign_id for hit in batch],
            "times": [hit.at for hit in batch],
            "link_urls": [hit.link_url for hit in batch],
            "machines": [hit.agent.is_machine for hit in batch],
            "agent_kinds": [hit.agent.kind for hit in batch],
            "ip_addresses": [hit.ip_address for hit in batch],
            "countries": [country for country, _city in places],
            "cities": [city for _country, city in places],
            "addresses": [hit.mark.address for hit in batch],
            "user_agents": [hit.user_agent for hit in batch],
        }

    def _drop(self, count: int, cause: str) -> None:
        HITS_DROPPED.labels(cause).inc(count)
        self._dropped += count
        now = time.monotonic()
        if now - self._complained_at >= self._options.complaint_interval_s:
            self._complained_at = now
            _log.error("hits_dropped", cause=cause, hits=self._dropped, waiting=len(self._hits))
            self._dropped = 0
