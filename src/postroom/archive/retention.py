"""What grows for ever and nobody archives: counts of hours long past, the people of campaigns long over.

Bounded steps with a rest in between, safe in any number of processes at once.
"""

from collections.abc import Awaitable, Callable
from datetime import timedelta

from postroom.archive.model import ArchiveOptions
from postroom.campaigns.store import forget_recipients
from postroom.db.pool import Pool
from postroom.runtime.clock import Clock, database_time
from postroom.runtime.pace import Pace
from postroom.stats.store import delete_old_hours


async def forget_old(pool: Pool, options: ArchiveOptions, *, clock: Clock = database_time) -> int:
    """Delete what is older than the settings keep; answers how many rows that were."""
    kept: tuple[tuple[Callable[..., Awaitable[int]], timedelta], ...] = (
        (delete_old_hours, options.stats_kept),
        (forget_recipients, options.recipients_kept),
    )
    total, pace = 0, Pace(options.share)
    for delete, retention in kept:
        deleted = options.batch_limit
        while deleted == options.batch_limit:
            async with pool.acquire() as connection:
                deleted = await delete(connection, retention=retention, batch_limit=options.batch_limit, now=clock())
            total += deleted
            await pace.rest()
    return total
