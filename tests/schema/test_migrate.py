"""Migrations: forward only, once, concurrently, and never on an unknown database."""

import asyncio
import re

import asyncpg
import pytest
from tests.conftest import TestServer

from postroom.db import migrate as migrating
from postroom.db.errors import DatabaseError, DatabaseNewer, DatabaseUnreachable, MigrationChanged, MigrationPending
from postroom.db.migrate import SqlFile, check_migrated, function_files, migrate, migration_files
from postroom.db.pool import connect

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


async def test_newer_database_is_rejected(database_url: str) -> None:
    """A room with a migration that this version does not know is not changed."""
    connection = await connect(database_url, ROOM)
    await connection.execute("INSERT INTO migrations (name, checksum) VALUES ('9999_future_thing.sql', 'x')")
    with pytest.raises(DatabaseNewer, match="9999_future_thing"):
        await check_migrated(connection, ROOM)
    await connection.close()
    with pytest.raises(DatabaseNewer):
        await migrate(database_url, ROOM)


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
    """NNNN_<capability>.sql creates tables, NNNN_<capability>_<change>.sql changes them; numbered without gaps."""
    found = [re.fullmatch(r"(\d{4})_([a-z]+)(_[a-z][a-z0-9_]*)?\.sql", file.name) for file in migration_files()]
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
