"""The archive's loop: it does its turn, survives what goes wrong, and stops when it is told to."""

import asyncio
from dataclasses import replace
from pathlib import Path

from tests.support.archive import JANUARY, add_attempts, at_now, delivery_ids, options_for

from postroom.archive.model import ArchiveOptions
from postroom.archive.service import archive_session, list_segments
from postroom.archive.worker import ArchiveKeeper
from postroom.db.room import Room


async def test_a_turn_archives_what_is_old(room: Room, tmp_path: Path) -> None:
    """As a run by hand does."""
    await add_attempts(room.pool, JANUARY, 5)
    await ArchiveKeeper(room, options_for(tmp_path), clock=at_now).run_once()
    assert await delivery_ids(room.pool) == []


async def test_a_turn_that_cannot_work_is_no_end(room: Room, tmp_path: Path) -> None:
    """Somebody else at work, or an archive that cannot be written: the next turn tries again."""
    await add_attempts(room.pool, JANUARY, 5)
    async with archive_session(room):
        await ArchiveKeeper(room, options_for(tmp_path), clock=at_now).run_once()
    (tmp_path / "file").write_text("in the way")
    options = replace(options_for(tmp_path), url=str(tmp_path / "file" / "archive"))
    await ArchiveKeeper(room, options, clock=at_now).run_once()
    assert len(await list_segments(room.pool, table="attempts")) == 1
    await ArchiveKeeper(room, options_for(tmp_path), clock=at_now).run_once()
    assert await delivery_ids(room.pool) == []


async def test_a_stop_ends_the_loop(room: Room, tmp_path: Path) -> None:
    """At once, also between two turns."""
    keeper = ArchiveKeeper(room, options_for(tmp_path), clock=at_now)
    async with asyncio.timeout(20):
        running = asyncio.create_task(keeper.run())
        await asyncio.sleep(0)
        keeper.stop()
        await running


def test_in_the_background_it_gives_way() -> None:
    """Small steps, and a small share of the time."""
    assert ArchiveOptions.in_background().share < ArchiveOptions().share
    assert ArchiveOptions.in_background().pages < ArchiveOptions().pages
