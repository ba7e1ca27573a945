"""The commands of archive, erasure and backup, each in a process of its own."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import asyncpg
import msgspec
import pytest
import structlog
import typer
from tests.support.archive import add_attempts
from tests.support.command_line import PATIENT, outcome
from typer.testing import CliRunner

from postroom.db.room import Room
from postroom.erasure.cli import erase

LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)
RECENTLY = datetime.now(UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)


class Shell:
    """Runs commands in one room with one archive."""

    def __init__(self, room: Room, folder: Path) -> None:
        self._settings = {
            "POSTROOM_DATABASE_URL": room.url,
            "POSTROOM_DATA_DIR": str(folder),
            "POSTROOM_ARCHIVE_URL": str(folder / "archive"),
        }

    async def run(self, *arguments: str) -> tuple[int, str, str]:
        return await outcome(*arguments, command=PATIENT, settings=self._settings)

    async def json(self, *arguments: str) -> Any:
        code, output, errors = await self.run(*arguments, "--json")
        assert code == 0, errors
        return msgspec.json.decode(output)


async def test_month_is_archived_queried_restored_and_released(room: Room, tmp_path: Path) -> None:
    """Each command prints its result."""
    shell = Shell(room, tmp_path)
    month = datetime(RECENTLY.year - (RECENTLY.month <= 6), (RECENTLY.month - 7) % 12 + 1, 1, tzinfo=UTC)
    await add_attempts(room.pool, month, 30)
    code, output, errors = await shell.run("archive", "run")
    assert (code, f"archived attempts {month:%Y-%m} part 1: 30 rows" in output) == (0, True), errors
    listed = await shell.json("archive", "list", "--table", "attempts")
    assert [(item["month"], item["rows"], item["state"]) for item in listed["items"]] == [
        (f"{month:%Y-%m}", 30, "archived")
    ]
    assert (await shell.run("archive", "verify"))[1].endswith("valid, 30 rows\n")
    assert await shell.json("archive", "query", "SELECT count(*) AS n FROM attempts") == [{"n": 30}]
    assert (await shell.run("archive", "query", "SELECT count(*) FROM ATTEMPTS"))[1].split() == ["count_star()", "30"]
    back = await shell.json("archive", "restore", "attempts", f"{month:%Y-%m}", "--attach")
    assert (back["rows"], back["is_attached"]) == (30, True)
    assert await room.pool.fetchval("SELECT count(*) FROM attempts") == 30
    assert (await shell.run("archive", "release", "attempts", f"{month:%Y-%m}"))[0] == 0
    assert await room.pool.fetchval("SELECT count(*) FROM attempts") == 0


async def test_verify_exits_1_for_a_missing_file(room: Room, tmp_path: Path) -> None:
    """A cron job can detect damage by the exit code."""
    shell = Shell(room, tmp_path)
    await add_attempts(room.pool, LONG_AGO, 3)
    done = await shell.json("archive", "run")
    assert (done["rows"], len(done["expired"])) == (3, 1)  # older than the archive keeps
    await room.pool.execute("UPDATE archived_partitions SET state = 'archived'")
    code, output, _ = await shell.run("archive", "verify")
    assert (code, "is not in the archive" in output) == (1, True)


async def test_failures_of_archive_commands_exit_1(room: Room, tmp_path: Path) -> None:
    """An unknown table, an unwritable folder and an adoption without --yes each print an error."""
    shell = Shell(room, tmp_path)
    for command in ("verify", "list"):
        code, _, errors = await shell.run("archive", command, "--table", "nosuch")
        assert (code, "must be one of attempts, delivery_steps, open_events, click_events" in errors) == (1, True)
    await add_attempts(room.pool, LONG_AGO, 3)
    (tmp_path / "archive").write_text("no folder")
    code, output, errors = await shell.run("archive", "run")
    assert (code, output.startswith("failed attempts 2020-01 part 1: "), errors.count("Traceback")) == (1, True, 0)
    assert (await shell.run("archive", "adopt"))[0] == 2
    assert (await shell.run("archive", "adopt", "--yes"))[1] == "adopted 0 pieces\n"


async def test_erase_prints_counts_and_the_erasure_id(room: Room, tmp_path: Path) -> None:
    """The command prints changed rows per table and the id of the erasure."""
    shell = Shell(room, tmp_path)
    await room.pool.execute("INSERT INTO accounts (email, login) VALUES ('Ann@example.org', 'ann')")
    code, output, errors = await shell.run("erase", "ann@example.org")
    assert (code, output) == (0, "accounts: 1\nerasure 1 is done\n"), errors
    code, _, errors = await shell.run("erase", "nonsense")
    assert (code, errors.startswith("postroom: email: ")) == (1, True)
    code, output, _ = await shell.run("erase", "bob@example.org", "--yes")
    assert (code, output) == (0, "erasure 2 is done: nothing was stored about bob@example.org\n")


async def test_dry_run_of_an_erasure_changes_nothing(room: Room, tmp_path: Path) -> None:
    """No row changes, no erasure is recorded, and an address without rows gets a message."""
    shell = Shell(room, tmp_path)
    await room.pool.execute("INSERT INTO accounts (email, login) VALUES ('Ann@example.org', 'ann')")
    code, output, errors = await shell.run("erase", "ann@example.org", "--dry-run")
    assert (code, output) == (0, "accounts: 1\n"), errors
    assert await shell.json("erase", "ann@example.org", "--dry-run", "--keep-accounts") == {
        "dry_run": True,
        "counts": {},
    }
    _, output, _ = await shell.run("erase", "bob@example.org", "--dry-run")
    assert output.startswith("No table has bob@example.org as a recipient or a person")
    assert await room.pool.fetchval("SELECT count(*) FROM accounts") == 1
    assert await room.pool.fetchval("SELECT count(*) FROM erasures") == 0


@pytest.mark.parametrize("answer, left", [("n", 1), ("y", 0)])
def test_erase_asks_for_confirmation_on_a_terminal(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str, left: int
) -> None:
    """The question follows the counts; without a yes nothing is erased."""
    monkeypatch.setenv("POSTROOM_DATABASE_URL", database_url)
    monkeypatch.setenv("POSTROOM_ARCHIVE_URL", str(tmp_path))
    asyncio.run(_execute(database_url, "INSERT INTO accounts (email, login) VALUES ('ann@example.org', 'ann')"))
    app = typer.Typer()
    app.command()(erase)
    monkeypatch.setattr("postroom.erasure.cli.is_terminal", lambda: True)
    result = CliRunner().invoke(app, ["ann@example.org"], input=f"{answer}\n")
    structlog.reset_defaults()
    assert "accounts: 1\nErase ann@example.org? This cannot be undone. [y/N]" in result.output
    assert asyncio.run(_execute(database_url, "SELECT count(*) FROM accounts")) == left


async def _execute(url: str, statement: str) -> Any:
    connection = await asyncpg.connect(url, server_settings={"search_path": "postroom"})
    try:
        return await connection.fetchval(statement)
    finally:
        await connection.close()


async def test_backup_is_made_checked_and_restored(room: Room, tmp_path: Path) -> None:
    """The backup is restored under another name beside the original."""
    shell, file = Shell(room, tmp_path), tmp_path / "room.backup"
    await room.pool.execute("INSERT INTO accounts (email, login) VALUES ('ann@example.org', 'ann')")
    made = await shell.json("backup", str(file))
    assert (made["room"], made["file"]) == ("postroom", str(file))
    assert (await shell.run("backup", "--check", str(file)))[1].startswith("good: ")
    code, _, errors = await shell.run("restore", "/etc/hosts")
    assert (code, "/etc/hosts is not a backup of Postroom" in errors) == (1, True)
    code, _, errors = await shell.run("restore", str(file))
    assert (code, "exists; restore into another database" in errors) == (1, True)
    assert (await shell.json("restore", str(file), "--as", "annex"))["room"] == "annex"
    assert await room.pool.fetchval("SELECT email FROM annex.accounts") == "ann@example.org"


async def test_invalid_store_option_exits_2(room: Room, tmp_path: Path) -> None:
    """The usage error names --store, also when nothing is old enough to archive."""
    shell = Shell(room, tmp_path)
    for command in (("run",), ("verify",), ("query", "SELECT 1"), ("restore", "attempts", "2026-01")):
        for url in ("ftp://x", "s3://"):
            code, _, errors = await shell.run("archive", *command, "--store", url)
            assert (code, "--store" in errors, "must be a folder" in errors) == (2, True, True), errors


async def test_unfinished_erasure_exits_1(room: Room, tmp_path: Path) -> None:
    """Exit code 1 keeps a script from taking the erasure for done."""
    shell = Shell(room, tmp_path)
    month = datetime(RECENTLY.year - (RECENTLY.month <= 6), (RECENTLY.month - 7) % 12 + 1, 1, tzinfo=UTC)
    await add_attempts(room.pool, month, 3)
    await shell.json("archive", "run")
    [file] = (tmp_path / "archive").rglob("*.parquet")
    away = file.rename(tmp_path / "away")
    code, output, _ = await shell.run("erase", "ann@example.org")
    assert (code, "is not in the archive" in output, "erasure 1 is not done" in output) == (1, True, True)
    code, output, _ = await shell.run("erase", "ann@example.org", "--json")
    assert (code, msgspec.json.decode(output)["state"]) == (1, "archive")
    away.rename(file)
    assert (await shell.json("erase", "ann@example.org"))["state"] == "done"
