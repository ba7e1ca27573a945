"""The archive's loop: a run, failures and stop."""

from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.archive import JANUARY, add_attempts, at_now, delivery_ids, options_for, tables

from postroom.archive.model import ArchiveOptions
from postroom.archive.service import archive_session, list_segments
from postroom.archive.worker import ArchiveWorker
from postroom.cli import host_checks
from postroom.db.room import Room
from postroom.runtime.finding import Severity
from postroom.settings import Settings


async def test_loop_archives_old_months(room: Room, tmp_path: Path) -> None:
    """A run of the loop does the same as `postroom archive run`."""
    await add_attempts(room.pool, JANUARY, 5)
    await ArchiveWorker(room, options_for(tmp_path), clock=at_now).run_once()
    assert await delivery_ids(room.pool) == []


async def test_failed_run_does_not_end_the_loop(room: Room, tmp_path: Path) -> None:
    """The next run tries again after a busy or unwritable archive."""
    await add_attempts(room.pool, JANUARY, 5)
    async with archive_session(room):
        await ArchiveWorker(room, options_for(tmp_path), clock=at_now).run_once()
    (tmp_path / "file").write_text("in the way")
    options = replace(options_for(tmp_path), url=str(tmp_path / "file" / "archive"))
    await ArchiveWorker(room, options, clock=at_now).run_once()
    assert len(await list_segments(room.pool, table="attempts")) == 1
    await ArchiveWorker(room, options_for(tmp_path), clock=at_now).run_once()
    assert await delivery_ids(room.pool) == []


async def test_without_an_archive_url_nothing_is_archived(room: Room) -> None:
    """Future partitions are created; old months stay in the database."""
    await add_attempts(room.pool, JANUARY, 5)
    keeper = ArchiveWorker(room, ArchiveOptions(), clock=at_now)
    await keeper.run_once()
    assert len(await delivery_ids(room.pool)) == 5
    assert await list_segments(room.pool) == []
    assert "attempts_2030_08" in await tables(room.pool)


async def test_the_data_directory_is_an_archive_only_beside_the_embedded_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a database that several hosts share, the archive needs a URL; the doctor reports its absence."""
    monkeypatch.setattr(host_checks, "CONNECT_TIMEOUT_S", 3600.0)
    embedded = Settings(data_dir=tmp_path)
    shared = Settings(data_dir=tmp_path, database_url="postgresql://db.internal/app")
    assert ArchiveOptions.of(embedded).url == str(tmp_path / "archive")
    assert ArchiveOptions.of(shared).url is None
    assert ArchiveOptions.of(replace(shared, archive_url="s3://mail/archive")).url == "s3://mail/archive"
    assert [(await host_checks.archive(each)).verdict for each in (embedded, shared)] == [Severity.OK, Severity.WARN]


def test_background_run_uses_small_steps_and_pauses() -> None:
    """The loop reads few pages per step and works a small share of the time."""
    assert ArchiveOptions.in_background().share < ArchiveOptions().share
    assert ArchiveOptions.in_background().pages < ArchiveOptions().pages
