"""Ownership of files: rooms that share a store, copies of a room, and a room restored from an older state."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from tests.conftest import TestServer, cloned_database
from tests.support.archive import (
    ACTOR,
    JANUARY,
    NOW,
    add_attempts,
    archived_ids,
    at_now,
    delivery_ids,
    files_of,
    make_months,
    options_for,
    run,
)

from postroom.archive.model import Month
from postroom.archive.query import query_archive
from postroom.archive.restore import restore_month
from postroom.archive.service import adopt_archive, list_segments, run_archive, verify_archive
from postroom.backup.service import make_backup, restore_backup
from postroom.db.migrate import migrate
from postroom.db.room import Room, open_room
from postroom.erasure.service import erase
from postroom.settings import Settings

LATER = NOW + timedelta(days=366)  # January's retention in the archive has expired, June's has not
COUNT = "SELECT count(*) FROM attempts"


@asynccontextmanager
async def opened(url: str, name: str = "postroom") -> AsyncIterator[Room]:
    async with open_room(Settings(database_url=url, schema=name, pool_size=3)) as room:
        yield room


async def is_whole(room: Room, folder: Path) -> bool:
    return all([finding.is_good async for finding in verify_archive(room.pool, options_for(folder))])


async def counted(room: Room, folder: Path) -> int:
    return int((await query_archive(room.pool, options_for(folder), COUNT)).rows[0][0])


async def test_two_rooms_share_a_store(room: Room, tmp_path: Path) -> None:
    """Each room finds its own rows of the same month, and expiry in one does not affect the other."""
    await migrate(room.url, "tenant_b")
    async with opened(room.url, "tenant_b") as other:
        for each, rows in ((room, 10), (other, 7)):
            await add_attempts(each.pool, JANUARY, rows)
            await run(each, options_for(tmp_path))
        assert (await counted(room, tmp_path), await counted(other, tmp_path)) == (10, 7)
        assert len((await run(other, options_for(tmp_path), LATER)).expired) > 0
        assert await is_whole(room, tmp_path)
    assert archived_ids(tmp_path) == list(range(1, 11))


async def test_rooms_of_one_name_share_a_store(room: Room, server: TestServer, tmp_path: Path) -> None:
    """Two databases made from one template have the same room name, but different folders."""
    async with cloned_database(server) as url, opened(url) as twin:
        for each, rows in ((room, 10), (twin, 7)):
            await add_attempts(each.pool, JANUARY, rows)
            await run(each, options_for(tmp_path))
        assert (await counted(room, tmp_path), await counted(twin, tmp_path)) == (10, 7)
        assert await is_whole(room, tmp_path)
        assert await is_whole(twin, tmp_path)


async def test_copy_of_a_room_never_changes_the_original_s_files(room: Room, tmp_path: Path) -> None:
    """A copy queries and restores from the files; it expires and erases none until it adopts them."""
    await add_attempts(room.pool, JANUARY, 10)
    await room.pool.execute("UPDATE attempts SET reply_text = 'no ann@example.org here'")
    await run(room, options_for(tmp_path))
    [path] = files_of(tmp_path)
    before = path.read_bytes()
    await make_backup(room, tmp_path / "room.backup", actor=ACTOR, verify=False)
    await restore_backup(room.url, tmp_path / "room.backup", actor=ACTOR, room="annex")
    async with opened(room.url, "annex") as copy:
        assert [piece.is_foreign for piece in await list_segments(copy.pool)] == [True]
        report = await run(copy, options_for(tmp_path), LATER)
        assert (report.expired, report.failed) == ([], {})
        assert await counted(copy, tmp_path) == 10
        await erase(copy, options_for(tmp_path), address="ann@example.org", actor=ACTOR)
        await restore_month(copy, options_for(tmp_path), Month("attempts", JANUARY), attach=False, actor=ACTOR)
        assert path.read_bytes() == before
        assert await is_whole(room, tmp_path)
    assert [piece.is_foreign for piece in await list_segments(room.pool)] == [False]


async def test_adopted_files_expire(room: Room, tmp_path: Path) -> None:
    """After the adoption the copy deletes expired files as the original would have."""
    await add_attempts(room.pool, JANUARY, 10)
    await run(room, options_for(tmp_path))
    # A copy made with PostgreSQL's tools: its recorded location is still that of the original.
    await room.pool.execute("UPDATE archive_room SET place = 'elsewhere'")
    assert [piece.is_foreign for piece in await list_segments(room.pool)] == [True]
    assert (await run(room, options_for(tmp_path), LATER)).expired == []
    assert await adopt_archive(room, actor=ACTOR) == 1
    assert [piece.month for piece in (await run(room, options_for(tmp_path), LATER)).expired] == ["2030-01"]
    assert archived_ids(tmp_path) == []


async def saved_while_verified(room: Room, folder: Path) -> None:
    """A backup made while a piece was being archived; afterwards more rows arrived and the piece was finished."""

    def stop(step: str) -> None:
        if step == "verified":
            raise KeyboardInterrupt

    await make_months(room.pool, JANUARY)
    await add_attempts(room.pool, JANUARY, 30)
    with pytest.raises(KeyboardInterrupt):
        await run_archive(room, options_for(folder), actor=ACTOR, clock=at_now, signal=stop)
    await make_backup(room, folder / "room.backup", actor=ACTOR, verify=False)
    await add_attempts(room.pool, JANUARY, 20, first=31)
    assert (await run(room, options_for(folder))).rows == 50


async def test_room_restored_from_an_older_state_overwrites_no_file(room: Room, tmp_path: Path) -> None:
    """The newer file stays, unfinished pieces get new files, and verify reports files without a record."""
    await saved_while_verified(room, tmp_path)
    [newer] = files_of(tmp_path)
    before = newer.read_bytes()
    await room.pool.execute("DROP SCHEMA postroom CASCADE")
    await restore_backup(room.url, tmp_path / "room.backup", actor=ACTOR)
    async with opened(room.url) as back:
        assert (await run(back, options_for(tmp_path))).rows == 30
        assert await delivery_ids(back.pool) == []
        assert newer.read_bytes() == before
        assert await counted(back, tmp_path) == 30
        findings = [finding async for finding in verify_archive(back.pool, options_for(tmp_path))]
    assert [finding.problem for finding in findings if finding.segment] == [None]
    unknown = {finding.path for finding in findings if finding.problem == "this file has no record"}
    assert str(newer.relative_to(tmp_path)) in unknown


async def test_copy_finishes_a_piece_in_a_file_of_its_own(room: Room, tmp_path: Path) -> None:
    """Both rooms have the rows, so both archive them."""
    await saved_while_verified(room, tmp_path)
    await restore_backup(room.url, tmp_path / "room.backup", actor=ACTOR, room="annex")
    async with opened(room.url, "annex") as copy:
        assert (await run(copy, options_for(tmp_path))).rows == 30
        assert await counted(copy, tmp_path) == 30
        assert await counted(room, tmp_path) == 50


async def test_every_role_gets_the_same_location(room: Room) -> None:
    """A role that may not read the cluster's id gets it too; otherwise ownership would depend on the connection."""
    asked = "SELECT prosecdef FROM pg_proc WHERE oid = 'archive_place()'::regprocedure"
    assert await room.pool.fetchval(asked) is True
