"""Forgetting a person in files that are damaged, half written, or elsewhere: never done too early, never stuck."""

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
    """January and February in the archive, Ann in both."""
    for month in (JANUARY, FEBRUARY):
        await add_attempts(room.pool, month, 10, first=month.month * 100)
    await room.pool.execute("UPDATE attempts SET reply_text = 'no ann@example.org here'")
    await run(room, options_for(folder))
    january, february = files_of(folder)
    return january, february


def bytes_in(folder: Path) -> str:
    """Every text in every Parquet file under a folder, whatever it is called."""
    files = [path for path in folder.rglob("*") if path.is_file() and "parquet" in path.name]
    return str([part.to_pylist() for path in files for part in read_tables(path)])


def manifests_of(folder: Path) -> list[Path]:
    return list(folder.rglob("*.manifest.json"))


@pytest.mark.parametrize("damage", ["missing", "damaged"])
async def test_a_file_that_is_damaged_keeps_nothing_else_waiting(room: Room, tmp_path: Path, damage: str) -> None:
    """The person is out of the other files, the next person's erasure and the archive go on, and it is not done."""
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


async def test_a_damaged_file_does_not_become_good_by_being_erased(room: Room, tmp_path: Path) -> None:
    """One that was exchanged for another is left as it is and named; nobody writes a new checksum over the damage."""
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
async def test_a_kill_leaves_no_file_too_many(room: Room, tmp_path: Path, step: str) -> None:
    """Before the record is switched the old file counts, after it the new one; the other goes with the next turn."""
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


async def test_the_last_file_of_these_rows_is_not_removed(room: Room, tmp_path: Path) -> None:
    """If an older state of the room came back, what its record calls too many may be all there is."""
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


async def test_a_store_that_does_not_answer_keeps_nobody_in_other_files(room: Room, tmp_path: Path) -> None:
    """The person is out of what can be reached, and the erasure says what cannot."""
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


async def test_a_copy_of_a_room_leaves_the_files_of_the_other_alone(room: Room, tmp_path: Path) -> None:
    """It gets files of its own without the person; whoever wrote the old ones still has them."""
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


async def test_over_http_a_damaged_file_is_202(room: Room, tmp_path: Path) -> None:
    """The database has forgotten, and the answer says that a file waits."""
    january, _ = await two_files(room, tmp_path)
    january.unlink()
    settled = replace(room, settings=replace(room.settings, archive_url=str(tmp_path)))
    app = HttpApplication(settled, api.ENDPOINTS, auth=Authenticator(room.pool))
    browser = await open_browser(room, app=app)
    answer = await browser.post("/v1/erasures", json={"email": ANN})
    assert (answer.status, answer.json["status"]) == (202, "running")
    assert str(january.relative_to(tmp_path)) in answer.json["waits_for"][0]


@pytest.mark.parametrize("step", ["stored", "exported", "verified", "detached"])
async def test_a_piece_on_its_way_leaves_no_file_behind(room: Room, tmp_path: Path, step: str) -> None:
    """Also the one that a killed archiver stored without a word: done means that no file has the address."""
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


async def test_a_kill_while_a_file_is_thrown_away_loses_nothing(room: Room, tmp_path: Path) -> None:
    """The piece is marked before its file goes: an archiver who comes in between writes it again and drops nothing."""
    await make_months(room.pool, JANUARY)
    await add_attempts(room.pool, JANUARY, 10)
    assert await run_to_its_end(Orders(room.url, str(tmp_path), NOW, die_at="detached")) == -signal.SIGKILL
    dying = Orders(room.url, str(tmp_path), NOW, task="erase", die_at="marked_stale")
    assert await run_to_its_end(dying) == -signal.SIGKILL
    assert [segment.state for segment in await list_segments(room.pool)] == [SegmentState.EXPORTING]
    await resume_erasures(room, options_for(tmp_path))
    await run(room, options_for(tmp_path))
    assert archived_ids(tmp_path) == list(range(1, 11))


async def test_files_are_rewritten_where_they_were_written(room: Room, tmp_path: Path) -> None:
    """After the settings named another place, the person is found in the old one too."""
    await two_files(room, tmp_path / "old")
    done = await erase(room, options_for(tmp_path / "new"), address=ANN, actor=ACTOR)
    assert (done.is_done, done.counts["archive"]) == (True, 20)
    assert ANN not in bytes_in(tmp_path)


async def test_a_table_that_is_dropped_meanwhile_is_no_error(room: Room, tmp_path: Path) -> None:
    """The archiver may drop a month while an erasure searches it; its file is searched instead."""
    await make_months(room.pool, JANUARY)
    await add_attempts(room.pool, JANUARY, 10)
    await room.pool.execute("UPDATE attempts SET reply_text = 'no ann@example.org here'")
    await room.pool.execute(
        "INSERT INTO archived_partitions (state, is_attached, part, from_time, to_time, table_name, source_name, path)"
        " VALUES ('collecting', false, 1, '2029-01-01Z', '2029-02-01Z', 'attempts', 'attempts_gone', 'nowhere')"
    )
    done = await erase(room, options_for(tmp_path), address=ANN, actor=ACTOR)
    assert (done.is_done, done.counts["attempts"]) == (True, 10)
