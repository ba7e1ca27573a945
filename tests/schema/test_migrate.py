"""Migrations: forward only, once, concurrently, and never on an unknown database."""

import asyncio
import os
import re

import asyncpg
import pytest
from tests.conftest import TestServer

from postroom.db import migrate as migrating
from postroom.db.errors import (
    DatabaseError,
    DatabaseNewer,
    DatabaseUnreachable,
    MigrationChanged,
    MigrationPending,
    OldProcessRuns,
    RoomMissing,
)
from postroom.db.migrate import (
    RELEASE,
    SqlFile,
    check_migrated,
    check_served,
    function_files,
    migrate,
    migration_files,
)
from postroom.db.pool import Session, connect
from postroom.db.processes import process_registered
from postroom.db.room import Room

ROOM = "postroom"


async def test_a_migrated_room_needs_nothing(database_url: str) -> None:
    """Migrating twice does nothing the second time."""
    assert (await migrate(database_url, ROOM)).is_empty


async def test_a_dry_run_changes_nothing(database_url: str) -> None:
    """A dry run of a new room names every file and creates no schema."""
    plan = await migrate(database_url, "annex", dry_run=True)
    assert [file.name for file in plan.migrations] == [file.name for file in migration_files()]
    connection = await asyncpg.connect(database_url)
    assert await connection.fetchval("SELECT 1 FROM pg_namespace WHERE nspname = 'annex'") is None
    await connection.close()


async def test_processes_that_start_together_migrate_once(database_url: str) -> None:
    """Five processes migrating one new room at once all succeed, and one of them does the work."""
    plans = await asyncio.gather(*(migrate(database_url, "annex") for _ in range(5)))
    assert sorted(len(plan.migrations) for plan in plans) == [0, 0, 0, 0, len(migration_files())]


async def _migrated_by(connection: Session, release: int, name: str) -> None:
    """Record a file of a later release, which has also replaced a function."""
    await connection.execute("INSERT INTO migrations (name, checksum, release) VALUES ($1, 'x', $2)", name, release)
    await connection.execute(
        "UPDATE migrations SET checksum = 'newer', release = $1 WHERE name = 'delivery/send.sql'", release
    )


async def test_a_process_runs_on_a_room_that_the_next_release_has_prepared(database_url: str) -> None:
    """The first phase of the next release only adds: this one starts on it, and does not restore its own functions."""
    connection = await connect(database_url, ROOM)
    await _migrated_by(connection, RELEASE + 1, "9999_future_thing.sql")
    await check_migrated(connection, ROOM)
    await connection.close()
    with pytest.raises(DatabaseNewer, match=f"Release {RELEASE + 1} has migrated the room"):
        await migrate(database_url, ROOM)


async def test_a_missing_room_is_named_with_the_rooms_that_are_there(database_url: str) -> None:
    """No file names; with no room at all the URL is the suspect, and many rooms are counted."""
    connection = await connect(database_url, "nope")
    with pytest.raises(RoomMissing, match=r"no room 'nope' in this database; it has 'postroom'\. .* POSTROOM_SCHEMA"):
        await check_migrated(connection, "nope")
    await connection.execute("DROP SCHEMA postroom CASCADE")
    with pytest.raises(RoomMissing, match=r"no room 'nope' in this database\. .* or correct POSTROOM_DATABASE_URL"):
        await check_migrated(connection, "nope")
    await connection.close()
    error = RoomMissing.named("nope", [f"tenant_{n}" for n in range(8)])
    assert "it has 'tenant_0', 'tenant_1', 'tenant_2', 'tenant_3' and 'tenant_4', and 3 more." in error.message


@pytest.mark.parametrize("ahead, name", [(2, "9999_future_thing.sql"), (1, "9999_future_thing.after.sql")])
async def test_newer_database_is_rejected(database_url: str, ahead: int, name: str) -> None:
    """Two releases later, or after the second phase of the next one, this release no longer starts."""
    connection = await connect(database_url, ROOM)
    await _migrated_by(connection, RELEASE + ahead, name)
    for check in (check_migrated, check_served):
        with pytest.raises(DatabaseNewer, match="cannot run on the room"):
            await check(connection, ROOM)
    await connection.close()


