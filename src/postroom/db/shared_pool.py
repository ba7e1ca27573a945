"""One pool for many rooms of a server.

A connection finds a room's tables through `search_path`, which changes when another room acquires the connection. The
driver keys its prepared statements by their text, but the types of each room (its enums) have ids of their own, so the
text carries the name of the room: a statement that was prepared in one room never runs in another.

The first statements of a room on a connection take 10 to 50 ms and more than a megabyte of the server: its session
reads the catalog entries of the room's tables and keeps them until it ends. So a room gets a connection on which it ran
before, waits a moment for one of its own before it takes another, and a connection is replaced after some rooms.

While rooms wait for a connection, the room that holds the fewest is next, and no room holds more than its share. A busy
room delays the others by one statement at most.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta
from typing import Any

import asyncpg

from postroom.db.connection import Connector, PostgresConnection, Url
from postroom.db.pool import LimitedPool, quote_identifier, session_options
from postroom.db.queries import load

SHARE = 0.75  # of all connections for one room, so that a room that wakes finds a free one
WAKING_S = IDLE_S = 10.0
"""A room is waking for ten seconds after its first statement in ten: most sleep again before they end."""

PATIENCE_S = 0.5
"""A waking room waits so long for a connection of its own: it ran the same first statements on six at once."""

MOST_ROOMS = 10  # before a connection is replaced: each room leaves up to 2 MB in the server's session
STATEMENTS = 300  # prepared statements of a connection; a room uses about 60

_QUERIES = load("postroom.db")


class Turns:
    """Divides places among rooms: the room that holds the fewest is next, then the oldest request.

    A waking room that holds a place gets another one at once only if it holds fewer than `count_own` connections, which
    are those that know its tables. Otherwise it waits for one of these, at most for `patience_s`.
    """

    def __init__(self, count: int, *, count_own: Callable[[str], int], patience_s: float = PATIENCE_S) -> None:
        self._free, self._most = count, max(1, int(count * SHARE))
        self._count_own, self._patience_s = count_own, patience_s
        self._held: Counter[str] = Counter()
        self._waiting: list[tuple[str, asyncio.Future[None], float]] = []
        self._use: dict[str, tuple[float, float]] = {}  # by room: the first request after a pause, and the last one

    async def take(self, room: str) -> None:
        loop = asyncio.get_running_loop()
        request = room, loop.create_future(), self._until(room, loop.time())
        self._waiting.append(request)
        self._grant()
        retry = None if request[1].done() else loop.call_at(request[2], self._grant)
        try:
            await request[1]
        except asyncio.CancelledError:
            if request in self._waiting:
                self._waiting.remove(request)
            else:
                self.give_back(room)
            raise
        finally:
            if retry is not None:
                retry.cancel()

    def _until(self, room: str, now: float) -> float:
        """The time until which a request waits for a connection that knows the room: now, unless the room is waking."""
        first, last = self._use.get(room, (now, now))
        first = now if now - last > IDLE_S else first
        self._use[room] = first, now
        return now + self._patience_s if now - first < WAKING_S else now

    def give_back(self, room: str) -> None:
        self._free += 1
        self._held[room] -= 1
        if not self._held[room]:
            del self._held[room]
        self._grant()

    def _grant(self) -> None:
        now = asyncio.get_running_loop().time()
        while self._free:
            possible = [request for request in self._waiting if self._may_have(request[0], now >= request[2])]
            if not possible:
                return
            request = min(possible, key=lambda waiting: self._held[waiting[0]])
            self._waiting.remove(request)
            self._free -= 1
            self._held[request[0]] += 1
            request[1].set_result(None)

    def _may_have(self, room: str, has_waited: bool) -> bool:  # noqa: FBT001 - of one request, named here
        held = self._held[room]
        return not held or (held < self._most and (has_waited or held < self._count_own(room)))


class _RoomConnection(PostgresConnection):
    """A connection that knows the room whose tables it finds, and the rooms whose tables its session has cached."""

    __slots__ = ("room", "seen")

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.room, self.seen = "", set[str]()

    async def enter(self, room: str) -> None:
        if self.room != room:
            self.room = ""  # until the server has confirmed the change
            self.seen.add(room)
            await enter_room(self, room)
            self.room = room

    async def _get_statement(self, query: str, *arguments: Any, **options: Any) -> Any:
        return await super()._get_statement(f"{query}\n-- {self.room}", *arguments, **options)


class SharedPool(LimitedPool):
    """The connections of a process to one server. Opening it connects to nothing."""

    __slots__ = ("_most_rooms", "_turns")

    def __init__(self, connector: Connector, *, size: int, most_rooms: int, limit_s: float) -> None:
        super().__init__(connector, size=size, init_size=0, limit_s=limit_s)
        self._turns, self._most_rooms = Turns(size, count_own=self._count_own), most_rooms

    def of(self, room: str) -> "RoomPool":
        return RoomPool(self, room)

    @asynccontextmanager
    async def acquire_in(
        self, room: str, timeout_s: float | None = None, *, naming: Iterable[str] = ()
    ) -> AsyncIterator[Any]:
        """A connection that finds the tables of this room, for statements that may name those of other rooms."""
        async with asyncio.timeout(self._acquire_s if timeout_s is None else timeout_s):
            await self._turns.take(room)
        try:
            self._choose(room)
            async with self.acquire(timeout=timeout_s) as proxy:
                connection = proxy._con  # noqa: SLF001 - the driver's proxy hides the methods of our own class
                await connection.enter(room)
                connection.seen.update(naming)
                yield proxy
                if len(connection.seen) > self._most_rooms:
                    await connection.close()
        finally:
            self._turns.give_back(room)

    def _count_own(self, room: str) -> int:
        """The connections that know the tables of this room, free or in its use."""
        free = self._queue._queue  # noqa: SLF001 - the driver offers no choice
        return sum(_rank(holder, room) <= (_SEEN if holder in free else _OWN) for holder in self._holders)

    def _choose(self, room: str) -> None:
        """Put the best free connection on top of the stack from which the driver takes the next one.

        That is one which has seen this room, else the one that was not used for longest, else a new one.
        """
        free = self._queue._queue  # noqa: SLF001 - the driver offers no choice
        best = min(range(len(free)), key=lambda index: _rank(free[index], room))
        free.append(free.pop(best))


_OWN, _SEEN, _UNSEEN, _CLOSED = range(4)


def _rank(holder: Any, room: str) -> int:
    """The order in which a room takes free connections."""
    connection = holder._con  # noqa: SLF001 - the driver offers no choice
    if connection is None or connection.is_closed():
        return _CLOSED
    if connection.room == room:
        return _OWN
    return _SEEN if room in connection.seen else _UNSEEN


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


async def open_shared_pool(url: Url, *, size: int, limit: timedelta, most_rooms: int = MOST_ROOMS) -> SharedPool:
    """A pool for the rooms of one server; `limit` is the time of each statement."""
    limit_s = limit.total_seconds()
    options = {**session_options("pg_catalog", limit_s=limit_s), "statement_cache_size": STATEMENTS}
    connector = Connector(url, options=options, connection=_RoomConnection)
    pool = SharedPool(connector, size=size, most_rooms=most_rooms, limit_s=limit_s)
    await pool
    return pool


async def enter_room(connection: asyncpg.Connection, room: str) -> None:
    """Let a session find the tables of another room."""
    await _QUERIES["enter_room"].exec(connection, search_path=quote_identifier(room))
