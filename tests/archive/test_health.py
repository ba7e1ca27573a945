"""Archive checks of the doctor."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.archive import ACTOR, JANUARY, add_attempts, files_of, options_for, run

from postroom.archive import health
from postroom.cli import database_checks, host_checks
from postroom.db.room import Room
from postroom.erasure.service import erase
from postroom.runtime.finding import Finding, Severity
from postroom.settings import Settings


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Raise the timeout of the store check for slow machines."""
    monkeypatch.setattr(host_checks, "CONNECT_TIMEOUT_S", 3600.0)
    monkeypatch.setattr(health, "PATIENCE_S", 3600.0)


def names_in(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


async def place(**chosen: object) -> Finding:
    return await host_checks.archive(replace(Settings(database_url="postgresql://nobody"), **chosen))  # type: ignore[arg-type]


async def files(room: Room, folder: Path) -> Finding:
    settings = replace(room.settings, archive_url=str(folder))
    async with room.pool.acquire() as session:
        found = await database_checks.examine(session, settings)
    return {finding.check: finding for finding in found}["archived files"]


async def test_unwritable_store_fails_the_check(tmp_path: Path) -> None:
    """An absent URL or folder is a warning, an unwritable one a failure; the check leaves no file behind."""
    (tmp_path / "file").write_text("")
    assert (await place()).verdict is Severity.WARN
    assert (await place(archive_url=str(tmp_path))).verdict is Severity.OK
    assert (await place(archive_url=str(tmp_path / "missing"))).verdict is Severity.WARN
    for impossible in (tmp_path / "file", tmp_path / "file" / "archive", Path("/proc/postroom")):
        assert (await place(archive_url=str(impossible))).verdict is Severity.FAIL, impossible
    assert names_in(tmp_path) == ["file"]


async def test_folder_of_the_embedded_server_may_be_absent(tmp_path: Path) -> None:
    """The folder is created when the first month is archived."""
    assert (await place(database_url=None, data_dir=tmp_path)).verdict is Severity.OK


async def test_missing_files_fail_the_check(room: Room, tmp_path: Path) -> None:
    """The finding names the missing file and counts the erasures that need it."""
    assert (await files(room, tmp_path)).verdict is Severity.OK
    await add_attempts(room.pool, JANUARY, 10)
    await run(room, options_for(tmp_path))
    assert (await files(room, tmp_path)).found == "1 pieces, each where it should be"
    [path] = files_of(tmp_path)
    path.rename(tmp_path / "away")
    assert not (await erase(room, options_for(tmp_path), address="ann@example.org", actor=ACTOR)).is_done
    found = await files(room, tmp_path)
    assert found.verdict is Severity.FAIL
    assert f"1 of 1 missing, the first {path.relative_to(tmp_path)}; 1 erasures are not done" in found.found
    (tmp_path / "away").rename(path)
    waiting = await files(room, tmp_path)
    assert (waiting.verdict, waiting.found) == (Severity.WARN, "1 erasures are not done")


async def test_copy_of_a_room_is_reported_with_its_foreign_files(room: Room, tmp_path: Path) -> None:
    """The finding names the command for a copy that replaces the original."""
    await add_attempts(room.pool, JANUARY, 10)
    await run(room, options_for(tmp_path))
    await room.pool.execute("UPDATE archive_room SET place = 'elsewhere'")
    found = await files(room, tmp_path)
    assert (found.verdict, "archive adopt" in str(found.advice)) == (Severity.WARN, True)
    shutil.rmtree(tmp_path / files_of(tmp_path)[0].relative_to(tmp_path).parts[0])
    assert (await files(room, tmp_path)).verdict is Severity.FAIL
