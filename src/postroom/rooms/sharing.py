"""Rooms that share the connections of their server."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

from postroom.db.listen import Listener
from postroom.db.primary import primary_followed
from postroom.db.room import Room
from postroom.db.shared_pool import open_shared_pool
from postroom.rooms.service import Server

RoomOn = Callable[[Server, str], Room]
"""Opens a room of a server by name; it connects to nothing."""


@asynccontextmanager
async def connections_shared(servers: Sequence[Server]) -> AsyncIterator[RoomOn]:
    """One pool of POSTROOM_POOL_SIZE connections for each server, for all its rooms."""
    async with AsyncExitStack() as stack:
        shared = {}
        for server in servers:
            settings = server.settings
            pool = await open_shared_pool(server.url, size=settings.pool_size, limit=settings.database_timeout)
            stack.push_async_callback(pool.close)
            await stack.enter_async_context(primary_followed(pool.connector))
            shared[server.name] = pool, await stack.enter_async_context(Listener(server.url, "pg_catalog"))

        def room_on(server: Server, name: str) -> Room:
            pool, listener = shared[server.name]
            return Room(server.settings_of(name), server.url, server.url, pool.of(name), listener)

        yield room_on
