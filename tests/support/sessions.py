"""Sessions of processes that were killed: the server notices that a client is gone when it gets round to it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg

_OTHERS = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"


@asynccontextmanager
async def sessions_end(url: str) -> AsyncIterator[None]:
    """After the block everybody who came during it has left: their last statements are over, and their locks free."""
    watching = await asyncpg.connect(url)
    try:
        before = {row["pid"] for row in await watching.fetch(_OTHERS)}
        yield
        async with asyncio.timeout(60):
            while {row["pid"] for row in await watching.fetch(_OTHERS)} - before:
                pass
    finally:
        await watching.close()
