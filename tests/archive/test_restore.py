"""Restoring a month beside its table or attached to it, and releasing it."""

import asyncio
from pathlib import Path

import asyncpg
import pytest
from tests.support.archive import (
    ACTOR,
    FEBRUARY,
    JANUARY,
    NOW,
    add_attempts,
    archived_ids,
    delivery_ids,
    files_of,
    make_months,
    options_for,
    run,
    tables,
)

from postroom.archive.errors import ArchiveDamaged, ArchiveLocked, MonthTaken, SegmentNotFound
from postroom.archive.model import Month
from postroom.archive.restore import release_month, restore_month
from postroom.archive.service import list_segments
from postroom.db.room import Room

MONTH = Month("attempts", JANUARY)
ADDED = (
    "INSERT INTO {} (delivery_id, attempt_no, outcome, lane, started_at, finished_at)"
    " VALUES (6, 1, 'sent', 'bulk', '2030-01-09Z', '2030-01-09Z')"
)


async def contents(room: Room, table: str = "attempts") -> list[object]:
    rows = await room.pool.fetch(f"SELECT t::text AS row FROM {table} AS t ORDER BY delivery_id")
    return [row["row"] for row in rows]


async def test_restored_month_equals_the_original(room: Room, tmp_path: Path) -> None:
    """Every value of every row is restored into a table of its own; the archive keeps its file."""
    await make_months(room.pool, JANUARY)
    await add_attempts(room.pool, JANUARY, 50)
    before = await contents(room)
    options = options_for(tmp_path)
    await run(room, options)
    back = await restore_month(room, options, MONTH, attach=False, actor=ACTOR)
    assert (back.restored_name, back.rows, back.is_attached) == ("attempts_restored_2030_01", 50, False)
    assert await contents(room, back.restored_name) == before
    assert await contents(room) == []
    assert len(archived_ids(tmp_path)) == 50


async def test_restored_month_can_be_attached(room: Room, tmp_path: Path) -> None:
    """All pieces are attached; the next run does not archive the month again, and it can be released."""
    await make_months(room.pool, JANUARY)
    await add_attempts(room.pool, JANUARY, 50)
    options = options_for(tmp_path)
    await run(room, options)
    await add_attempts(room.pool, JANUARY, 5, first=101)
    await run(room, options)
    back = await restore_month(room, options, MONTH, attach=True, actor=ACTOR)
    assert back.rows == 55
    assert await delivery_ids(room.pool) == [*range(1, 51), *range(101, 106)]
    assert (await run(room, options, NOW)).archived == []
    assert await release_month(room, MONTH, actor=ACTOR) == 2
    assert await delivery_ids(room.pool) == []
    assert back.restored_name not in await tables(room.pool)
    assert [segment.restored_at for segment in await list_segments(room.pool)] == [None, None]


async def test_month_is_restored_once(room: Room, tmp_path: Path) -> None:
    """A second restore is rejected, and so is a month that is not in the archive."""
    await add_attempts(room.pool, JANUARY, 5)
    options = options_for(tmp_path)
    await run(room, options)
    await restore_month(room, options, MONTH, attach=False, actor=ACTOR)
    with pytest.raises(MonthTaken):
        await restore_month(room, options, MONTH, attach=False, actor=ACTOR)
    with pytest.raises(SegmentNotFound):
        await restore_month(room, options, Month.parse("attempts", "2029-07"), attach=False, actor=ACTOR)
    with pytest.raises(SegmentNotFound):
        await release_month(room, Month.parse("attempts", "2029-07"), actor=ACTOR)


async def test_month_with_rows_in_the_default_partition_is_not_attached(room: Room, tmp_path: Path) -> None:
    """The restore fails and leaves no table behind."""
    await add_attempts(room.pool, JANUARY, 5)
    options = options_for(tmp_path)
    await run(room, options)
    await add_attempts(room.pool, JANUARY, 1, first=50)
    with pytest.raises(MonthTaken, match="already has rows of that month"):
        await restore_month(room, options, MONTH, attach=True, actor=ACTOR)
    assert await delivery_ids(room.pool) == [50]
    assert MONTH.restored_name not in await tables(room.pool)


async def test_damaged_file_is_not_restored(room: Room, tmp_path: Path) -> None:
    """Rows that differ from the record are rejected."""
    await add_attempts(room.pool, JANUARY, 5)
    options = options_for(tmp_path)
    await run(room, options)
    [path] = files_of(tmp_path)
    [piece] = await list_segments(room.pool)
    whole = path.read_bytes()
    for damaged in (b"PAR1 and then nothing", whole[:40] + bytes(byte ^ 0xFF for byte in whole[40:80]) + whole[80:]):
        path.write_bytes(damaged)
        with pytest.raises(ArchiveDamaged, match=piece.path):
            await restore_month(room, options, MONTH, attach=False, actor=ACTOR)
    assert [segment.restored_at for segment in await list_segments(room.pool)] == [None]
    assert MONTH.restored_name not in await tables(room.pool)


