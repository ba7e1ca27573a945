"""What the tests of events share: a store, and as many connections of one's own as a race needs."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack

import asyncpg
import pytest

from postroom.db.pool import Pool, connect
from postroom.events import EventStore

Opener = Callable[[], Awaitable[asyncpg.Connection]]


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
