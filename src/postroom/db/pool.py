"""Connections to the room.

Connections find tables through `search_path`; no statement names the schema. Their time zone is UTC, independent of
the server's, so that service and constraints agree on today's date.

A host that loses its network in a transaction cannot end it, and the locks of the transaction stop the other hosts: one
row of `sender_accounts` stopped all mail of an account. So the server ends sessions whose client is gone: it probes
idle connections, and a pooled connection limits the time that a transaction waits for its next statement.

Behind a transaction pooler (PgBouncer) prepared statements are off and these settings must come from the role, because
a pooler does not keep session settings: `ALTER ROLE … SET search_path = …`, `ALTER ROLE … SET timezone = 'UTC'` and
`ALTER ROLE … SET idle_in_transaction_session_timeout = '30s'`.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, TypeAlias
from urllib.parse import urlsplit

import asyncpg

from postroom.db.connection import (
    CONNECT_S,
    END_S,
    TCP_OPTIONS,
    Connector,
    PostgresConnection,
    Url,
    reason_of,
)
from postroom.db.errors import DatabaseUnreachable
from postroom.db.url import hosts_of

Pool: TypeAlias = asyncpg.Pool
Session: TypeAlias = asyncpg.Connection
"""A connection with transactions, COPY and notifications; statements need only the part named `Connection`."""

_UNREACHED = (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)


_SERVER_WATCH = {
    "tcp_keepalives_idle": str(TCP_OPTIONS["TCP_KEEPIDLE"]),
    "tcp_keepalives_interval": str(TCP_OPTIONS["TCP_KEEPINTVL"]),
    "tcp_keepalives_count": str(TCP_OPTIONS["TCP_KEEPCNT"]),
    "tcp_user_timeout": str(TCP_OPTIONS["TCP_USER_TIMEOUT"]),
}
"""The server probes the client as the client probes the server; by default it would do so after two hours."""


def quote_identifier(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def session_options(room: str, *, pooled: bool = False, limit_s: float | None = None) -> dict[str, Any]:
    """The driver's options of a session that finds the tables of the room; `limit_s` limits each statement."""
    if pooled:
        return {"statement_cache_size": 0, "command_timeout": limit_s}
    return {
        "command_timeout": limit_s,
        "server_settings": {
            **_SERVER_WATCH,
            # The client is gone, or stands still for longer than it would wait for a statement; 0: no limit.
            "idle_in_transaction_session_timeout": str(round((limit_s or 0) * 1000)),
            "search_path": quote_identifier(room),
            "application_name": "postroom",
            "timezone": "UTC",
            "jit": "off",  # every statement is short; JIT compilation costs more than it saves
            # A plan made for a small table stays in use while the table grows; every statement has an index.
            "enable_seqscan": "off",
        },
    }


class LimitedPool(asyncpg.Pool):  # type: ignore[misc]  # the driver is shipped without type information
    """A pool with a timeout for acquiring, releasing and closing.

    A connection that is dropped expires all others: they are closed, and replaced when they are next acquired. A host
    that vanished has left all of them silent, and each would cost a statement timeout: 18 of them delayed the results
    of a worker by more than two minutes.
    """

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
            init=self._watch,
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

    async def _watch(self, connection: PostgresConnection) -> None:
        connection.on_drop = self._expire

    def _expire(self) -> None:
        self._generation += 1  # as `expire_connections` of the driver does, which is a coroutine

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
    limit_s = None if timeout is None else timeout.total_seconds()
    connector = Connector(url, options=session_options(room, pooled=pooled, limit_s=limit_s))
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


@asynccontextmanager
async def connected(url: Url, room: str, *, pooled: bool = False) -> AsyncIterator[Session]:
    """The same, closed at the end of the block."""
    session = await connect(url, room, pooled=pooled)
    try:
        yield session
    finally:
        await session.close()


def _unreachable(url: str, error: Exception) -> DatabaseUnreachable:
    hosts = hosts_of(url)
    where = (",".join(str(host) for host in hosts) or "local socket") + urlsplit(url).path
    what = (
        "refuses the login"
        if isinstance(error, asyncpg.InvalidAuthorizationSpecificationError)
        else "cannot be reached"
    )
    return DatabaseUnreachable(f"The database at {where} {what}: {reason_of(error)}")
