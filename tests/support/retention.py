"""Applying retention in a test."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from postroom.db.pool import Pool
from postroom.db.retention import STEP, Retention, Sweeper
from postroom.runtime.clock import Clock, database_time
from postroom.settings import Settings


async def swept(
    pool: Pool, table: Sequence[Retention], *, clock: Clock = database_time, step: int = STEP, **settings: Any
) -> int:
    """Apply a table of retentions once, in steps of this size; returns how many rows were deleted."""
    rows = [replace(row, step=step) for row in table]
    return await Sweeper(pool, rows, Settings(**settings), clock=clock, share=1).run_once()
