"""Helpers for tests of many rooms: several databases of the run's server stand for several servers."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import asyncpg
from tests.conftest import SCHEMA, TestServer, cloned_database

from postroom.db.migrate import migrate
from postroom.settings import Settings


async def execute(url: str, statement: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()


@asynccontextmanager
async def servers_with(server: TestServer, *names: str, working: bool = False) -> AsyncIterator[Settings]:
    """Settings of servers a, b, …, each a database with one room of the given name.

    The room is a renamed one, whose functions still search the old name; `working` creates them again.
    """
    async with AsyncExitStack() as stack:
        urls = [await stack.enter_async_context(cloned_database(server)) for _ in names]
        for url, name in zip(urls, names, strict=True):
            if name != SCHEMA:
                await execute(url, f"ALTER SCHEMA {SCHEMA} RENAME TO {name}")
            if working and name != SCHEMA:
                await execute(url, f"DELETE FROM {name}.migrations WHERE name LIKE '%/%'")
                await migrate(url, name)
        yield Settings(servers=tuple(zip("abc", urls, strict=False)))


async def fetch_value(url: str, statement: str, *arguments: Any) -> Any:
    connection = await asyncpg.connect(url)
    try:
        return await connection.fetchval(statement, *arguments)
    finally:
        await connection.close()


def table_of(settings: Settings) -> str:
    """The value of POSTROOM_SERVERS."""
    return "\n".join(f"{name}={url}" for name, url in settings.servers)
