"""The rollup: steps of deliveries, and deltas of everything else, become hours.

Any number of processes may run one. At most one of them rolls up at a time; the others find nothing to do. A rollup is
one transaction: if it fails, nothing has changed, and the next run repeats it.
"""

from dataclasses import dataclass
from datetime import timedelta

from postroom.db.pool import Pool
from postroom.db.retention import Retention
from postroom.runtime.loop import Loop
from postroom.stats import store

RETENTION = (
    Retention(store.delete_old_dimension_hours, "stats_retention"),
    Retention(store.delete_old_hours, "stats_retention"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RollupOptions:
    """Interval of the rollup, and steps and deltas per transaction."""

    interval: timedelta = timedelta(seconds=2)  # figures lag behind the ledger by this time
    batch: int = 5000  # bounds the transaction, whose snapshot holds back vacuum and followers


class Rollup:
    """Adds steps and deltas to their hours."""

    def __init__(self, pool: Pool, options: RollupOptions | None = None) -> None:
        self._pool, self._options = pool, options or RollupOptions()

    def loop(self) -> Loop:
        """Run again at once after a full batch, otherwise after the interval."""
        options = self._options
        return Loop("rollup", self.run_once, rest=options.interval, more=lambda taken: taken >= options.batch)

    async def run_once(self) -> int:
        """Roll up one batch; returns its number of steps or deltas. Zero also while another process rolls up."""
        return await store.fold(self._pool, batch_limit=self._options.batch)
