"""People at the command line, in a room of their own."""

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
    """The room of this test; afterwards logs go where they went before the commands took them."""
    monkeypatch.setenv("POSTROOM_DATABASE_URL", database_url)
    monkeypatch.setenv("POSTROOM_LOG_LEVEL", "error")
    before, handlers = structlog.get_config(), logging.getLogger().handlers[:]
    yield
    structlog.configure(**before)
    logging.getLogger().handlers[:] = handlers


async def ask(*arguments: str, stdin: str | bytes | None = None, group: typer.Typer = users) -> Result:
    """Run a command as the shell would: in a thread, because it brings its own loop."""
    return await asyncio.to_thread(CliRunner().invoke, group, arguments, stdin)


async def ask_json(*arguments: str, group: typer.Typer = users) -> Any:
    result = await ask(*arguments, "--json", group=group)
    assert result.exit_code == 0, result.output
    return msgspec.json.decode(result.stdout)


def read_all(terminal: int) -> bytes:
    """Everything a terminal shows, until nobody can write to it any more."""
    seen = b""
    with contextlib.suppress(OSError):  # which is how Linux says so
        while more := os.read(terminal, 65536):
            seen += more
    return seen


ADA = ("--first-name", "Ada", "--last-name", "Lovelace", "--born", "1815-12-10", "--timezone", "Europe/London")


@pytest.mark.usefixtures("environment")
async def test_a_person_s_life_at_the_command_line() -> None:
    """Created, shown, changed, planned for, deleted."""
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
async def test_importing_adds_the_good_and_names_the_bad(tmp_path: Path) -> None:
    """Each refused line by its number and field, a count of both, and exit code 1."""
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
    """`-` reads what is piped in; without refusals the exit code is 0."""
    result = await ask("import", "-", stdin="\n".join(CSV.splitlines()[:3]))
    assert (result.exit_code, result.stdout) == (0, "2 added, 0 refused\n")


GOOD = CSV.splitlines()[:2]
LATIN_1 = "\n".join([*GOOD, "José,Nowhere,1990-01-01,UTC,,", "Ann,Who,1990-01-01,UTC,é@example.org,"]).encode("latin-1")


@pytest.mark.usefixtures("environment")
@pytest.mark.parametrize("source", ["file", "stdin"])
async def test_a_byte_that_is_no_utf_8_costs_its_line_only(tmp_path: Path, source: str) -> None:
    """From a file and from standard input, behind a byte order mark: the others are added, the line is named."""
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
async def test_an_import_that_breaks_off_says_how_far_it_came(tmp_path: Path, pool: Pool) -> None:
    """Whole batches stay; the line to go on from is told, for a second run would add the first ones twice."""
    await pool.execute("ALTER TABLE users ADD CONSTRAINT no_quux CHECK (last_name <> 'Quux')")
    file = tmp_path / "people.csv"
    file.write_text("\n".join([GOOD[0], *[GOOD[1]] * 500, "Ada,Quux,1990-01-01,UTC,,", ""]))
    result = await ask("import", str(file))
    assert result.exit_code == 1
    assert result.stderr == "stopped before line 502: 500 added\n"
    assert await pool.fetchval("SELECT count(*) FROM users") == 500


@pytest.mark.usefixtures("environment")
async def test_a_terminal_sees_an_import_s_progress(tmp_path: Path) -> None:
    """Run under a terminal, the import shows how far it is; the result is on standard output as always."""
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
async def test_a_wrong_value_is_refused() -> None:
    """One error that names the field, nothing stored."""
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
def test_a_header_must_be_understood(header: str, wrong: str) -> None:
    """What is missing, unknown, there twice or unreadable stops the import before it begins."""
    with pytest.raises(BadInput) as caught:
        list(read_people([header + "\n"]))
    assert caught.value.errors[0].field == "header"
    assert wrong in caught.value.errors[0].message


def test_a_broken_quote_costs_its_line_only() -> None:
    """What is not CSV is told by its number."""
    lines = list(
        read_people(
            ["first_name,last_name,date_of_birth,timezone\n", 'A,"B"C,1990-01-01,UTC\n', "A,B,1990-01-01,UTC\n"]
        )
    )
    assert [(line.number, line.person is None) for line in lines] == [(2, True), (3, False)]


def test_an_open_quote_swallows_nobody() -> None:
    """However many lines follow, only the line with the quote is lost, and it is named."""
    good = "Ada,Lovelace,1815-12-10,Europe/London\n"
    lines = list(read_people([f"{COLUMNS}\n", *[good] * 3, '"Ada,Lovelace,1815-12-10,UTC\n', *[good] * 500, '"']))
    assert [line.number for line in lines if line.person is None] == [5, 506]
    assert sum(line.person is not None for line in lines) == 503
    assert "a quote is opened and not closed" in str(lines[3].problem)


@pytest.mark.parametrize("day", ["19900101", "1990-W01-1", "1990-1-1", "1990-02-30", "\u0661990-01-01", ""])
def test_a_date_has_one_notation(day: str) -> None:
    """Year, month and day with hyphens, and no other way to write one."""
    [line] = read_people([f"{COLUMNS}\n", f"Ada,Lovelace,{day},UTC\n"])
    assert line.problem == "date_of_birth: must be a date such as 1815-12-10"


def test_a_nul_is_told_as_such() -> None:
    """By the column that has it."""
    [line] = read_people([f"{COLUMNS}\n", "A\0da,Lovelace,1990-01-01,UTC\n"])
    assert line.problem == "first_name: has a NUL character"


@pytest.mark.usefixtures("environment")
async def test_importing_from_a_pipe(tmp_path: Path) -> None:
    """What a shell offers as a file without being one is read all the same; a folder is not."""
    pipe = tmp_path / "people"
    os.mkfifo(pipe)
    _, result = await asyncio.gather(asyncio.to_thread(pipe.write_text, "\n".join(GOOD)), ask("import", str(pipe)))
    assert (result.exit_code, result.stdout) == (0, "1 added, 0 refused\n")
    assert (await ask("import", str(tmp_path))).exit_code == 2


@pytest.mark.usefixtures("environment")
async def test_occasions_at_the_command_line() -> None:
    """A reminder is added, listed and removed; a rule that is no JSON is told as such."""
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
async def test_a_header_from_standard_input_that_is_not_understood_is_one_error() -> None:
    """No traceback follows it, neither of the error nor of what was being read."""
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
    """The date does not hide the others."""
    wrong = ("--first-name", "Ada", "--last-name", " ", "--born", "10.12.1815", "--timezone", "Mars", "--email", "x")
    refused = (await ask("create", *wrong)).exception
    assert isinstance(refused, BadInput)
    assert [error.field for error in refused.errors] == ["date_of_birth", "last_name", "timezone", "email"]


@pytest.mark.usefixtures("environment")
async def test_a_new_person_as_json() -> None:
    """A program reads the person with its id."""
    made = await ask_json("create", *ADA)
    assert (made["first_name"], made["date_of_birth"]) == ("Ada", "1815-12-10")
    assert made["id"]


@pytest.mark.usefixtures("environment")
async def test_events_are_listed_moved_and_cancelled() -> None:
    """Across people; a stale version and a time in no notation are refused with a sentence."""
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
