"""An open room: its database, connected and checked.

The start order is fixed: connect, migrate or check, then return the room. Every failure is one clear error before any
server listens.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from postroom.db.connection import Url, current
from postroom.db.errors import RoomMissing
from postroom.db.listen import Listener
from postroom.db.migrate import check_migrated, check_search_path, migrate
from postroom.db.pool import Pool, open_pool
from postroom.db.primary import identify_server, primary_followed
from postroom.embedded.server import EmbeddedServer, has_cluster
from postroom.runtime.loop import running
from postroom.settings import Settings


@dataclass(frozen=True, slots=True)
class Room:
    """One schema of one database, and its connections."""

    settings: Settings
    through_pooler: Url = field(repr=False)
    direct: Url = field(repr=False)  # without the pooler: LISTEN, migrations, advisory locks
    pool: Pool = field(repr=False)
    listener: Listener = field(repr=False)

    @property
    def url(self) -> str:
        return current(self.through_pooler)

    @property
    def direct_url(self) -> str:
        """The current direct URL; for repeated connections use `direct`."""
        return current(self.direct)

    @property
    def name(self) -> str:
        return self.settings.schema


@asynccontextmanager
async def open_database(settings: Settings, *, creating: bool = False) -> AsyncIterator[tuple[Url, Url]]:
    """The URLs of the database, pooled and direct; of the embedded server if none is configured.

    The embedded server is started if it does not run; its URL is read from its state file for each new connection. A
    data directory is created only with `creating`; otherwise `RoomMissing` is raised.
    """
    if settings.database_url is not None:
        yield settings.database_url, settings.database_direct_url or settings.database_url
        return
    if not creating and not has_cluster(settings.data_dir.absolute()):
        raise RoomMissing
    server = EmbeddedServer(settings.data_dir.absolute())
    async with server, running(server.keep_running(), "embedded server"):
        yield server.find_url, server.find_url


@asynccontextmanager
async def open_room(settings: Settings, *, migrating: bool = False) -> AsyncIterator[Room]:
    """Connect to the database and migrate or check the room."""
    async with open_database(settings, creating=migrating) as (url, direct_url):
        if migrating:
            await migrate(direct_url, settings.schema)
        pool = await open_pool(
            url,
            settings.schema,
            size=settings.pool_size,
            pooled=settings.is_pooled,
            timeout=settings.database_timeout,
        )
        try:
            async with pool.acquire() as connection:
                await check_search_path(connection, settings.schema)
                await check_migrated(connection, settings.schema)
                server = await identify_server(connection)
            async with (
                Listener(direct_url, settings.schema) as listener,
                primary_followed(pool.connector, listener.connector, server=server),
            ):
                yield Room(settings, url, direct_url, pool, listener)
        finally:
            await pool.close()
