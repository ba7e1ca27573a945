"""Rooms that share the connections of their server and of its replica."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from postroom.db.listen import Listener
from postroom.db.pool import Pool
from postroom.db.primary import primary_followed
from postroom.db.replica import Replica, ReplicaFollower, following, replica_url
from postroom.db.room import Room
from postroom.db.shared_pool import SharedPool, open_shared_pool
from postroom.rooms.service import Server


@dataclass(frozen=True, slots=True)
class ServerConnections:
    """The connections of a process to one server."""

    server: Server
    pool: SharedPool = field(repr=False)
    listener: Listener = field(repr=False)
    replica: ReplicaFollower | None = field(repr=False)

    def room(self, name: str) -> Room:
        """Opens a room by name; it connects to nothing."""
        server = self.server
        return Room(server.settings_of(name), server.url, server.url, self.pool.of(name), self.listener)

    def replica_of(self, room: Room) -> Replica | None:
        """The server's replica as this room reads it."""
        return None if self.replica is None else Replica(self.replica, room.pool, partial(_of, room.name))


SharedConnections = dict[str, ServerConnections]
"""By the name of the server."""


@asynccontextmanager
async def connections_shared(servers: Sequence[Server]) -> AsyncIterator[SharedConnections]:
    """One pool of POSTROOM_POOL_SIZE connections for each server, for all its rooms; the same for its replica."""
    async with AsyncExitStack() as stack:
        yield {server.name: await _connect(server, stack) for server in servers}


async def _connect(server: Server, stack: AsyncExitStack) -> ServerConnections:
    settings, replica = server.settings, None
    sizes: dict[str, Any] = {"size": settings.pool_size, "limit": settings.database_timeout}
    pool = await open_shared_pool(server.url, **sizes)
    stack.push_async_callback(pool.close)
    if settings.replica_url is not None:
        open_copy = partial(open_shared_pool, replica_url(settings), **sizes)
        checks = partial(_of, "pg_catalog")
        replica = ReplicaFollower(pool.of("pg_catalog"), settings.replica_lag, open_copy, checks=checks)
        await stack.enter_async_context(following(replica))
    listener = await stack.enter_async_context(Listener(server.url, "pg_catalog"))
    await stack.enter_async_context(primary_followed(pool.connector, listener.connector))
    return ServerConnections(server, pool, listener, replica)


def _of(room: str, pool: Pool) -> Pool:
    return pool.of(room)
