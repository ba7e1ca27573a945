"""Connections of other drivers, with the methods of `db.queries.Connection`.

Statements are written once, with `$1, $2, …`, and the functions around them once, as coroutines. The adapter of a
driver only executes: it passes the statement and its parameters on in the driver's own form. It runs in the caller's
transaction and never begins or ends one. Adapters of synchronous drivers are coroutines that never suspend, so that
`postroom.blocking` runs the same functions without an event loop.

No driver is imported here: a connection is recognised by the names of its classes.
"""

import re
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar, cast
from zoneinfo import ZoneInfo

from postroom.db.queries import Connection

Result = TypeVar("Result")

_PLACEHOLDER = re.compile(r"\$(\d+)")
_XID8, _TIMESTAMPTZ = 5069, 1184  # the OIDs of types that drivers read in different ways

Reader = Callable[[Any], Any]
_READERS: dict[int, Reader] = {_XID8: int}
"""Makes asyncpg's values of others', by the OID of their type: other drivers return xid8 as text."""

_UNKNOWN = (
    "{} is not a connection that Postroom can use. Pass one of asyncpg, psycopg, psycopg2, SQLAlchemy or Django. With"
    " another driver, execute SELECT postroom.send(…) on your connection (docs/reference/sql.md)."
)
_NOT_POSTGRESQL = "This connection leads to {}, and a room is a schema of a PostgreSQL database."


class DriverRow:
    """A row whose values are read by position or by column name."""

    __slots__ = ("_places", "_values")

    def __init__(self, places: dict[str, int], values: Sequence[Any]) -> None:
        self._places, self._values = places, values

    def __getitem__(self, key: str | int | slice) -> Any:
        return self._values[self._places[key] if isinstance(key, str) else key]


Execute = Callable[[Any, str, Sequence[Any]], Awaitable[list[DriverRow]]]
"""Executes a statement on the driver's connection and returns its rows."""


@dataclass(frozen=True, slots=True)
class DriverConnection:
    """A connection of another driver."""

    connection: Any
    run: Execute

    async def execute(self, query: str, *args: Any) -> str:
        return f"SELECT {len(await self.run(self.connection, query, args))}"

    async def fetch(self, query: str, *args: Any) -> list[DriverRow]:
        return await self.run(self.connection, query, args)

    async def fetchrow(self, query: str, *args: Any) -> DriverRow | None:
        rows = await self.run(self.connection, query, args)
        return rows[0] if rows else None


def async_connection(connection: object) -> Connection:
    """The connection if it is asyncpg's or an adapter, or its adapter. Raises `TypeError`."""
    if callable(getattr(connection, "fetchrow", None)):
        return cast("Connection", connection)
    run = _find(_ASYNC, connection)
    if run is not None:
        return DriverConnection(connection, run)
    if _find(_BLOCKING, connection) is not None:
        raise TypeError(f"{_name(type(connection))} is a synchronous connection: use postroom.sync, without await.")
    raise TypeError(_UNKNOWN.format(_name(type(connection))))


def blocking_connection(connection: object) -> Connection:
    """The adapter of a synchronous connection, for `run_blocking`. Raises `TypeError`."""
    run = _find(_BLOCKING, connection)
    if run is not None:
        return DriverConnection(connection, run)
    if _find(_ASYNC, connection) is not None or callable(getattr(connection, "fetchrow", None)):
        raise TypeError(f"{_name(type(connection))} is an asynchronous connection: use `await postroom.send(…)`.")
    raise TypeError(_UNKNOWN.format(_name(type(connection))))


def _name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _find(table: dict[str, Execute], connection: object) -> Execute | None:
    return next((table[name] for name in map(_name, type(connection).__mro__) if name in table), None)


@lru_cache(maxsize=256)
def _pyformat(query: str) -> str:
    return _PLACEHOLDER.sub(r"%(p\1)s", query.replace("%", "%%"))


def _named(values: Sequence[Any]) -> dict[str, Any]:
    return {f"p{place}": value for place, value in enumerate(values, start=1)}


def _rows(
    description: Iterable[Any], fetched: Iterable[Sequence[Any]], readers: Mapping[int, Reader] = _READERS
) -> list[DriverRow]:
    columns = list(description)
    places = {column[0]: place for place, column in enumerate(columns)}
    changed = {place: readers[column[1]] for place, column in enumerate(columns) if column[1] in readers}
    return [DriverRow(places, _read_values(values, changed) if changed else values) for values in fetched]