async def test_cleanup_keeps_tables_that_are_no_leftovers(room: Room, tmp_path: Path) -> None:
    """Restored months, attached months and tables with similar names survive runs and restores."""
    await make_months(room.pool, JANUARY, FEBRUARY)
    await add_attempts(room.pool, JANUARY, 5)
    await add_attempts(room.pool, FEBRUARY, 5, first=101)
    options = options_for(tmp_path)
    await run(room, options)
    await restore_month(room, options, MONTH, attach=False, actor=ACTOR)
    await restore_month(room, options, Month("attempts", FEBRUARY), attach=True, actor=ACTOR)
    kept = ["attempts_restored_2030_01", "attempts_restored_2030_02", "attempts_restored_2030_x"]
    await room.pool.execute("CREATE TABLE attempts_restored_2030_x (a int); CREATE TABLE mine_restored_2030_01 (a int)")
    await run(room, options)
    assert await tables(room.pool, "%restored%") == [*kept, "mine_restored_2030_01"]


@pytest.mark.parametrize("attach", [True, False])
async def test_month_with_added_rows_is_not_released(room: Room, tmp_path: Path, *, attach: bool) -> None:
    """The archive does not have the added rows: the error names the counts; without those rows the release works."""
    await add_attempts(room.pool, JANUARY, 5)
    options = options_for(tmp_path)
    await run(room, options)
    back = await restore_month(room, options, MONTH, attach=attach, actor=ACTOR)
    await room.pool.execute(ADDED.format("attempts" if attach else back.restored_name))
    with pytest.raises(MonthTaken, match="attempts_restored_2030_01 has 6 rows, but its archive files have 5"):
        await release_month(room, MONTH, actor=ACTOR)
    assert await delivery_ids(room.pool, back.restored_name) == list(range(1, 7))
    assert [piece.restored_name for piece in await list_segments(room.pool)] == [back.restored_name]
    await room.pool.execute(f"DELETE FROM {back.restored_name} WHERE delivery_id = 6")
    assert await release_month(room, MONTH, actor=ACTOR) == 1


async def test_row_inserted_during_a_release_is_not_lost(room: Room, tmp_path: Path) -> None:
    """Rows are counted under the lock of the drop, which waits for concurrent writers."""
    await add_attempts(room.pool, JANUARY, 5)
    options = options_for(tmp_path)
    await run(room, options)
    await restore_month(room, options, MONTH, attach=True, actor=ACTOR)
    async with room.pool.acquire() as writer:
        writing = writer.transaction()
        await writing.start()
        await writer.execute(ADDED.format("attempts"))
        releasing = asyncio.create_task(release_month(room, MONTH, actor=ACTOR))
        waiting = "SELECT FROM pg_locks WHERE NOT granted AND relation = 'attempts'::regclass"
        while not (releasing.done() or await room.pool.fetch(waiting)):
            pass
        await writing.commit()
    with pytest.raises((MonthTaken, asyncpg.LockNotAvailableError)):  # the wait has a timeout, and no row is lost
        await releasing
    assert await delivery_ids(room.pool) == list(range(1, 7))


async def test_month_whose_table_was_dropped_can_be_released(room: Room, tmp_path: Path) -> None:
    """The error about added rows advises this when they can be lost."""
    await add_attempts(room.pool, JANUARY, 5)
    options = options_for(tmp_path)
    await run(room, options)
    back = await restore_month(room, options, MONTH, attach=True, actor=ACTOR)
    await room.pool.execute(f"DROP TABLE {back.restored_name}")
    assert await release_month(room, MONTH, actor=ACTOR) == 1
    assert [piece.restored_name for piece in await list_segments(room.pool)] == [None]


async def test_lock_timeout_of_attach_and_release_is_reported(room: Room, tmp_path: Path) -> None:
    """Attaching and releasing wait five seconds for readers, then change nothing and name the table."""
    await make_months(room.pool, JANUARY)
    await add_attempts(room.pool, JANUARY, 5)
    options = options_for(tmp_path)
    await run(room, options)
    async with room.pool.acquire() as reader, reader.transaction():
        await reader.execute("LOCK TABLE attempts_default IN ACCESS SHARE MODE")
        with pytest.raises(ArchiveLocked, match="holds a lock on attempts; nothing was changed"):
            await restore_month(room, options, MONTH, attach=True, actor=ACTOR)
    assert await tables(room.pool, "attempts_restored%") == []
    await restore_month(room, options, MONTH, attach=True, actor=ACTOR)
    async with room.pool.acquire() as reader, reader.transaction():
        await reader.execute("LOCK TABLE attempts IN ACCESS SHARE MODE")
        with pytest.raises(ArchiveLocked, match="holds a lock on attempts"):
            await release_month(room, MONTH, actor=ACTOR)
