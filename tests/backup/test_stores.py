"""Backups in a folder and in a bucket: scheduled, before a migration, and their retention."""

import asyncio
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import asyncpg
import pytest
from tests.support.archive import ACTOR, NOW, at_now, options_for
from tests.support.builders import a_mail, accepted

from postroom.archive.errors import ArchivePathTaken, ArchiveUnreachable
from postroom.archive.model import ArchiveOptions
from postroom.archive.objects import Objects, open_objects
from postroom.archive.worker import ArchiveWorker
from postroom.backup import store
from postroom.backup.service import restore_backup, verify_backup
from postroom.backup.stores import (
    WRITTEN_BY_MIGRATIONS,
    BackupOptions,
    back_up_before_migrating,
    back_up_if_due,
    fetched_backup,
    make_backup_at,
)
from postroom.db.migrate import migrate
from postroom.db.pool import Pool
from postroom.db.room import Room
from postroom.rooms.lifecycle import settle_room
from postroom.settings import read_settings

DAY = timedelta(days=1)


@pytest.fixture(params=["folder", "bucket"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> BackupOptions:
    """A store with daily backups, of which two are kept."""
    chosen = BackupOptions(url=str(tmp_path / "backups"), interval=DAY, keep=2)
    if request.param == "bucket":
        bucket: ArchiveOptions = request.getfixturevalue("bucket")
        chosen = replace(chosen, url="s3://mail/backups", endpoint=bucket.endpoint)
    return chosen


def objects_of(place: BackupOptions) -> Objects:
    assert place.url is not None
    return open_objects(place.url, endpoint=place.endpoint)


async def backups_in(place: BackupOptions, room: Room) -> list[str]:
    async with room.pool.acquire() as connection:
        folder = await store.find_folder(connection)
    return [path.removeprefix(f"{folder}/") for path in await objects_of(place).paths_in(folder)]


async def back_up(room: Room, place: BackupOptions, now: datetime) -> str | None:
    return await back_up_if_due(room, place, actor=ACTOR, clock=lambda: now)


async def test_backup_in_a_bucket_is_verified_and_restored(room: Room, bucket: ArchiveOptions) -> None:
    """It is stored with its manifest, downloaded, verified and restored under another name; no file is overwritten."""
    await accepted(room.pool, a_mail("ann@example.org"))
    target = "s3://mail/by-hand/room.backup"
    made = await make_backup_at(room, target, actor=ACTOR, endpoint=bucket.endpoint)
    async with fetched_backup(target, endpoint=bucket.endpoint) as local:
        assert await verify_backup(local) == made
        await restore_backup(room.url, local, actor=ACTOR, room="annex")
    assert await room.pool.fetchval("SELECT email FROM annex.delivery_recipients") == "ann@example.org"
    with pytest.raises(ArchivePathTaken):
        await make_backup_at(room, target, actor=ACTOR, verify=False, endpoint=bucket.endpoint)


async def test_backup_is_made_when_the_newest_is_too_old(room: Room, place: BackupOptions) -> None:
    """The first process makes it; the others find it."""
    first = await back_up(room, place, NOW)
    assert first is not None
    assert await back_up(room, place, NOW + timedelta(hours=23)) is None
    second = await back_up(room, place, NOW + DAY)
    assert second is not None
    names = [name for path in (first, second) for name in (Path(path).name, f"{Path(path).name}.manifest.json")]
    assert await backups_in(place, room) == names


async def test_old_backups_are_deleted(room: Room, place: BackupOptions) -> None:
    """The newest two stay; incomplete backups are deleted too."""
    for day in range(2):
        await back_up(room, place, NOW + day * DAY)
    async with room.pool.acquire() as connection:
        folder = await store.find_folder(connection)
    await objects_of(place).claim(f"{folder}/postroom-20300601T000000Z.backup")
    await back_up(room, place, NOW + 2 * DAY)
    kept = [name for name in await backups_in(place, room) if name.endswith(".backup")]
    assert kept == ["postroom-20300616T120000Z.backup", "postroom-20300617T120000Z.backup"]


async def test_one_process_makes_the_backup(room: Room, tmp_path: Path) -> None:
    """The lock decides; the others try again at the next run."""
    place = BackupOptions(url=str(tmp_path / "backups"))
    made = await asyncio.gather(*(back_up(room, place, NOW) for _ in range(3)))
    assert len([path for path in made if path]) == 1


async def test_the_loop_of_the_archive_makes_the_backup(room: Room, tmp_path: Path) -> None:
    """Without POSTROOM_BACKUP_URL no backup is made."""
    await ArchiveWorker(room, options_for(tmp_path), clock=at_now).run_once()
    assert not (tmp_path / "backups").exists()
    settings = replace(room.settings, backup_url=str(tmp_path / "backups"))
    await ArchiveWorker(replace(room, settings=settings), options_for(tmp_path), clock=at_now).run_once()
    assert len(list((tmp_path / "backups").rglob("*.backup"))) == 1
    assert await room.pool.fetchval("SELECT actor FROM audit_log WHERE action = 'backup.make'") == "postroom"


async def test_failed_backup_leaves_no_file(room: Room, place: BackupOptions) -> None:
    """A later run finds nothing that looks like a backup."""
    await room.pool.execute("DROP FUNCTION fingerprint_table(text)")
    with pytest.raises(asyncpg.UndefinedFunctionError):
        await back_up(room, place, NOW)
    assert await backups_in(place, room) == []


async def test_unreachable_store_is_reported(room: Room) -> None:
    """The check precedes the dump."""
    with pytest.raises(ArchiveUnreachable):
        await back_up(room, BackupOptions(url="s3://nowhere/x", endpoint="http://127.0.0.1:1"), NOW)


async def test_a_room_with_data_is_backed_up_before_its_tables_change(room: Room, tmp_path: Path) -> None:
    """The file has the state before the migration."""
    settings = replace(room.settings, data_dir=tmp_path)
    assert await back_up_before_migrating(room.url, settings) is None
    await accepted(room.pool, a_mail("ann@example.org"))
    path = await back_up_before_migrating(room.url, settings)
    assert path is not None
    assert path.startswith(str(tmp_path / "backups" / "before-migrate" / "postroom-"))
    assert {table.name: table.rows for table in (await verify_backup(Path(path))).tables}["deliveries"] == 1


async def test_a_new_room_holds_no_data(pool: Pool, database_url: str) -> None:
    """The list of tables that `postroom migrate` fills equals the tables with rows in a new room."""
    await migrate(database_url, "fresh")
    await settle_room(database_url, read_settings({"POSTROOM_SCHEMA": "fresh"}), actor="cli:tests")
    connection = await asyncpg.connect(database_url)
    rows = await connection.fetch(
        "SELECT relname FROM pg_class WHERE relnamespace = 'fresh'::regnamespace AND relkind = 'r'"
        " AND pg_relation_size(oid) > 0"
    )
    await connection.close()
    assert {row[0] for row in rows} == set(WRITTEN_BY_MIGRATIONS)
