"""Keeping house: room for the months to come, and forgetting the firsts of deliveries long gone.

Safe to run in any number of processes at once, and done again at the next turn if it failed.
"""

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta

import asyncpg
import structlog

from postroom.db.faults import FLICKER
from postroom.db.pool import Pool
from postroom.runtime.clock import Clock, database_time
from postroom.tracking import store

_log = structlog.get_logger()

STEP = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackingMaintenanceOptions:
    """How often, and how long it is known that a delivery was opened before."""

    interval: timedelta = timedelta(minutes=5)
    engagement_retention: timedelta = timedelta(days=365)


class TrackingMaintenance:
    """`run` until `stop`; the first turn comes at once."""

    def __init__(
        self, pool: Pool, options: TrackingMaintenanceOptions | None = None, *, clock: Clock = database_time
    ) -> None:
        self._pool, self._options, self._clock = pool, options or TrackingMaintenanceOptions(), clock
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        self._stopping.set()

    async def run(self) -> None:
        while not self._stopping.is_set():
            try:
                await self.run_once()
            except (*FLICKER, asyncpg.PostgresError) as error:
                _log.warning("tracking_maintenance_postponed", error=type(error).__name__)
            with suppress(TimeoutError):
                async with asyncio.timeout(self._options.interval.total_seconds()):
                    await self._stopping.wait()

    async def run_once(self) -> None:
        await self.make_partitions()
        await self.clean_up()

    async def make_partitions(self) -> int:
        async with self._pool.acquire() as connection:
            return await store.ensure_tracking_partitions(connection, now=self._clock())

    async def clean_up(self) -> int:
        """Forget old firsts, a step at a time."""
        total = 0
        while True:
            async with self._pool.acquire() as connection:
                deleted = await store.delete_old_engagements(
                    connection, retention=self._options.engagement_retention, batch_limit=STEP, now=self._clock()
                )
            total += deleted
            if deleted < STEP:
                return total
