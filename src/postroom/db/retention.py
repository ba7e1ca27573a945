"""Retention: rows that are older than a setting allows are deleted, in bounded steps.

Each capability declares its deletions as `RETENTION`, a table of store functions and their settings. One loop of the
worker applies them all. Any number of processes may run it concurrently.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NamedTuple

from postroom.db.pool import Pool
from postroom.runtime.clock import Clock, database_time
from postroom.runtime.loop import Loop, run_all
from postroom.runtime.pace import Pace
from postroom.settings import Settings

STEP = 1000  # rows per statement: locks stay short; larger steps delay concurrent writers
SHARE = 0.05
"""The share of the time that retention works; it pauses for the rest, to leave the database to mail."""


class Step(NamedTuple):
    """A step through rows in order: rows read, rows deleted, and the start of the next step."""

    seen: int
    deleted: int
    after: Any


@dataclass(frozen=True, slots=True)
class Retention:
    """A store function that deletes one step of old rows, and their retention.

    The function gets `retention`, `batch_limit` and `now`, and the settings in `also` by name. It returns the number of
    rows, or a `Step`; then the next call gets `after`.
    """

    delete: Callable[..., Awaitable[int | Step]]
    kept: str | timedelta  # the name of a setting, or a fixed time
    also: tuple[str, ...] = ()
    step: int = STEP


class Sweeper:
    """Applies a table of retentions, one after the other."""

    def __init__(
        self,
        pool: Pool,
        table: Sequence[Retention],
        settings: Settings,
        *,
        clock: Clock = database_time,
        share: float = SHARE,
    ) -> None:
        self._pool, self._table, self._settings = pool, table, settings
        self._clock, self._share = clock, share

    def loop(self) -> Loop:
        return Loop("retention", self.run_once, rest=self._settings.cleanup_interval, interruptible=True)

    async def run_once(self) -> int:
        """Apply every row of the table; returns the number of deleted rows."""
        return sum(await run_all(self._sweep, self._table))

    async def _sweep(self, row: Retention) -> int:
        total, after, pace = 0, dict[str, Any](), Pace(self._share)
        kept = getattr(self._settings, row.kept) if isinstance(row.kept, str) else row.kept
        also = {name: getattr(self._settings, name) for name in row.also}
        while True:
            async with self._pool.acquire() as connection:
                done = await row.delete(
                    connection, retention=kept, batch_limit=row.step, now=self._clock(), **also, **after
                )
            step = done if isinstance(done, Step) else Step(done, done, None)
            total += step.deleted
            if step.seen < row.step:
                return total
            if step.after is not None:
                after = {"after": step.after}
            await pace.rest()
