"""Connections to the room.

Connections find tables through `search_path`; no statement names the schema. Their time zone is UTC, independent of
the server's, so that service and constraints agree on today's date. Behind a transaction pooler (PgBouncer) prepared
statements are off and both settings must come from the role, because a pooler does not keep session settings: `ALTER
ROLE … SET search_path = …` and `ALTER ROLE … SET timezone = 'UTC'`.
"""

import asyncio
from datetime import timedelta
from typing import Any, TypeAlias
from urllib.parse import urlsplit

import asyncpg

from postroom.db.connection import CONNECT_S, END_S, Connector, PostgresConnection, Url, reason_of
from postroom.db.errors import DatabaseUnreachable
from postroom.db.url import hosts_of

Pool: TypeAlias = asyncpg.Pool
Session: TypeAlias = asyncpg.Connection
"""A connection with transactions, COPY and notifications; statements need only the part named `Connection`."""

_UNREACHED = (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)


def quote_identifier(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def session_options(room: str, *, pooled: bool = False) -> dict[str, Any]:
    """The driver's options of a session that finds the tables of the room."""
    if pooled:
        return {"statement_cache_size": 0}
    return {
        "server_settings": {
            "search_path": quote_identifier(room),
            "application_name": "postroom",
            "timezone": "UTC",
            "jit": "off",  # every statement is short; JIT compilation costs more than it saves
            # A plan made for a small table stays in use while the table grows; every statement has an index.
            "enable_seqscan": "off",
        }
    }


class LimitedPool(asyncpg.Pool):  # type: ignore[misc]  # the driver is shipped without type information
    """A pool with a timeout for acquiring, releasing and closing."""

    __slots__ = ("_acquire_s", "connector")

    def __init__(self, connector: Connector, *, size: int, init_size: int, limit_s: float | None) -> None:
        super().__init__(
            connect=connector,
            init_size=init_size,
            min_size=0,  # the driver logs a traceback, not JSON, for each failure to keep a minimum open
            max_size=size,
            max_queries=50_000,
            max_inactive_connection_lifetime=300,
            reset=_leave_as_is,
            loop=None,
            connection_class=PostgresConnection,
            record_class=asyncpg.Record,
        )
        self._acquire_s = None if limit_s is None else limit_s + CONNECT_S
        self.connector = connector

    def acquire(self, *, timeout: float | None = None) -> Any:
        return super().acquire(timeout=self._acquire_s if timeout is None else timeout)

    async def release(self, connection: Any, *, timeout: float | None = None) -> None:  # noqa: ASYNC109 - as above
        await super().release(connection, timeout=END_S if timeout is None else timeout)

    async def close(self) -> None:
        try:
            async with asyncio.timeout(END_S):
                await super().close()
        except TimeoutError:
            self.terminate()


async def open_pool(
    url: Url,
    room: str,
    *,
    size: int = 20,
    pooled: bool = False,
    timeout: timedelta | None = None,  # noqa: ASYNC109 - the limit of each statement, not of this call
) -> Pool:
    """A pool of connections to the room. Raises `DatabaseUnreachable` if no server responds.

    `timeout` limits each statement; a connection that exceeds it is dropped. Acquiring a connection takes at most as
    long as a statement and a connect together.
    """
    options = session_options(room, pooled=pooled)
    limit_s = None if timeout is None else timeout.total_seconds()
    connector = Connector(url, options={**options, "command_timeout": limit_s})
    try:
        return await LimitedPool(connector, size=size, init_size=1, limit_s=limit_s)
    except _UNREACHED as error:
        raise _unreachable(connector.url, error) from error


async def _leave_as_is(_connection: Session) -> None:
    """Skip the reset of a released connection; asyncpg has already rolled back an open transaction.

    A reset would be a second round trip for every statement, and there is nothing to reset: LISTEN, session locks and
    settings use connections of their own, made by `connect`.
    """


async def connect(url: Url, room: str, *, pooled: bool = False) -> Session:
    """One connection outside any pool, for LISTEN, migrations and advisory locks. Statements have no time limit."""
    connector = Connector(url, options=session_options(room, pooled=pooled))
    try:
        return await connector()
    except _UNREACHED as error:
        raise _unreachable(connector.url, error) from error


def _unreachable(url: str, error: Exception) -> DatabaseUnreachable:
    hosts = hosts_of(url)
    where = (",".join(str(host) for host in hosts) or "local socket") + urlsplit(url).path
    return DatabaseUnreachable(f"The database at {where} cannot be reached: {reason_of(error)}")
