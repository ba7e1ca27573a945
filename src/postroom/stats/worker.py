"""The rollup: deltas become hours.

Any number of processes may run one; at most one of them folds at a time, and the others find nothing to do. A fold is
one transaction. If it fails, nothing has happened, and the next turn does it.
"""

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta

import asyncpg
import structlog

from postroom.db.faults import FLICKER
from postroom.db.pool import Pool
from postroom.runtime.signals import Signal, unheard
from postroom.stats import store

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class RollupOptions:
    """How often the rollup looks, and how much it folds at once."""

    interval: timedelta = timedelta(seconds=2)
    batch: int = 5000


class Rollup:
    """`run` until `stop`; `run_once` for one batch."""

    def __init__(self, pool: Pool, options: RollupOptions | None = None, *, signal: Signal = unheard) -> None:
        self._pool, self._options, self._signal = pool, options or RollupOptions(), signal
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        self._stopping.set()

    async def run(self) -> None:
        """Fold what there is, then look again every interval."""
        while not self._stopping.is_set():
            try:
                folded = await self.run_once()
            except (*FLICKER, asyncpg.PostgresError) as error:
                _log.warning("fold_postponed", error=type(error).__name__)
                folded = 0
            self._signal("folded")
            if folded < self._options.batch:
                await self._rest()

    async def run_once(self) -> int:
        """Fold one batch: how many deltas. Nothing also when somebody else is folding."""
        async with self._pool.acquire() as connection:
            return await store.fold(connection, batch_limit=self._options.batch)

    async def _rest(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(self._options.interval.total_seconds()):
                await self._stopping.wait()
