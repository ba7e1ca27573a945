"""Forward-only migrations and canonical function files.

`db/migrations/NNNN_<capability>.sql` creates the tables of a capability; a later release changes them. Each file is
applied once, in its own transaction. Stored functions have one file each in `<capability>/functions/`, which is applied
again whenever its text changes. An advisory lock serialises concurrent starts. An applied file must not be edited.

Two releases run side by side during an upgrade, so a release changes the schema in two phases:

    before   `NNNN_<capability>_<change>.sql` and all functions, before the first new process starts. Old processes
             continue on the result: tables and columns are only added, and functions keep their names and parameters
    after    `NNNN_<capability>_<change>.after.sql`, when no old process is left: it removes what only those used

In a release, files of the first phase have the lower numbers. A file of the second phase that a later release follows
is overdue, and applied with the first phase of that release.

A process accepts a room that the next release has migrated, until that release's second phase; it refuses every other
newer room, and a room without the first phase of its own release.
"""

import dataclasses
import hashlib
import json
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import TypeAlias

import asyncpg

from postroom.db.comments import read_comments
from postroom.db.connection import Url
from postroom.db.errors import (
    DatabaseError,
    DatabaseNewer,
    MigrationChanged,
    MigrationPending,
    OldProcessRuns,
    RoomMissing,
)
from postroom.db.pool import connected, quote_identifier
from postroom.db.queries import Connection, load

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

RELEASE = 2
"""The number of this release's schema. The first change of tables or functions after a release increments it."""

PROCESS_SILENCE = timedelta(minutes=3)  # a running process reports every minute

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
        return self.name.partition(".")[0].split("_")[1]

    @property
    def is_after(self) -> bool:
        """True for a migration of the second phase."""
        return is_after(self.name)


@dataclass(frozen=True, slots=True)
class MigrationPlan:
    """The files that a migration run applies, or has applied; `later` are those that wait for the second phase."""

    migrations: tuple[SqlFile, ...]
    functions: tuple[SqlFile, ...]
    later: tuple[SqlFile, ...] = ()

    @property
    def is_empty(self) -> bool:
        return not (self.migrations or self.functions)


def is_after(name: str) -> bool:
    return name.endswith(".after.sql")


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


async def migrate(url: Url, room: str, *, dry_run: bool = False, after: bool = False) -> MigrationPlan:
    """Apply the first phase of this release, with `after` also the second. With `dry_run`, only return the plan.

    Raises `OldProcessRuns` while a process runs that the result would break. A new room gets both phases.
    """
    async with connected(url, room) as connection:
        await _QUERIES["lock_migrations"].exec(connection, room=room)
        await _ensure_schema(connection, room, dry_run=dry_run)
        plan = await _plan(connection, room, after=after)
        if not dry_run:
            # The second phase is one transaction, so that no process starts between the check and its end.
            has_processes = await _QUERIES["find_processes_table"].maybe(connection, room=room) is not None
            is_second = has_processes and any(file.is_after for file in plan.migrations)
            async with connection.transaction() if is_second else nullcontext():
                if is_second:
                    await _QUERIES["lock_starts"].exec(connection)
                if has_processes:
                    await _check_processes(connection, room, oldest=RELEASE if after else RELEASE - 1)
                await _apply(connection, plan)
        return plan


_NAMES_OF_UTC = frozenset({"utc", "uct", "universal", "zulu"})
"""Also below `Etc/`; Debian sets `Etc/UTC`."""

_RECONNECT = "Connections that the pooler has open keep the old value until it reconnects (PgBouncer: RECONNECT)."


async def check_search_path(connection: asyncpg.Connection, room: str) -> None:
    """Raise `DatabaseError` if sessions do not find the room's tables, as behind a pooler that drops settings."""
    row = await _QUERIES["describe_session"].one(connection)
    exists = await _QUERIES["find_schema"].maybe(connection, room=room)
    if exists is not None and row["schema"] != room:
        raise DatabaseError(
            f"The search path of role {row['role']!r} is {row['schema'] or 'empty'}, not {room!r}. "
            f"Behind a pooler it must come from the role: ALTER ROLE {quote_identifier(row['role'])} "
            f"SET search_path = {quote_identifier(room)}. {_RECONNECT}"
        )
    if row["timezone"].lower().removeprefix("etc/") not in _NAMES_OF_UTC:
        raise DatabaseError(
            f"Sessions of role {row['role']!r} have the time zone {row['timezone']}, not UTC. Behind a pooler it must "
            f"come from the role: ALTER ROLE {quote_identifier(row['role'])} SET timezone = 'UTC'. {_RECONNECT}"
        )


async def check_exists(connection: asyncpg.Connection, room: str) -> None:
    """Raise `RoomMissing`, which names the rooms that the database has instead."""
    if await _QUERIES["find_migrations_table"].maybe(connection, room=room) is None:
        others = [row["name"] for row in await list_rooms(connection) if row["is_permitted"]]
        raise RoomMissing.named(room, others)


async def list_rooms(connection: Connection) -> list[asyncpg.Record]:
    """The schemas of the database that have a room, or a restore that began."""
    return await _QUERIES["list_rooms"].many(connection)


