"""Maintenance of opens and clicks: partitions for the months to come, and retention of first opens and clicks."""

from datetime import timedelta

from postroom.db.partitions import make_partitions
from postroom.db.pool import Pool
from postroom.db.retention import Retention
from postroom.runtime.clock import Clock, database_time
from postroom.runtime.loop import Backoff, Loop
from postroom.tracking import store

# Partitions are made months ahead; a failed run is repeated long before one is missing
PARTITION_INTERVAL = timedelta(minutes=5)
RETENTION = (Retention(store.delete_old_engagements, timedelta(days=365)),)  # a click on last year's campaign


class TrackingPartitions:
    """Creates the partitions of this month and the next two."""

    def __init__(self, pool: Pool, *, clock: Clock = database_time) -> None:
        self._pool, self._clock = pool, clock

    def loop(self) -> Loop:
        every_s = PARTITION_INTERVAL.total_seconds()
        interruption = Backoff(every_s, every_s)  # a report holds a lock: waiting for it would block writers
        return Loop("tracking partitions", self.run_once, rest=PARTITION_INTERVAL, interruption=interruption)

    async def run_once(self) -> int:
        return await make_partitions(self._pool, ("open_events", "click_events"), now=self._clock())
