"""Fixtures of the event tests: a room with long lock timeouts, a store, and additional connections for races."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack

import asyncpg
import pytest

from postroom.db.pool import Pool, connect
from postroom.events import EventStore
from postroom.events import lock_wait as patience

Opener = Callable[[], Awaitable[asyncpg.Connection]]
AN_HOUR_S = 3600


async def set_lock_timeout(database_url: str, milliseconds: int) -> None:
    """Set the long lock timeout of future connections."""
    connection = await connect(database_url, "postroom")
    name = await connection.fetchval("SELECT current_database()")
    await connection.execute(f'ALTER DATABASE "{name}" SET lock_timeout = {milliseconds}')
    await connection.close()


@pytest.fixture
async def database_url(database_url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """A room with a lock timeout of an hour, so that a slow machine causes no timeouts."""
    await set_lock_timeout(database_url, AN_HOUR_S * 1000)
    monkeypatch.setattr(patience, "LONGEST_S", AN_HOUR_S)
    return database_url


@pytest.fixture
def store(pool: Pool) -> EventStore:
    return EventStore(pool)


@pytest.fixture
async def opened(database_url: str) -> AsyncIterator[Opener]:
    """Open one more connection to the room; all are closed afterwards."""
    async with AsyncExitStack() as stack:

        async def open_one() -> asyncpg.Connection:
            connection = await connect(database_url, "postroom")
            stack.push_async_callback(connection.close)
            return connection

        yield open_one
