"""Connections to the room.

A pool's connections find everything through `search_path`; no statement names the schema. Their day is the day in UTC,
whatever the server's time zone: what the service calls today and what a constraint calls today must be the same. Behind
a transaction pooler (PgBouncer) prepared statements are off and both must come from the role, because a pooler does not
carry session settings: `ALTER ROLE … SET search_path = …` and `ALTER ROLE … SET timezone = 'UTC'`.
"""

from typing import Any, TypeAlias
from urllib.parse import urlsplit

import asyncpg

from postroom.errors import DatabaseUnreachable

Pool: TypeAlias = asyncpg.Pool
Session: TypeAlias = asyncpg.Connection


def quote_identifier(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _options(url: str, room: str, *, pooled: bool) -> dict[str, Any]:
    options: dict[str, Any] = {"dsn": url}
    if pooled:
        options["statement_cache_size"] = 0
    else:
        options["server_settings"] = {
            "search_path": quote_identifier(room),
            "application_name": "postroom",
            "timezone": "UTC",
            "jit": "off",  # every statement is short; compiling it costs more than running it
            # A plan made while a table was small stays in use while it grows; all our statements have their index.
            "enable_seqscan": "off",
        }
    return options


async def open_pool(url: str, room: str, *, size: int = 20, pooled: bool = False) -> Pool:
    """A pool whose connections live in the room. Raises `DatabaseUnreachable` when nothing answers."""
    try:
        return await asyncpg.create_pool(
            min_size=1,
            max_size=size,
            max_inactive_connection_lifetime=300,
            reset=_leave_as_is,
            **_options(url, room, pooled=pooled),
        )
    except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        raise _unreachable(url, error) from error


async def _leave_as_is(_connection: Session) -> None:
    """What a statement of ours leaves behind in its session: nothing. An open transaction is rolled back before this.

    Asking the server to reset everything after each use would be a second round trip for every statement; LISTEN,
    session locks and settings live on connections of their own, made by `connect`.
    """


async def connect(url: str, room: str) -> Session:
    """One connection outside any pool, for LISTEN, migrations and advisory locks."""
    try:
        return await asyncpg.connect(**_options(url, room, pooled=False))
    except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        raise _unreachable(url, error) from error


def _unreachable(url: str, error: Exception) -> DatabaseUnreachable:
    parts = urlsplit(url)
    where = f"{parts.hostname or 'local socket'}:{parts.port or 5432}{parts.path}"
    return DatabaseUnreachable(f"The database at {where} does not answer: {error}")