async def test_the_second_phase_waits_for_the_end_of_old_processes(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file of the second phase is not applied with the first, nor while a process of the older release runs."""
    last = migration_files()[-1].version
    before = SqlFile(f"{last + 1:04}_db_added.sql", "CREATE TABLE added ();")
    after = SqlFile(f"{last + 2:04}_db_added.after.sql", "DROP TABLE loop_failures;")
    monkeypatch.setattr(migrating, "migration_files", lambda: (*migration_files(), before, after))
    monkeypatch.setattr(migrating, "RELEASE", RELEASE + 1)
    plan = await migrate(database_url, ROOM)
    assert (plan.migrations, plan.later) == ((before,), (after,))
    connection = await connect(database_url, ROOM)
    await connection.execute(
        "INSERT INTO processes (pid, release, host, command) VALUES (7, $1, 'old.example.org', 'serve')", RELEASE
    )
    with pytest.raises(OldProcessRuns, match=r"serve on old\.example\.org \(pid 7\)"):
        await migrate(database_url, ROOM, after=True)
    await connection.execute("UPDATE processes SET seen_at = now() - interval '4 minutes'")
    assert (await migrate(database_url, ROOM, after=True)).migrations == (after,)
    await connection.close()


async def test_an_overdue_second_phase_is_applied_with_the_next_release(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A release that follows one whose second phase was never applied applies it in the order of numbers."""
    last = migration_files()[-1].version
    after = SqlFile(f"{last + 1:04}_db_added.after.sql", "DROP TABLE loop_failures;")
    before = SqlFile(f"{last + 2:04}_db_again.sql", "CREATE TABLE loop_failures ();")
    monkeypatch.setattr(migrating, "migration_files", lambda: (*migration_files(), after, before))
    monkeypatch.setattr(migrating, "RELEASE", RELEASE + 2)
    connection = await connect(database_url, ROOM)
    await connection.execute("INSERT INTO processes (pid, release, host, command) VALUES (7, $1, 'h', 'work')", RELEASE)
    with pytest.raises(OldProcessRuns):
        await migrate(database_url, ROOM)
    await connection.execute("DELETE FROM processes")
    await connection.close()
    assert (await migrate(database_url, ROOM)).migrations == (after, before)


async def test_a_process_is_registered_while_it_runs(room: Room) -> None:
    """The row of a process has its release, is written again if it was removed, and is deleted at the end."""
    question = "SELECT array_agg(command || ' ' || release || ' ' || pid) FROM processes"
    async with process_registered(room.pool, room.name, "work"):
        assert await room.pool.fetchval(question) == [f"work {RELEASE} {os.getpid()}"]
    assert await room.pool.fetchval(question) is None
    await _migrated_by(room.pool, RELEASE + 1, "9999_future_thing.after.sql")
    with pytest.raises(DatabaseNewer):
        async with process_registered(room.pool, room.name, "work"):
            pass
    assert await room.pool.fetchval(question) is None


async def test_edited_migration_is_rejected(database_url: str) -> None:
    """An applied file must stay unchanged."""
    connection = await connect(database_url, ROOM)
    await connection.execute("UPDATE migrations SET checksum = 'other' WHERE name LIKE '0001%'")
    await connection.close()
    with pytest.raises(MigrationChanged, match=r"0001_delivery\.sql"):
        await migrate(database_url, ROOM)


async def test_a_changed_function_is_applied_again(database_url: str) -> None:
    """A function file whose text changed is pending until the next migration, which applies just that file."""
    connection = await connect(database_url, ROOM)
    await connection.execute("UPDATE migrations SET checksum = 'older' WHERE name = 'delivery/send.sql'")
    with pytest.raises(MigrationPending, match=r"delivery/send\.sql"):
        await check_migrated(connection, ROOM)
    await connection.close()
    assert [file.name for file in (await migrate(database_url, ROOM)).functions] == ["delivery/send.sql"]


async def test_a_migration_that_fails_leaves_nothing(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each file is one transaction: a failed one is rolled back, and the next run tries it again."""
    broken = SqlFile("9000_test_broken.sql", "CREATE TABLE half_done (); SELECT 1 / 0;")
    monkeypatch.setattr(migrating, "migration_files", lambda: (*migration_files(), broken))
    with pytest.raises(asyncpg.DivisionByZeroError):
        await migrate(database_url, ROOM)
    connection = await connect(database_url, ROOM)
    assert await connection.fetchval("SELECT to_regclass('half_done')") is None
    await connection.close()


async def test_role_without_create_privilege_gets_the_statement_to_run(database_url: str, server: TestServer) -> None:
    """The error contains the statement that the database's owner has to run."""
    connection = await asyncpg.connect(database_url)
    name = database_url.rpartition("/")[2]
    await connection.execute(f'REVOKE CREATE ON DATABASE "{name}" FROM postroom')
    try:
        with pytest.raises(DatabaseError, match="CREATE SCHEMA"):
            await migrate(database_url, "annex")
    finally:
        await connection.execute(f'GRANT CREATE ON DATABASE "{name}" TO postroom')
        await connection.close()


async def test_unreachable_database_is_one_sentence() -> None:
    """The error names the address, and never the password."""
    with pytest.raises(DatabaseUnreachable, match=r"127\.0\.0\.1:1/nowhere") as caught:
        await migrate("postgresql://someone:hidden-word@127.0.0.1:1/nowhere", ROOM)
    assert "hidden-word" not in str(caught.value)


def test_migration_names_follow_the_pattern() -> None:
    """NNNN_<capability>.sql creates tables, NNNN_<capability>_<change>[.after].sql changes them; without gaps."""
    found = [
        re.fullmatch(r"(\d{4})_([a-z]+)(_[a-z][a-z0-9_]*(?:\.after)?)?\.sql", file.name) for file in migration_files()
    ]
    names = [name.groups() for name in found if name is not None]
    assert [int(number) for number, _, _ in names] == list(range(1, len(migration_files()) + 1))
    creating = [capability for _, capability, change in names if change is None]
    assert len(creating) == len(set(creating))


def test_a_function_file_is_named_after_its_function() -> None:
    """Each file has one function of the same name."""
    for file in function_files():
        name = file.name.rpartition("/")[2].removesuffix(".sql")
        assert f"CREATE OR REPLACE FUNCTION {name}(" in file.text
        assert file.text.count("CREATE OR REPLACE FUNCTION") == 1
