"""Sessions of the test's database: those that wait for a lock, and those of killed processes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg

from postroom.db.pool import Pool

_BLOCKED = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
_OTHERS = (
    "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    " AND query NOT LIKE '%pg_postmaster_start_time%'"  # every process watches its server, from its fourth second on
)


async def until_blocked(pool: Pool, sessions: int = 1, *, unless: "asyncio.Task[Any] | None" = None) -> None:
    """Wait until so many sessions wait for a lock, or the task `unless` has ended."""
    async with asyncio.timeout(60):
        while await pool.fetchval(_BLOCKED) < sessions and not (unless and unless.done()):
            pass


async def burn_transactions(url: str, count: int = 2000) -> None:
    """Use up transaction ids, so that those of another cluster are behind."""
    connection = await asyncpg.connect(url)
    for _ in range(count):
        await connection.execute("SELECT pg_current_xact_id()")
    await connection.close()


@asynccontextmanager
async def sessions_end(url: str) -> AsyncIterator[None]:
    """At the end, wait until the sessions that began in the block have ended, and with them their locks.

    The server notices that a killed client is gone only at its next read or write.
    """
    watching = await asyncpg.connect(url)
    try:
        before = {row["pid"] for row in await watching.fetch(_OTHERS)}
        yield
        async with asyncio.timeout(60):
            while {row["pid"] for row in await watching.fetch(_OTHERS)} - before:
                pass
    finally:
        await watching.close()
