"""People at the command line, each test in its own room."""

import asyncio
import contextlib
import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import structlog
import typer
from typer.testing import CliRunner, Result

from postroom.db.pool import Pool
from postroom.errors import BadInput, VersionConflict
from postroom.schedule.cli import users
from postroom.schedule.event_cli import schedule
from postroom.schedule.people_csv import read_people

CSV = """first_name,last_name,date_of_birth,timezone,email,webhook_url
Ada,Lovelace,1815-12-10,Europe/London,ada@example.org,
Grace,Hopper,1906-12-09,America/New_York,,https://hooks.example.org/
Nobody,Nowhere,1990-01-01,EST,,
Bad,Date,10.12.1815,Europe/London,,
Too,Few,1990-01-01
,Nameless,1990-01-01,UTC,,
"""


@pytest.fixture
def environment(database_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Set the room of this test, and restore the logging configuration afterwards."""
    monkeypatch.setenv("POSTROOM_DATABASE_URL", database_url)
    monkeypatch.setenv("POSTROOM_LOG_LEVEL", "error")
    before, handlers = structlog.get_config(), logging.getLogger().handlers[:]
    yield
    structlog.configure(**before)
    logging.getLogger().handlers[:] = handlers


async def ask(*arguments: str, stdin: str | bytes | None = None, group: typer.Typer = users) -> Result:
    """Run a command in a thread, because it starts its own event loop."""
    return await asyncio.to_thread(CliRunner().invoke, group, arguments, stdin)


async def ask_json(*arguments: str, group: typer.Typer = users) -> Any:
    result = await ask(*arguments, "--json", group=group)
    assert result.exit_code == 0, result.output
    return msgspec.json.decode(result.stdout)


def read_all(terminal: int) -> bytes:
    """The output of a terminal until its last writer closes it."""
    seen = b""
    with contextlib.suppress(OSError):  # Linux raises EIO after the last writer
        while more := os.read(terminal, 65536):
            seen += more
    return seen


ADA = ("--first-name", "Ada", "--last-name", "Lovelace", "--born", "1815-12-10", "--timezone", "Europe/London")


@pytest.mark.usefixtures("environment")
async def test_person_lifecycle_at_the_command_line() -> None:
    """A person is created, shown, changed, listed with events, and deleted."""
    user_id = (await ask("create", *ADA, "--email", "ada@example.org")).stdout.strip()
    shown = await ask_json("show", user_id)
    assert (shown["first_name"], shown["date_of_birth"], shown["version"]) == ("Ada", "1815-12-10", 1)
    assert "Europe/London" in (await ask("show", user_id)).stdout
    changed = await ask("update", user_id, "--timezone", "Asia/Tokyo", "--email", "", "--born", "1815-12-11")
    assert "version 2; 1 events moved, 0 left alone" in changed.stdout
    assert (await ask_json("show", user_id))["email"] is None
    [event] = (await ask_json("events", user_id))["items"]
    assert (event["status"], event["timezone"]) == ("PENDING", "Asia/Tokyo")
    assert "PENDING" in (await ask("events", user_id)).stdout
    assert [user["id"] for user in (await ask_json("list"))["items"]] == [user_id]
    assert "deleted" in (await ask("delete", user_id)).stdout
    assert (await ask_json("list"))["items"] == []


@pytest.mark.usefixtures("environment")
async def test_import_adds_valid_lines_and_reports_invalid_ones(tmp_path: Path) -> None:
    """Each invalid line is reported with number and field, and the exit code is 1."""
    file = tmp_path / "people.csv"
    file.write_text(CSV)
    result = await ask("import", str(file))
    assert result.exit_code == 1
    assert "2 added, 4 refused" in result.stdout
    complaints = result.stderr.splitlines()
    assert [line.partition(":")[0] for line in complaints] == ["line 4", "line 5", "line 6", "line 7"]
    assert "timezone" in complaints[0]
    assert "date_of_birth" in complaints[1]
    assert "first_name" in complaints[3]
    assert len((await ask_json("list"))["items"]) == 2


@pytest.mark.usefixtures("environment")
async def test_importing_from_standard_input() -> None:
    """`-` reads standard input; without invalid lines the exit code is 0."""
    result = await ask("import", "-", stdin="\n".join(CSV.splitlines()[:3]))
    assert (result.exit_code, result.stdout) == (0, "2 added, 0 refused\n")


GOOD = CSV.splitlines()[:2]
LATIN_1 = "\n".join([*GOOD, "José,Nowhere,1990-01-01,UTC,,", "Ann,Who,1990-01-01,UTC,é@example.org,"]).encode("latin-1")


@pytest.mark.usefixtures("environment")
@pytest.mark.parametrize("source", ["file", "stdin"])
async def test_invalid_utf_8_affects_its_line_only(tmp_path: Path, source: str) -> None:
    """A line with invalid UTF-8 is reported and the others are added, from a file and from standard input."""
    data = b"\xef\xbb\xbf" + LATIN_1 + b"\nGrace,Hopper,1906-12-09,America/New_York,,\n"
    file = tmp_path / "people.csv"
    file.write_bytes(data)
    result = await ask("import", "-", stdin=data) if source == "stdin" else await ask("import", str(file))
    assert (result.exit_code, result.stdout) == (1, "2 added, 2 refused\n")
    assert result.stderr.splitlines() == [
        "line 3: first_name: has the byte 0xE9, which is not valid UTF-8",
        "line 4: email: has the byte 0xE9, which is not valid UTF-8",
    ]


@pytest.mark.usefixtures("environment")
async def test_failed_import_reports_the_line_to_continue_from(tmp_path: Path, pool: Pool) -> None:
    """Committed batches stay; the error names the line to continue from, because a rerun would add them twice."""
    await pool.execute("ALTER TABLE users ADD CONSTRAINT no_quux CHECK (last_name <> 'Quux')")
    file = tmp_path / "people.csv"
    file.write_text("\n".join([GOOD[0], *[GOOD[1]] * 500, "Ada,Quux,1990-01-01,UTC,,", ""]))
    result = await ask("import", str(file))
    assert result.exit_code == 1
    assert result.stderr == "stopped before line 502: 500 added\n"
    assert await pool.fetchval("SELECT count(*) FROM users") == 500


@pytest.mark.usefixtures("environment")
async def test_import_shows_progress_in_a_terminal(tmp_path: Path) -> None:
    """In a terminal the import shows a progress bar on standard error and the result on standard output."""
    file = tmp_path / "people.csv"
    file.write_text("\n".join(GOOD))
    shown, written = os.openpty()
    command = [sys.executable, "-m", "postroom.cli", "users", "import", str(file)]
    try:
        process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE, stderr=written)
    finally:
        os.close(written)
    (said, _), seen = await asyncio.gather(process.communicate(), asyncio.to_thread(read_all, shown))
    os.close(shown)
    assert (process.returncode, said) == (0, b"1 added, 0 refused\n")
    assert b"importing" in seen
    assert b"100%" in seen


@pytest.mark.usefixtures("environment")
async def test_invalid_value_is_rejected() -> None:
    """One error names the field, and no person is stored."""
    result = await ask("create", *ADA[:-1], "EST")
    assert result.exit_code != 0
    assert "timezone" in str(result.exception)
    assert (await ask_json("list"))["items"] == []


COLUMNS = "first_name,last_name,date_of_birth,timezone"


@pytest.mark.parametrize(
    "header, wrong",
    [
        ("first_name,last_name", "lacks date_of_birth, timezone"),
        (f"{COLUMNS},shoe_size", "unknown columns: shoe_size"),
        (f"{COLUMNS},email,first_name,email", "more than once: email, first_name"),
        (f'{COLUMNS},"email', "a quote is opened and not closed"),
        (f'{COLUMNS},"em"ail', "is not CSV"),
        ("\udcff\udcfef\0i\0r\0s\0t", "byte 0xFF, which is not valid UTF-8"),
        ("", "lacks first_name"),
    ],
)
def test_invalid_header_stops_the_import(header: str, wrong: str) -> None:
    """A missing, unknown, duplicate or undecodable column stops the import before the first line."""
    with pytest.raises(BadInput) as caught:
        list(read_people([header + "\n"]))
    assert caught.value.errors[0].field == "header"
    assert wrong in caught.value.errors[0].message


def test_broken_quote_affects_its_line_only() -> None:
    """A line that is not valid CSV is reported by its number."""
    lines = list(
        read_people(
            ["first_name,last_name,date_of_birth,timezone\n", 'A,"B"C,1990-01-01,UTC\n', "A,B,1990-01-01,UTC\n"]
        )
    )
    assert [(line.number, line.person is None) for line in lines] == [(2, True), (3, False)]


def test_unclosed_quote_affects_its_line_only() -> None:
    """Only the line with the unclosed quote is rejected, however many lines follow."""
    good = "Ada,Lovelace,1815-12-10,Europe/London\n"
    lines = list(read_people([f"{COLUMNS}\n", *[good] * 3, '"Ada,Lovelace,1815-12-10,UTC\n', *[good] * 500, '"']))
    assert [line.number for line in lines if line.person is None] == [5, 506]
    assert sum(line.person is not None for line in lines) == 503
    assert "a quote is opened and not closed" in str(lines[3].problem)


@pytest.mark.parametrize("day", ["19900101", "1990-W01-1", "1990-1-1", "1990-02-30", "\u0661990-01-01", ""])
def test_a_date_has_one_notation(day: str) -> None:
    """A date is accepted only as YYYY-MM-DD."""
    [line] = read_people([f"{COLUMNS}\n", f"Ada,Lovelace,{day},UTC\n"])
    assert line.problem == "date_of_birth: must be a date such as 1815-12-10"


def test_nul_character_is_reported_by_column() -> None:
    """The error names the column with the NUL character."""
    [line] = read_people([f"{COLUMNS}\n", "A\0da,Lovelace,1990-01-01,UTC\n"])
    assert line.problem == "first_name: has a NUL character"


@pytest.mark.usefixtures("environment")
async def test_importing_from_a_pipe(tmp_path: Path) -> None:
    """A named pipe is read like a file; a folder is rejected."""
    pipe = tmp_path / "people"
    os.mkfifo(pipe)
    _, result = await asyncio.gather(asyncio.to_thread(pipe.write_text, "\n".join(GOOD)), ask("import", str(pipe)))
    assert (result.exit_code, result.stdout) == (0, "1 added, 0 refused\n")
    assert (await ask("import", str(tmp_path))).exit_code == 2


@pytest.mark.usefixtures("environment")
async def test_occasions_at_the_command_line() -> None:
    """A reminder is added, listed and removed; a rule that is not JSON is rejected."""
    user_id = (await ask("create", *ADA)).stdout.strip()
    rule = '{"at": "2099-01-31T09:00:00"}'
    added = await ask("occasions", "add", user_id, "reminder", "--rule", rule, "--message", "Tea")
    assert added.exit_code == 0, added.output
    listed = await ask_json("occasions", "list", user_id)
    assert [(item["kind"], item["message"]) for item in listed["items"]] == [("REMINDER", "Tea")]
    assert rule in (await ask("occasions", "list", user_id)).stdout
    assert isinstance((await ask("occasions", "add", user_id, "reminder", "--rule", "x")).exception, BadInput)
    assert (await ask("occasions", "remove", user_id, added.stdout.strip())).exit_code == 0
    assert (await ask_json("occasions", "list", user_id))["items"] == []


@pytest.mark.usefixtures("environment")
async def test_invalid_header_from_standard_input_is_one_error() -> None:
    """The error is printed without a traceback."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "postroom.cli", "users", "import", "-",
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    said, wrong = await process.communicate(b"first_name,last_name\nAda,Lovelace\n")
    assert (process.returncode == 0, said) == (False, b"")
    assert b"lacks date_of_birth, timezone" in wrong
    assert b"Traceback" not in wrong
    assert b"Exception ignored" not in wrong


async def test_every_wrong_field_of_a_new_person_is_named() -> None:
    """An invalid date does not hide other invalid fields."""
    wrong = ("--first-name", "Ada", "--last-name", " ", "--born", "10.12.1815", "--timezone", "Mars", "--email", "x")
    refused = (await ask("create", *wrong)).exception
    assert isinstance(refused, BadInput)
    assert [error.field for error in refused.errors] == ["date_of_birth", "last_name", "timezone", "email"]


@pytest.mark.usefixtures("environment")
async def test_a_new_person_as_json() -> None:
    """`--json` prints the person with its id."""
    made = await ask_json("create", *ADA)
    assert (made["first_name"], made["date_of_birth"]) == ("Ada", "1815-12-10")
    assert made["id"]


@pytest.mark.usefixtures("environment")
async def test_events_are_listed_moved_and_cancelled() -> None:
    """Events are listed, moved and cancelled; a stale version and an invalid time are rejected."""
    await ask("create", *ADA)
    [event] = (await ask_json("list", "--status", "pending", "--soonest", group=schedule))["items"]
    move = ("move", event["id"], "2100-02-03T04:05", "--version")
    assert "version 2; due 2100-02-03 04:05:00 Europe/London" in (await ask(*move, "1", group=schedule)).stdout
    assert isinstance((await ask(*move, "1", group=schedule)).exception, VersionConflict)
    assert (await ask_json("show", event["id"], group=schedule))["moved_from"] == event["target_local"]
    assert "2100-02-03 04:05:00" in (await ask("show", event["id"], group=schedule)).stdout
    assert "cancelled" in (await ask("cancel", event["id"], "--version", "2", group=schedule)).stdout
    [failed] = (await ask_json("list", "--status", "FAILED", "--not-late", group=schedule))["items"]
    assert failed["failure_reason"].startswith("cancelled: by cli:")
    assert "PENDING" in (await ask("list", "--kind", "birthday", group=schedule)).stdout
    assert isinstance((await ask("list", "--status", "gone", group=schedule)).exception, BadInput)
    assert isinstance((await ask("move", event["id"], "noon", "--version", "1", group=schedule)).exception, BadInput)
