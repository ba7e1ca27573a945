"""One pool for many rooms of a server.

A connection finds a room's tables through `search_path`, which changes when another room acquires the connection. The
driver keys its prepared statements by their text, but the types of each room (its enums) have ids of their own, so the
text carries the name of the room: a statement that was prepared in one room never runs in another.

While rooms wait for a connection, the room that holds the fewest is next, and no room holds more than its share. A busy
room delays the others by one statement at most.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta
from typing import Any

import asyncpg

from postroom.db.connection import Connector, PostgresConnection, Url
from postroom.db.pool import LimitedPool, quote_identifier, session_options
from postroom.db.queries import load

SHARE = 0.75  # of all connections for one room, so that a room that wakes finds a free one
MOST_VISITS = (
    200  # changes of room before a connection is replaced: the server caches the tables of each for the session
)
STATEMENTS = 300  # prepared statements of a connection; a room uses about 60

_QUERIES = load("postroom.db")


class Turns:
    """Divides places among rooms: the room that holds the fewest is next, then the oldest request."""

    def __init__(self, count: int) -> None:
        self._free, self._most = count, max(1, int(count * SHARE))
        self._held: Counter[str] = Counter()
        self._waiting: list[tuple[str, asyncio.Future[None]]] = []

    async def take(self, room: str) -> None:
        request = room, asyncio.get_running_loop().create_future()
        self._waiting.append(request)
        self._grant()
        try:
            await request[1]
        except asyncio.CancelledError:
            if request in self._waiting:
                self._waiting.remove(request)
            else:
                self.give_back(room)
            raise

    def give_back(self, room: str) -> None:
        self._free += 1
        self._held[room] -= 1
        if not self._held[room]:
            del self._held[room]
        self._grant()

    def _grant(self) -> None:
        while self._free and self._waiting:
            request = min(self._waiting, key=lambda waiting: self._held[waiting[0]])
            room, granted = request
            if self._held[room] >= self._most:
                return
            self._waiting.remove(request)
            self._free -= 1
            self._held[room] += 1
            granted.set_result(None)


class _RoomConnection(PostgresConnection):
    """A connection that knows the room whose tables it finds."""

    __slots__ = ("room", "visits")

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.room, self.visits = "", 0

    async def enter(self, room: str) -> None:
        if self.room != room:
            self.room = ""  # until the server has confirmed the change
            await enter_room(self, room)
            self.room, self.visits = room, self.visits + 1

    async def _get_statement(self, query: str, *arguments: Any, **options: Any) -> Any:
        return await super()._get_statement(f"{query}\n-- {self.room}", *arguments, **options)


class SharedPool(LimitedPool):
    """The connections of a process to one server. Opening it connects to nothing."""

    __slots__ = ("_turns",)

    def __init__(self, connector: Connector, *, size: int, limit_s: float) -> None:
        super().__init__(connector, size=size, init_size=0, limit_s=limit_s)
        self._turns = Turns(size)

    def of(self, room: str) -> "RoomPool":
        return RoomPool(self, room)

    @asynccontextmanager
    async def acquire_in(self, room: str, timeout_s: float | None) -> AsyncIterator[Any]:
        """A connection that finds the tables of this room, preferably one that did so before."""
        async with asyncio.timeout(self._acquire_s if timeout_s is None else timeout_s):
            await self._turns.take(room)
        try:
            self._prefer(room)
            async with self.acquire(timeout=timeout_s) as proxy:
                connection = proxy._con  # noqa: SLF001 - the driver's proxy hides the methods of our own class
                await connection.enter(room)
                yield proxy
                if connection.visits > MOST_VISITS:
                    connection.terminate()
        finally:
            self._turns.give_back(room)

    def _prefer(self, room: str) -> None:
        """Put a free connection of this room on top of the stack from which the driver takes the next one."""
        free = self._queue._queue  # noqa: SLF001 - the driver offers no choice
        for index, holder in enumerate(free):
            if holder._con is not None and holder._con.room == room:  # noqa: SLF001 - as above
                free.append(free.pop(index))
                return


class RoomPool:
    """The part of a shared pool that the code of one room uses."""

    def __init__(self, shared: SharedPool, room: str) -> None:
        self._shared, self._room = shared, room

    def acquire(self, *, timeout: float | None = None) -> AbstractAsyncContextManager[Any]:
        return self._shared.acquire_in(self._room, timeout)

    def get_max_size(self) -> int:
        return int(self._shared.get_max_size())

    async def execute(self, query: str, *arguments: Any) -> Any:
        async with self.acquire() as connection:
            return await connection.execute(query, *arguments)

    async def fetch(self, query: str, *arguments: Any) -> Any:
        async with self.acquire() as connection:
            return await connection.fetch(query, *arguments)

    async def fetchrow(self, query: str, *arguments: Any) -> Any:
        async with self.acquire() as connection:
            return await connection.fetchrow(query, *arguments)


async def open_shared_pool(url: Url, *, size: int, limit: timedelta) -> SharedPool:
    """A pool for the rooms of one server; `limit` is the time of each statement."""
    options = {**session_options("pg_catalog"), "statement_cache_size": STATEMENTS}
    limit_s = limit.total_seconds()
    connector = Connector(url, options={**options, "command_timeout": limit_s}, connection=_RoomConnection)
    pool = SharedPool(connector, size=size, limit_s=limit_s)
    await pool
    return pool


async def enter_room(connection: asyncpg.Connection, room: str) -> None:
    """Let a session find the tables of another room."""
    await _QUERIES["enter_room"].exec(connection, search_path=quote_identifier(room))
