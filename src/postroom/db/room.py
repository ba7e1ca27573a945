"""An open room: the database it lives in, reached and checked.

Start order is a promise: the database answers, then it is migrated or checked, then a caller gets it. Any failure is
one clear error before anything listens.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from postroom.db.embedded import EmbeddedServer
from postroom.db.migrate import check_migrated, migrate
from postroom.db.pool import Pool, open_pool
from postroom.settings import Settings


@dataclass(frozen=True, slots=True)
class Room:
    """One schema of one database, and the way to it."""

    settings: Settings
    url: str = field(repr=False)
    direct_url: str = field(repr=False)  # around the pooler: LISTEN, migrations, advisory locks
    pool: Pool = field(repr=False)

    @property
    def name(self) -> str:
        return self.settings.schema


@asynccontextmanager
async def open_database(settings: Settings) -> AsyncIterator[tuple[str, str]]:
    """The URLs of the database, pooled and direct; without a configured one, of the embedded server."""
    if settings.database_url is not None:
        yield settings.database_url, settings.database_direct_url or settings.database_url
        return
    async with EmbeddedServer(settings.data_dir.absolute()) as server:
        watch = asyncio.create_task(server.keep_running(), name="embedded server")
        try:
            yield server.url, server.url
        finally:
            watch.cancel()
            with suppress(asyncio.CancelledError):
                await watch


@asynccontextmanager
async def open_room(settings: Settings, *, migrating: bool = False) -> AsyncIterator[Room]:
    """Reach the database and make sure the room is what this version needs: migrated here, or checked."""
    async with open_database(settings) as (url, direct_url):
        if migrating:
            await migrate(direct_url, settings.schema)
        pool = await open_pool(url, settings.schema, size=settings.pool_size, pooled=settings.is_pooled)
        try:
            async with pool.acquire() as connection:
                await check_migrated(connection, settings.schema)
            yield Room(settings, url, direct_url, pool)
        finally:
            await pool.close()
