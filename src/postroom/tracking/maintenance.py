"""Keeping house: room for the months to come, and forgetting the firsts of deliveries long gone.

Safe to run in any number of processes at once, and done again at the next turn if it failed.
"""

from dataclasses import dataclass
from datetime import timedelta

from postroom.db.pool import Pool
from postroom.runtime.clock import Clock, database_time
from postroom.runtime.loop import Loop
from postroom.tracking import store

STEP = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackingMaintenanceOptions:
    """How often, and how long it is known that a delivery was opened before."""

    interval: timedelta = timedelta(minutes=5)
    engagement_retention: timedelta = timedelta(days=365)


class TrackingMaintenance:
    """Partitions for the months to come, and retention of first opens and clicks."""

    def __init__(
        self, pool: Pool, options: TrackingMaintenanceOptions | None = None, *, clock: Clock = database_time
    ) -> None:
        self._pool, self._options, self._clock = pool, options or TrackingMaintenanceOptions(), clock

    def loop(self) -> Loop:
        return Loop("tracking maintenance", self.run_once, rest=self._options.interval, interruptible=True)

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
