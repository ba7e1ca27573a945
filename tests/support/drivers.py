"""An application's own connection by every driver that Postroom knows, with one set of methods for tests.

The methods are coroutines. With a synchronous driver they never suspend, so that `run_blocking` runs a case without an
event loop: Django refuses to work inside of one.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import django
import psycopg
import psycopg2
import sqlalchemy
from django import db as django_db
from django.conf import settings
from django.db import transaction
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

import postroom
from postroom import sync
from postroom.blocking import run_blocking
from postroom.events import EventSession

if not settings.configured:
    settings.configure(USE_TZ=True, TIME_ZONE="Asia/Tokyo")
    django.setup()

Block = Callable[[], AbstractAsyncContextManager[Any]]


@dataclass(frozen=True)
class Application:
    """An application's connection. A block commits at its end, and rolls back after an exception."""

    connection: Any
    transaction: Block
    savepoint: Block

    async def send(self, **mail: Any) -> int:
        return sync.send(self.connection, **mail)

    async def events(self, method: str, *args: Any, **keywords: Any) -> Any:
        """Call a method of the event store on this connection."""
        return getattr(sync.EventStore(self.connection), method)(*args, **keywords)


class AsyncApplication(Application):
    """The same for an asynchronous driver."""

    async def send(self, **mail: Any) -> int:
        return await postroom.send(self.connection, **mail)

    async def events(self, method: str, *args: Any, **keywords: Any) -> Any:
        return await getattr(EventSession(self.connection, "postroom"), method)(*args, **keywords)


Opened = Callable[[str], AbstractAsyncContextManager[Application]]


def _entered(make: Callable[[], Any]) -> Block:
    """A block of a synchronous driver."""

    @asynccontextmanager
    async def block() -> AsyncIterator[None]:
        with make():
            yield

    return block


@asynccontextmanager
async def asyncpg_connection(url: str) -> AsyncIterator[Application]:
    connection = await asyncpg.connect(url)
    try:
        yield AsyncApplication(connection, connection.transaction, connection.transaction)
    finally:
        await connection.close()


@asynccontextmanager
async def psycopg_connection(url: str) -> AsyncIterator[Application]:
    with psycopg.connect(url) as connection:
        block = _entered(connection.transaction)
        yield Application(connection, block, block)


@asynccontextmanager
async def psycopg_async_connection(url: str) -> AsyncIterator[Application]:
    async with await psycopg.AsyncConnection.connect(url) as connection:
        yield AsyncApplication(connection, connection.transaction, connection.transaction)


@asynccontextmanager
async def psycopg2_connection(url: str) -> AsyncIterator[Application]:
    @asynccontextmanager
    async def savepoint() -> AsyncIterator[None]:
        with connection.cursor() as cursor:
            cursor.execute("SAVEPOINT inner_block")
            try:
                yield
            except BaseException:
                cursor.execute("ROLLBACK TO inner_block")
                raise

    with closing(psycopg2.connect(url)) as connection:
        yield Application(connection, _entered(lambda: connection), savepoint)


def _engine_url(url: str, driver: str) -> str:
    return url.replace("postgresql://", f"postgresql+{driver}://", 1)


def sqlalchemy_connection(driver: str) -> Opened:
    @asynccontextmanager
    async def opened(url: str) -> AsyncIterator[Application]:
        engine = sqlalchemy.create_engine(_engine_url(url, driver))
        with engine.connect() as connection:
            yield Application(connection, _entered(connection.begin), _entered(connection.begin_nested))
        engine.dispose()

    return opened


def sqlalchemy_session(driver: str) -> Opened:
    @asynccontextmanager
    async def opened(url: str) -> AsyncIterator[Application]:
        engine = sqlalchemy.create_engine(_engine_url(url, driver))
        with Session(engine) as session:
            yield Application(session, _entered(session.begin), _entered(session.begin_nested))
        engine.dispose()

    return opened


def sqlalchemy_async_connection(driver: str) -> Opened:
    @asynccontextmanager
    async def opened(url: str) -> AsyncIterator[Application]:
        engine = create_async_engine(_engine_url(url, driver))
        async with engine.connect() as connection:
            yield AsyncApplication(connection, connection.begin, connection.begin_nested)
        await engine.dispose()

    return opened


def sqlalchemy_async_session(driver: str) -> Opened:
    @asynccontextmanager
    async def opened(url: str) -> AsyncIterator[Application]:
        engine = create_async_engine(_engine_url(url, driver))
        async with AsyncSession(engine) as session:
            yield AsyncApplication(session, session.begin, session.begin_nested)
        await engine.dispose()

    return opened


@asynccontextmanager
async def django_connection(url: str) -> AsyncIterator[Application]:
    parts = urlsplit(url)
    place = {"HOST": parts.hostname, "PORT": parts.port, "USER": parts.username, "PASSWORD": parts.password}
    site = {"ENGINE": "django.db.backends.postgresql", "NAME": parts.path.lstrip("/"), **place}
    django_db.connections.settings = django_db.connections.configure_settings({"default": site})
    block = _entered(transaction.atomic)
    try:
        yield Application(django_db.connection, block, block)
    finally:
        django_db.connection.close()
        del django_db.connections["default"]


SYNCHRONOUS: dict[str, Opened] = {
    "psycopg": psycopg_connection,
    "psycopg2": psycopg2_connection,
    "sqlalchemy-connection-psycopg": sqlalchemy_connection("psycopg"),
    "sqlalchemy-connection-psycopg2": sqlalchemy_connection("psycopg2"),
    "sqlalchemy-session-psycopg": sqlalchemy_session("psycopg"),
    "sqlalchemy-session-psycopg2": sqlalchemy_session("psycopg2"),
    "django": django_connection,
}
ASYNCHRONOUS: dict[str, Opened] = {
    "asyncpg": asyncpg_connection,
    "psycopg-async": psycopg_async_connection,
    "sqlalchemy-async-connection-asyncpg": sqlalchemy_async_connection("asyncpg"),
    "sqlalchemy-async-connection-psycopg": sqlalchemy_async_connection("psycopg"),
    "sqlalchemy-async-session-asyncpg": sqlalchemy_async_session("asyncpg"),
    "sqlalchemy-async-session-psycopg": sqlalchemy_async_session("psycopg"),
}


def run_case(driver: str, url: str, case: Callable[[Application], Awaitable[None]]) -> None:
    """Run a case on a synchronous driver, without an event loop."""

    async def run() -> None:
        async with SYNCHRONOUS[driver](url) as app:
            await case(app)

    run_blocking(run())