async def check_migrated(connection: asyncpg.Connection, room: str) -> None:
    """Raise `MigrationPending` if the room lacks a file of this release, or its restore is unfinished.

    Raises `RoomMissing` without a room. Raises `DatabaseNewer` unless this process can run on it: see the phases above.
    """
    await _check_whole(connection, room)
    await check_exists(connection, room)
    applied = await _read_applied(connection, room)
    _check_usable(applied, room)
    plan = _plan_for(applied, room)
    if not plan.is_empty:
        waiting = ", ".join(file.name for file in (*plan.migrations, *plan.functions)[:3])
        raise MigrationPending(f"The room {room!r} lacks {waiting}; run `postroom migrate`.")


async def list_later(connection: asyncpg.Connection, room: str) -> tuple[SqlFile, ...]:
    """The files of the second phase that have not been applied."""
    return _plan_for(await _read_applied(connection, room), room).later


async def check_served(connection: asyncpg.Connection, room: str) -> None:
    """Raise `MigrationPending` or `DatabaseNewer` if a running process can no longer work on the room.

    It continues during an upgrade. Otherwise the first phase would remove every old process from its load balancer.
    """
    await _check_whole(connection, room)
    applied = await _read_applied(connection, room)
    _check_usable(applied, room)
    missing = _plan_for(applied, room).migrations
    if missing:
        raise MigrationPending(f"The room {room!r} lacks {missing[0].name}; run `postroom migrate`.")


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


Applied: TypeAlias = dict[str, asyncpg.Record]
"""The applied files by name: the checksum of the text, and the release that applied it."""


async def _read_applied(connection: asyncpg.Connection, room: str) -> Applied:
    """Empty for a room that does not exist."""
    if await _QUERIES["find_migrations_table"].maybe(connection, room=room) is None:
        return {}
    return {row["name"]: row for row in await _QUERIES["list_applied_files"].many(connection)}


async def _plan(connection: asyncpg.Connection, room: str, *, after: bool = False) -> MigrationPlan:
    applied = await _read_applied(connection, room)
    newest = max((row["release"] for row in applied.values()), default=0)
    if newest > RELEASE:
        raise DatabaseNewer(f"Release {newest} has migrated the room {room!r}, this is release {RELEASE}: upgrade it.")
    return _plan_for(applied, room, after=after)


def _plan_for(applied: Applied, room: str, *, after: bool = False) -> MigrationPlan:
    migrations = migration_files()
    for file in migrations:
        if file.name in applied and applied[file.name]["checksum"] != file.checksum:
            raise MigrationChanged(f"{file.name} was edited after it had been applied to {room!r}.")
    pending = [file for file in migrations if file.name not in applied]
    last = max(file.version for file in migrations if not file.is_after)
    both = after or not applied
    due = tuple(file for file in pending if both or not file.is_after or file.version < last)
    functions = tuple(file for file in function_files() if not _has(applied, file))
    return MigrationPlan(due, functions, tuple(file for file in pending if file not in due))


def _has(applied: Applied, function: SqlFile) -> bool:
    """True if the room has this text of a function, or that of a newer release, which keeps its parameters."""
    row = applied.get(function.name)
    return row is not None and (row["checksum"] == function.checksum or row["release"] > RELEASE)


def _check_usable(applied: Applied, room: str) -> None:
    """Raise `DatabaseNewer` for a room that has lost what this release needs, or may have."""
    newest = max((row["release"] for row in applied.values()), default=0)
    if newest > RELEASE + 1:
        problem = f"release {newest} has migrated it, and this is release {RELEASE}"
    elif unknown := sorted(name for name in applied if is_after(name) and name not in _known_names()):
        problem = f"it has {unknown[-1]}, with which the next release removed what this one needs"
    else:
        return
    raise DatabaseNewer(f"This process cannot run on the room {room!r}: {problem}. Upgrade Postroom.")


@cache
def _known_names() -> frozenset[str]:
    return frozenset(file.name for file in migration_files())


async def _check_processes(connection: asyncpg.Connection, room: str, *, oldest: int) -> None:
    """Raise `OldProcessRuns` if a process of an earlier release than `oldest` runs."""
    rows = await _QUERIES["list_old_processes"].many(connection, oldest=oldest, silence=PROCESS_SILENCE)
    if rows:
        shown = ", ".join(f"{row['command']} on {row['host']} (pid {row['pid']})" for row in rows)
        raise OldProcessRuns(
            f"Processes of an older release run on the room {room!r}: {shown}. Stop them and run the command again; a "
            f"process that was killed counts for {PROCESS_SILENCE.total_seconds() / 60:g} minutes."
        )


async def _apply(connection: asyncpg.Connection, plan: MigrationPlan) -> None:
    if plan.is_empty:
        return
    await _QUERIES["create_migrations_table"].exec(connection)
    for file in plan.migrations:
        async with connection.transaction():
            await _apply_files(connection, [file])
    await _QUERIES["put_temporary_tables_last"].exec(connection)
    async with connection.transaction():
        await _apply_files(connection, plan.functions)
        await _QUERIES["close_functions"].exec(connection)
        await _QUERIES["describe_room"].exec(connection, **comment_texts(migration_files(), function_files()))


async def _apply_files(connection: asyncpg.Connection, batch: Sequence[SqlFile]) -> None:
    """Run these files in one round trip: a room has 250 functions, and one at a time they took half of its creation."""
    if not batch:
        return  # an upgrade without a changed function; the driver fails on an empty statement
    await connection.execute("\n".join(file.text for file in batch))
    names, checksums = [file.name for file in batch], [file.checksum for file in batch]
    await _QUERIES["record_applied_files"].exec(connection, names=names, checksums=checksums, release=RELEASE)


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
