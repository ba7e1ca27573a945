"""Forward-only migrations and canonical function files.

`db/migrations/NNNN_<capability>.sql` creates the tables of a capability; a later version changes them by
`NNNN_<capability>_<change>.sql`. Each file is applied once, in its own transaction. Stored functions have one file
each in `<capability>/functions/`, which is applied again whenever its text changes. An advisory lock serialises
concurrent starts. A database that a later version migrated is rejected, and so is an applied file that was edited
since.
"""

import dataclasses
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable

import asyncpg

from postroom.db.comments import read_comments
from postroom.db.connection import Url
from postroom.db.errors import DatabaseError, DatabaseNewer, MigrationChanged, MigrationPending
from postroom.db.pool import connect, quote_identifier
from postroom.db.queries import load

CAPABILITIES = (
    "db",
    "erasure",
    "events",
    "stats",
    "tracking",
    "feedback",
    "inbox",
    "senders",
    "limits",
    "mail",
    "delivery",
    "accounts",
    "schedule",
    "intake",
    "campaigns",
    "outbox",
    "archive",
    "http",
    "rooms",
)
"""The packages with stored functions; a function in LANGUAGE sql comes after those that it calls."""

_QUERIES = load("postroom.db")


@dataclass(frozen=True, slots=True)
class SqlFile:
    """One SQL file: its name and its text."""

    name: str
    text: str

    @property
    def checksum(self) -> str:
        return _sha256(self.text)

    @property
    def version(self) -> int:
        return int(self.name.partition("_")[0])

    @property
    def capability(self) -> str:
        """The second part of a migration's name."""
        return self.name.removesuffix(".sql").split("_")[1]


@dataclass(frozen=True, slots=True)
class MigrationPlan:
    """The files that a migration run applies, or has applied."""

    migrations: tuple[SqlFile, ...]
    functions: tuple[SqlFile, ...]

    @property
    def is_empty(self) -> bool:
        return not (self.migrations or self.functions)


@cache
def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@cache  # health checks and every opened room ask
def migration_files() -> tuple[SqlFile, ...]:
    return _sql_files(files("postroom.db").joinpath("migrations"), prefix="", only_numbered=True)


@cache
def function_files() -> tuple[SqlFile, ...]:
    found: list[SqlFile] = []
    for capability in CAPABILITIES:
        folder = files("postroom").joinpath(capability, "functions")
        if folder.is_dir():
            found += _sql_files(folder, prefix=f"{capability}/")
    return tuple(found)


async def migrate(url: Url, room: str, *, dry_run: bool = False) -> MigrationPlan:
    """Migrate the room to this version. With `dry_run`, only return the plan."""
    connection = await connect(url, room)
    try:
        await _QUERIES["lock_migrations"].exec(connection, room=room)
        await _ensure_schema(connection, room, dry_run=dry_run)
        plan = await _plan(connection, room)
        if not dry_run:
            await _apply(connection, plan)
        return plan
    finally:
        await connection.close()


async def check_search_path(connection: asyncpg.Connection, room: str) -> None:
    """Raise `DatabaseError` if sessions do not find the room's tables, as behind a pooler that drops settings."""
    row = await _QUERIES["describe_session"].one(connection)
    exists = await _QUERIES["find_schema"].maybe(connection, room=room)
    if exists is not None and row["schema"] != room:
        raise DatabaseError(
            f"The search path of role {row['role']!r} is {row['schema'] or 'empty'}, not {room!r}. "
            f"Behind a pooler it must come from the role: ALTER ROLE {quote_identifier(row['role'])} "
            f"SET search_path = {quote_identifier(room)}"
        )
    if row["timezone"] != "UTC":
        raise DatabaseError(
            f"Sessions of role {row['role']!r} have the time zone {row['timezone']}, not UTC. Behind a pooler it must "
            f"come from the role: ALTER ROLE {quote_identifier(row['role'])} SET timezone = 'UTC'"
        )


async def check_migrated(connection: asyncpg.Connection, room: str) -> None:
    """Raise `MigrationPending` unless the room is completely restored and has exactly this version's files."""
    await _check_whole(connection, room)
    plan = await _plan(connection, room)
    if not plan.is_empty:
        waiting = ", ".join(file.name for file in (*plan.migrations, *plan.functions)[:3])
        raise MigrationPending(f"The room {room!r} lacks {waiting}; run `postroom migrate`.")


