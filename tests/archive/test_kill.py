"""The archiver killed at every step: no row is lost or duplicated, and the next run finishes the work."""

import signal
from datetime import timedelta
from pathlib import Path

import pytest
from tests.support.archive import (
    FEBRUARY,
    JANUARY,
    MAY,
    NOW,
    add_attempts,
    archived_ids,
    delivery_ids,
    make_months,
    options_for,
    run,
    tables,
)
from tests.support.archive_process import Orders, run_to_its_end

from postroom.archive.model import SegmentState
from postroom.archive.service import list_segments, verify_archive
from postroom.db.room import Room

DEATHS = [
    ("opened", 1),
    ("read", 1),
    ("read", 3),
    ("written", 1),
    ("claimed", 1),
    ("stored", 1),
    ("exported", 1),
    ("read_back", 1),
    ("verified", 1),
    ("detached", 1),
    ("compared", 1),
    ("dropped", 1),
    ("opened", 2),
    ("collected", 1),
    ("collected", 3),
    ("stored", 2),
    ("verified", 2),
    ("dropped", 2),
]
OLD, LATE, YOUNG = range(1, 301), range(301, 421), range(1001, 1011)


async def fill(room: Room) -> None:
    """January has a partition; February has none, so its rows are in the default partition; May is too young."""
    await make_months(room.pool, JANUARY, MAY)
    await add_attempts(room.pool, JANUARY, len(OLD), first=OLD[0])
    await add_attempts(room.pool, FEBRUARY, len(LATE), first=LATE[0])
    await add_attempts(room.pool, MAY, len(YOUNG), first=YOUNG[0])


@pytest.mark.parametrize("step, occurrence", DEATHS)
async def test_a_killed_run_is_finished_by_the_next(room: Room, tmp_path: Path, step: str, occurrence: int) -> None:
    """Afterwards every old row is in exactly one verified file and in no table."""
    await fill(room)
    orders = Orders(room.url, str(tmp_path), NOW, die_at=step, occurrence=occurrence)
    assert await run_to_its_end(orders) == -signal.SIGKILL
    options = options_for(tmp_path)
    await run(room, options)
    assert archived_ids(tmp_path) == [*OLD, *LATE]
    assert await delivery_ids(room.pool) == list(YOUNG)
    segments = await list_segments(room.pool)
    assert {segment.state for segment in segments} == {SegmentState.ARCHIVED}
    assert sum(segment.rows or 0 for segment in segments) == len(OLD) + len(LATE)
    assert not [name for name in await tables(room.pool) if name.endswith("2030_01") or "late" in name]
    assert [finding async for finding in verify_archive(room.pool, options) if not finding.is_good] == []


async def test_a_killed_expiry_is_finished_by_the_next(room: Room, tmp_path: Path) -> None:
    """The file was deleted but not recorded: the next run records it once and continues with the others."""
    await fill(room)
    options, later = options_for(tmp_path), NOW + timedelta(days=320)
    await run(room, options)
    assert await run_to_its_end(Orders(room.url, str(tmp_path), later, die_at="deleted")) == -signal.SIGKILL
    old = [segment for segment in await list_segments(room.pool) if segment.rows and segment.month < "2030-05"]
    assert [segment.state for segment in old] == [SegmentState.ARCHIVED, SegmentState.ARCHIVED]
    report = await run(room, options, later)
    assert [segment.id for segment in report.expired] == [segment.id for segment in old]
    audited = await room.pool.fetchval("SELECT count(*) FROM audit_log WHERE action = 'archive.expire'")
    assert (audited, archived_ids(tmp_path)) == (2, list(YOUNG))


@pytest.mark.parametrize("step", ["filled"])
async def test_killed_restore_can_be_repeated(room: Room, tmp_path: Path, step: str) -> None:
    """A month is recorded as restored only when complete; after the second restore every row exists once."""
    await fill(room)
    options = options_for(tmp_path)
    await run(room, options)
    dying = Orders(room.url, str(tmp_path), NOW, task="restore", die_at=step)
    assert await run_to_its_end(dying) == -signal.SIGKILL
    assert await delivery_ids(room.pool) == list(YOUNG)
    assert await run_to_its_end(Orders(room.url, str(tmp_path), NOW, task="restore")) == 0
    assert await delivery_ids(room.pool) == [*OLD, *YOUNG]


async def test_next_run_drops_the_table_of_a_killed_restore(room: Room, tmp_path: Path) -> None:
    """A table without a record would otherwise stay forever."""
    await fill(room)
    options = options_for(tmp_path)
    await run(room, options)
    dying = Orders(room.url, str(tmp_path), NOW, task="restore", die_at="filled")
    assert await run_to_its_end(dying) == -signal.SIGKILL
    assert "attempts_restored_2030_01" in await tables(room.pool)
    await run(room, options)
    assert "attempts_restored_2030_01" not in await tables(room.pool)
