"""What the tests of events share: a patient room, a store, and as many connections of one's own as a race needs."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack

import asyncpg
import pytest

from postroom.db.pool import Pool, connect
from postroom.events import EventStore, patience

Opener = Callable[[], Awaitable[asyncpg.Connection]]
AN_HOUR_S = 3600


async def set_lock_timeout(database_url: str, milliseconds: int) -> None:
    """How long whoever connects from now on waits for a lock, when it is patient."""
    connection = await connect(database_url, "postroom")
    name = await connection.fetchval("SELECT current_database()")
    await connection.execute(f'ALTER DATABASE "{name}" SET lock_timeout = {milliseconds}')
    await connection.close()


@pytest.fixture
async def database_url(database_url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """A room in which the patient wait for an hour: a machine that stalls must not make anybody give up."""
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
