"""Serialise decisions that read the same query, so that they do not overtake each other.

A decision that starts while another one on the same query runs waits for it and then reads its events. Within a process
this costs nothing (`Serializer`); between processes only decisions that lost once take an advisory lock (`in_turn`).
Waiting saves work and is not needed for correctness: the append condition decides, as it always does.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from postroom.db.pool import Pool
from postroom.events import store
from postroom.events.model import Query
from postroom.events.session import EventSession


@asynccontextmanager
async def in_turn(pool: Pool, query: Query) -> AsyncIterator[EventSession]:
    """A transaction that excludes other `in_turn` decisions by this query, in every process.

    Raises `LockNotAvailableError` after waiting a second for the lock.
    """
    async with pool.acquire() as connection, connection.transaction(isolation="read_committed"):
        await store.take_turn(connection, key=query.json)
        yield EventSession(connection)


class Serializer:
    """One lock per key, kept only while it is held or awaited."""

    def __init__(self) -> None:
        self._lines: dict[str, tuple[asyncio.Lock, int]] = {}

    @asynccontextmanager
    async def take(self, key: str) -> AsyncIterator[None]:
        lock, waiting = self._lines.get(key) or (asyncio.Lock(), 0)
        self._lines[key] = (lock, waiting + 1)
        try:
            async with lock:
                yield
        finally:
            _, waiting = self._lines.pop(key)
            if waiting > 1:
                self._lines[key] = (lock, waiting - 1)
