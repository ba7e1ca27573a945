"""Erasing from files that are damaged, incomplete or unreachable."""

import signal
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.archive import (
    ACTOR,
    FEBRUARY,
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
from tests.support.archive_process import Orders, run_to_its_end
from tests.support.http import open_browser

from postroom.archive import api
from postroom.archive.model import SegmentState
from postroom.archive.parquet import read_tables
from postroom.archive.service import list_segments, verify_archive
from postroom.archive.worker import ArchiveWorker
from postroom.db.room import Room
from postroom.erasure.service import erase, list_erasures, resume_erasures
from postroom.http.asgi import HttpApplication
from postroom.http.auth import Authenticator

ANN, BOB = "ann@example.org", "bob@example.org"


async def two_files(room: Room, folder: Path) -> tuple[Path, Path]:
    """January and February in the archive, with Ann in both."""
    for month in (JANUARY, FEBRUARY):
        await add_attempts(room.pool, month, 10, first=month.month * 100)
    await room.pool.execute("UPDATE attempts SET reply_text = 'no ann@example.org here'")
    await run(room, options_for(folder))
    january, february = files_of(folder)
    return january, february


def bytes_in(folder: Path) -> str:
    """Every text in every Parquet file in a folder."""
    files = [path for path in folder.rglob("*") if path.is_file() and "parquet" in path.name]
    return str([part.to_pylist() for path in files for part in read_tables(path)])


def manifests_of(folder: Path) -> list[Path]:
    return list(folder.rglob("*.manifest.json"))


@pytest.mark.parametrize("damage", ["missing", "damaged"])
async def test_damaged_file_does_not_stop_the_other_files(room: Room, tmp_path: Path, damage: str) -> None:
    """Other files, other erasures and the archive continue; this erasure is not done."""
    january, _ = await two_files(room, tmp_path)
    whole = january.read_bytes()
    january.unlink() if damage == "missing" else january.write_bytes(b"nonsense")
    first = await erase(room, options_for(tmp_path), address=ANN, actor=ACTOR)
    second = await erase(room, options_for(tmp_path), address=BOB, actor=ACTOR)
    assert not first.is_done
    assert not second.is_done
    if damage == "damaged":
        january.unlink()
    assert ANN not in bytes_in(tmp_path)

    await add_attempts(room.pool, JANUARY, 5, first=900)
    await ArchiveWorker(room, options_for(tmp_path), clock=at_now).run_once()
    assert await delivery_ids(room.pool) == []

    january.write_bytes(whole)
    assert await resume_erasures(room, options_for(tmp_path)) == 2
    assert [found.is_done for found in (await list_erasures(room.pool))[0]] == [True, True]
    assert ANN not in bytes_in(tmp_path)


async def test_damaged_file_is_not_rewritten(room: Room, tmp_path: Path) -> None:
    """A replaced file is left unchanged and named; its damage gets no valid checksum."""
    january, february = await two_files(room, tmp_path)
    january.write_bytes(february.read_bytes())
    waiting = await erase(room, options_for(tmp_path), address=ANN, actor=ACTOR)
    assert not waiting.is_done
    [reason] = waiting.waits_for
    assert str(january.relative_to(tmp_path)) in reason
    assert "checksum" in reason
    bad = [finding.path async for finding in verify_archive(room.pool, options_for(tmp_path)) if not finding.is_good]
    assert bad == [str(january.relative_to(tmp_path))]


@pytest.mark.parametrize("step", ["rewritten", "replaced", "switched"])
async def test_killed_erasure_leaves_no_spare_file(room: Room, tmp_path: Path, step: str) -> None:
    """The record names the old file before the switch and the new one after; the next run removes the other."""
    await two_files(room, tmp_path)
    dying = Orders(room.url, str(tmp_path), NOW, task="erase", die_at=step)
    assert await run_to_its_end(dying) == -signal.SIGKILL
    assert {
        finding.is_good async for finding in verify_archive(room.pool, options_for(tmp_path)) if finding.segment
    } == {True}
    await resume_erasures(room, options_for(tmp_path))
    assert [found.is_done for found in (await list_erasures(room.pool))[0]] == [True]
    assert len(files_of(tmp_path)) == len(manifests_of(tmp_path)) == 2
    assert ANN not in str([part.to_pylist() for path in files_of(tmp_path) for part in read_tables(path)])
    assert [finding async for finding in verify_archive(room.pool, options_for(tmp_path)) if not finding.is_good] == []


async def test_last_file_of_a_piece_is_not_removed(room: Room, tmp_path: Path) -> None:
    """In a room restored from an older state, the spare file may be the only copy."""
    january, _ = await two_files(room, tmp_path)
    other = january.rename(january.with_name("part-001-later.parquet"))
    await room.pool.execute(
        "UPDATE archived_partitions SET spare_path = $1 WHERE path = $2",
        str(other.relative_to(tmp_path)),
        str(january.relative_to(tmp_path)),
    )
    waiting = await erase(room, options_for(tmp_path), address=ANN, actor=ACTOR)
    assert not waiting.is_done
    assert other.exists()


async def test_unreachable_store_does_not_stop_other_files(room: Room, tmp_path: Path) -> None:
    """Reachable files are erased, and the erasure names the store that is not."""
    january, _ = await two_files(room, tmp_path)
    await room.pool.execute(
        "UPDATE archived_partitions SET store_url = 's3://nowhere/x' WHERE path = $1",
        str(january.relative_to(tmp_path)),
    )
    options = options_for(tmp_path, endpoint="http://127.0.0.1:1")
    waiting = await erase(room, options, address=ANN, actor=ACTOR)
    assert (waiting.is_done, len(waiting.waits_for)) == (False, 1)
    january.unlink()
    assert ANN not in bytes_in(tmp_path)


async def test_copy_of_a_room_leaves_the_original_s_files(room: Room, tmp_path: Path) -> None:
    """It writes files of its own without the person; the original's files are unchanged."""
    old = await two_files(room, tmp_path)
    whole = [path.read_bytes() for path in old]
    await room.pool.execute("SELECT disown_archive()")
    done = await erase(room, options_for(tmp_path), address=ANN, actor=ACTOR)
    assert done.is_done
    assert [path.read_bytes() for path in old] == whole
    for path in old:
        path.unlink()
    assert ANN not in bytes_in(tmp_path)
    good = [finding.is_good async for finding in verify_archive(room.pool, options_for(tmp_path)) if finding.segment]
    assert good == [True, True]


async def test_damaged_file_is_202_over_http(room: Room, tmp_path: Path) -> None:
    """The database is erased, and the response says that a file is left."""
    january, _ = await two_files(room, tmp_path)
    january.unlink()
    settled = replace(room, settings=replace(room.settings, archive_url=str(tmp_path)))
    app = HttpApplication(settled, api.ENDPOINTS, auth=Authenticator(room.pool))
    browser = await open_browser(room, app=app)
    answer = await browser.post("/v1/erasures", json={"email": ANN})
    assert (answer.status, answer.json["status"]) == (202, "running")
    assert str(january.relative_to(tmp_path)) in answer.json["waits_for"][0]


@pytest.mark.parametrize("step", ["stored", "exported", "verified", "detached"])
async def test_unfinished_piece_leaves_no_file_with_the_address(room: Room, tmp_path: Path, step: str) -> None:
    """An unrecorded file of a killed archiver is removed too."""
    await make_months(room.pool, JANUARY)
    await add_attempts(room.pool, JANUARY, 10)
    await room.pool.execute("UPDATE attempts SET reply_text = 'no ann@example.org here'")
    dying = Orders(room.url, str(tmp_path), NOW, die_at=step)
    assert await run_to_its_end(dying) == -signal.SIGKILL
    assert ANN in bytes_in(tmp_path)
    done = await erase(room, options_for(tmp_path), address=ANN, actor=ACTOR)
    assert done.is_done
    assert files_of(tmp_path) + manifests_of(tmp_path) == []

    await run(room, options_for(tmp_path))
    assert archived_ids(tmp_path) == list(range(1, 11))
    assert ANN not in bytes_in(tmp_path)
    assert [finding async for finding in verify_archive(room.pool, options_for(tmp_path)) if not finding.is_good] == []


async def test_kill_during_the_removal_of_a_file_loses_nothing(room: Room, tmp_path: Path) -> None:
    """The piece is marked before its file is deleted, so that an archiver exports it again and drops nothing."""
    await make_months(room.pool, JANUARY)
    await add_attempts(room.pool, JANUARY, 10)
    assert await run_to_its_end(Orders(room.url, str(tmp_path), NOW, die_at="detached")) == -signal.SIGKILL
    dying = Orders(room.url, str(tmp_path), NOW, task="erase", die_at="marked_stale")
    assert await run_to_its_end(dying) == -signal.SIGKILL
    assert [segment.state for segment in await list_segments(room.pool)] == [SegmentState.EXPORTING]
    await resume_erasures(room, options_for(tmp_path))
    await run(room, options_for(tmp_path))
    assert archived_ids(tmp_path) == list(range(1, 11))


async def test_files_in_a_previous_store_are_rewritten(room: Room, tmp_path: Path) -> None:
    """After a change of the setting, files in the old store are erased too."""
    await two_files(room, tmp_path / "old")
    done = await erase(room, options_for(tmp_path / "new"), address=ANN, actor=ACTOR)
    assert (done.is_done, done.counts["archive"]) == (True, 20)
    assert ANN not in bytes_in(tmp_path)


async def test_table_dropped_during_a_search_is_no_error(room: Room, tmp_path: Path) -> None:
    """The archiver may drop a month during an erasure; its file is searched instead."""
    await make_months(room.pool, JANUARY)
    await add_attempts(room.pool, JANUARY, 10)
    await room.pool.execute("UPDATE attempts SET reply_text = 'no ann@example.org here'")
    await room.pool.execute(
        "INSERT INTO archived_partitions (state, is_attached, part, from_time, to_time, table_name, source_name, path)"
        " VALUES ('collecting', false, 1, '2029-01-01Z', '2029-02-01Z', 'attempts', 'attempts_gone', 'nowhere')"
    )
    done = await erase(room, options_for(tmp_path), address=ANN, actor=ACTOR)
    assert (done.is_done, done.counts["attempts"]) == (True, 10)
