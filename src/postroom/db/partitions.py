"""The monthly partitions of tables, made ahead."""

from collections.abc import Iterable
from datetime import datetime

from postroom.db.pool import Pool
from postroom.db.queries import column, load

MONTHS_AHEAD = 2  # a month in which no worker runs leaves one

ensure_partitions = load("postroom.db")["ensure_partitions"].one_as(column("made", int))


async def make_partitions(pool: Pool, tables: Iterable[str], *, now: datetime | None) -> int:
    """Create the partitions of this month and the next two, each table in its own transaction; returns their number.

    A partition locks its table against writers. Two such locks in a transaction deadlock with a writer of both tables.
    """
    return sum([await ensure_partitions(pool, table_name=table, months=MONTHS_AHEAD, now=now) for table in tables])