async def check_served(connection: asyncpg.Connection, room: str) -> None:
    """Raise `MigrationPending` if the room lacks a migration of this version, or its restore is unfinished.

    A running process continues when a newer version migrates the room: migrations only add, and functions keep their
    parameters. Otherwise an upgrade would remove every old process from its load balancer at once.
    """
    await _check_whole(connection, room)
    applied = {row["name"] for row in await _QUERIES["list_applied_files"].many(connection)}
    missing = [file.name for file in migration_files() if file.name not in applied]
    if missing:
        raise MigrationPending(f"The room {room!r} lacks {missing[0]}; run `postroom migrate`.")


async def _check_whole(connection: asyncpg.Connection, room: str) -> None:
    if await _QUERIES["find_restore"].maybe(connection, room=room) is not None:
        raise MigrationPending(f"The room {room!r} is half restored; run `postroom restore` again, with the same file.")


async def _ensure_schema(connection: asyncpg.Connection, room: str, *, dry_run: bool) -> None:
    row = await _QUERIES["find_schema"].maybe(connection, room=room)
    if row is not None or dry_run:
        return
    try:
        await connection.execute(f"CREATE SCHEMA {quote_identifier(room)}")
    except asyncpg.InsufficientPrivilegeError as error:
        raise DatabaseError(
            f"The schema {room!r} does not exist and this role may not create it; "
            f"ask the database's owner for: CREATE SCHEMA {quote_identifier(room)} AUTHORIZATION <role>"
        ) from error


async def _plan(connection: asyncpg.Connection, room: str) -> MigrationPlan:
    migrations, functions = migration_files(), function_files()
    exists = await _QUERIES["find_migrations_table"].maybe(connection, room=room)
    if exists is None:
        return MigrationPlan(migrations, functions)
    applied = {row["name"]: row["checksum"] for row in await _QUERIES["list_applied_files"].many(connection)}
    known = {file.name for file in migrations}
    newer = sorted(name for name in applied if "/" not in name and name not in known)
    if newer:
        raise DatabaseNewer(f"The room {room!r} has {newer[-1]}, which this version does not know; upgrade Postroom.")
    for file in migrations:
        if applied.get(file.name, file.checksum) != file.checksum:
            raise MigrationChanged(f"{file.name} was edited after it had been applied to {room!r}.")
    return MigrationPlan(
        tuple(file for file in migrations if file.name not in applied),
        tuple(file for file in functions if applied.get(file.name) != file.checksum),
    )


async def _apply(connection: asyncpg.Connection, plan: MigrationPlan) -> None:
    if plan.is_empty:
        return
    await _QUERIES["create_migrations_table"].exec(connection)
    for file in plan.migrations:
        async with connection.transaction():
            await connection.execute(file.text)
            await _QUERIES["record_applied_file"].exec(connection, name=file.name, checksum=file.checksum)
    await _QUERIES["put_temporary_tables_last"].exec(connection)
    async with connection.transaction():
        for file in plan.functions:
            await connection.execute(file.text)
            await _QUERIES["record_applied_file"].exec(connection, name=file.name, checksum=file.checksum)
        await _QUERIES["close_functions"].exec(connection)
        await _QUERIES["describe_room"].exec(connection, **comment_texts(migration_files(), function_files()))


def comment_texts(migrations: Sequence[SqlFile], functions: Sequence[SqlFile]) -> dict[str, str]:
    """The comments of these files, in the form that `describe_room` takes."""
    comments = read_comments([file.text for file in migrations], [file.text for file in functions])
    return {name: json.dumps(texts, sort_keys=True) for name, texts in dataclasses.asdict(comments).items()}


def _sql_files(folder: Traversable, *, prefix: str, only_numbered: bool = False) -> tuple[SqlFile, ...]:
    return tuple(
        SqlFile(prefix + entry.name, entry.read_text("utf-8"))
        for entry in sorted(folder.iterdir(), key=lambda entry: entry.name)
        if entry.name.endswith(".sql") and (not only_numbered or entry.name[:4].isdigit())
    )