def _read_values(values: Sequence[Any], readers: Mapping[int, Reader]) -> Sequence[Any]:
    changed = list(values)
    for place, read in readers.items():
        changed[place] = None if values[place] is None else read(values[place])
    return changed


async def _psycopg(connection: Any, query: str, values: Sequence[Any]) -> list[DriverRow]:
    driver = sys.modules["psycopg"]  # its own cursor: the application may have configured another one, or other rows
    with driver.Cursor(connection, row_factory=driver.rows.tuple_row) as cursor:
        return _execute(cursor, query, values)


async def _psycopg_async(connection: Any, query: str, values: Sequence[Any]) -> list[DriverRow]:
    driver = sys.modules["psycopg"]
    async with driver.AsyncCursor(connection, row_factory=driver.rows.tuple_row) as cursor:
        await cursor.execute(_pyformat(query), _named(values))
        return _rows(cursor.description, await cursor.fetchall())


async def _psycopg2(connection: Any, query: str, values: Sequence[Any]) -> list[DriverRow]:
    with connection.cursor(cursor_factory=sys.modules["psycopg2.extensions"].cursor) as cursor:
        return _execute(cursor, query, values)


async def _django(connection: Any, query: str, values: Sequence[Any]) -> list[DriverRow]:
    if connection.vendor != "postgresql":
        raise TypeError(_NOT_POSTGRESQL.format(connection.display_name))
    with connection.cursor() as cursor:
        if connection.timezone is not None:
            return _execute(cursor, query, values)
        # Without USE_TZ, Django reads times without a zone, in the zone of the session.
        zone = ZoneInfo(connection.timezone_name)
        return _execute(cursor, query, values, {**_READERS, _TIMESTAMPTZ: lambda time: time.replace(tzinfo=zone)})


def _execute(
    cursor: Any, query: str, values: Sequence[Any], readers: Mapping[int, Reader] = _READERS
) -> list[DriverRow]:
    cursor.execute(_pyformat(query), _named(values))
    return _rows(cursor.description, cursor.fetchall(), readers)


async def _sqlalchemy(connection: Any, query: str, values: Sequence[Any]) -> list[DriverRow]:
    return _read(connection.exec_driver_sql(*_in_dialect(connection.dialect, query, values)))


async def _sqlalchemy_session(session: Any, query: str, values: Sequence[Any]) -> list[DriverRow]:
    return await _sqlalchemy(session.connection(), query, values)


async def _sqlalchemy_async(connection: Any, query: str, values: Sequence[Any]) -> list[DriverRow]:
    return _read(await connection.exec_driver_sql(*_in_dialect(connection.dialect, query, values)))


async def _sqlalchemy_async_session(session: Any, query: str, values: Sequence[Any]) -> list[DriverRow]:
    return await _sqlalchemy_async(await session.connection(), query, values)


def _in_dialect(dialect: Any, query: str, values: Sequence[Any]) -> tuple[str, Any]:
    """The statement for the driver below SQLAlchemy: asyncpg numbers parameters, psycopg and psycopg2 name them."""
    if dialect.name != "postgresql":
        raise TypeError(_NOT_POSTGRESQL.format(dialect.name))
    if dialect.paramstyle == "numeric_dollar":
        return query, tuple(values)
    if dialect.paramstyle == "pyformat":
        return _pyformat(query), _named(values)
    raise TypeError(f"Postroom cannot use SQLAlchemy's dialect for {dialect.driver}. Use psycopg, psycopg2 or asyncpg.")


def _read(result: Any) -> list[DriverRow]:
    description = result.cursor.description  # before the rows, which close the cursor
    return _rows(description, result.all())


_BLOCKING: dict[str, Execute] = {
    "psycopg.Connection": _psycopg,
    "psycopg2.extensions.connection": _psycopg2,
    "sqlalchemy.engine.base.Connection": _sqlalchemy,
    "sqlalchemy.orm.session.Session": _sqlalchemy_session,
    "sqlalchemy.orm.scoping.scoped_session": _sqlalchemy_session,
    "django.db.backends.base.base.BaseDatabaseWrapper": _django,
    "django.utils.connection.ConnectionProxy": _django,
}
_ASYNC: dict[str, Execute] = {
    "psycopg.AsyncConnection": _psycopg_async,
    "sqlalchemy.ext.asyncio.engine.AsyncConnection": _sqlalchemy_async,
    "sqlalchemy.ext.asyncio.session.AsyncSession": _sqlalchemy_async_session,
    "sqlalchemy.ext.asyncio.scoping.async_scoped_session": _sqlalchemy_async_session,
}
