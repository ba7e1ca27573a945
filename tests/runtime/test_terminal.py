"""What commands share: reading what was typed, printing what was found."""

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
import typer

from postroom.cli.database import psql_command, room_url
from postroom.cli.output import exit_code, report
from postroom.delivery.errors import DeliveryNotFound
from postroom.errors import BadInput, PostroomError
from postroom.runtime import terminal


@dataclass(frozen=True)
class Thing:
    id: int
    made_at: datetime
    names: tuple[str, ...]


THING = Thing(7, datetime(2030, 1, 31, 9, 0, tzinfo=timezone(timedelta(hours=1))), ("a", "[b]"))


def test_moments_need_a_zone() -> None:
    """A time says where it is meant, or is a delay from now."""
    assert terminal.parse_moment("2030-01-31T09:00:00Z") == datetime(2030, 1, 31, 9, 0, tzinfo=UTC)
    assert terminal.parse_moment("+10m") > datetime.now(UTC) + timedelta(minutes=9)
    for wrong in ("2030-01-31T09:00:00", "tomorrow", "+soon", "+99999999999d"):
        with pytest.raises(typer.BadParameter):
            terminal.parse_moment(wrong)


def test_variables_are_pairs_over_json() -> None:
    """`--var` wins over `--vars-json`; a value may hold an equals sign."""
    assert terminal.parse_variables(["a=b=c"], '{"a": 1, "n": [2]}') == {"a": "b=c", "n": [2]}
    for pairs, as_json in ((["a"], None), (["=b"], None), ([], "[1]"), ([], "{")):
        with pytest.raises(typer.BadParameter):
            terminal.parse_variables(pairs, as_json)


def test_a_page_is_a_table_or_json(capsys: pytest.CaptureFixture[str]) -> None:
    """People get columns in UTC, programs get the API's form; brackets are text, not markup."""
    terminal.print_page([THING], "next", columns=("id", "made_at", "names"), as_json=False)
    table = capsys.readouterr().out
    assert "made at" in table
    assert "2030-01-31 08:00:00" in table
    assert "a, [b]" in table
    assert "more: --cursor next" in table
    terminal.print_page([THING], None, columns=("id",), as_json=True)
    page = json.loads(capsys.readouterr().out)
    assert page["items"][0]["names"] == ["a", "[b]"]
    assert page["next_cursor"] is None


def test_a_record_leaves_out_what_is_empty(capsys: pytest.CaptureFixture[str]) -> None:
    """A line per attribute that has a value."""
    terminal.print_record(Thing(1, THING.made_at, ()), columns=("id", "names"))
    assert capsys.readouterr().out == "id     1\n"


def test_steering_characters_are_replaced() -> None:
    """Escapes and bells become a visible mark; line ends and tabs stay."""
    assert terminal.printable("a\x1b[31m\x07\r\nb\tc") == "a\ufffd[31m\ufffd\nb\tc"


def test_an_error_is_one_sentence_and_a_code(capsys: pytest.CaptureFixture[str]) -> None:
    """Also when it comes out of a group of tasks."""
    assert report(DeliveryNotFound()) == 1
    assert report(ExceptionGroup("tasks", [BadInput.of("to", "is wrong")])) == 1
    assert capsys.readouterr().err == "postroom: There is no such delivery.\npostroom: to: is wrong\n"
    assert exit_code(PostroomError()) == 1
    assert exit_code(KeyboardInterrupt()) == 130


def test_a_bug_keeps_its_trace() -> None:
    """What is not ours to explain is not hidden behind a sentence."""
    with pytest.raises(ZeroDivisionError):
        report(ZeroDivisionError())


def test_a_lost_database_is_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    """The driver's error for a connection that broke is told, not traced."""
    import asyncpg

    assert report(asyncpg.ConnectionDoesNotExistError("connection was closed")) == 1
    assert capsys.readouterr().err == "postroom: The database went away: connection was closed\n"


def test_the_room_joins_what_the_url_says_already() -> None:
    """Other options and parameters of a URL survive."""
    url = room_url("postgresql://u:p@h:5/d?sslmode=require&options=-cjit%3Doff", "mail")
    assert url == "postgresql://u:p@h:5/d?sslmode=require&options=-cjit%3Doff%20-csearch_path%3Dmail"


def test_psql_gets_the_password_by_its_environment() -> None:
    """Everybody on the machine can read a command line."""
    command, environment = psql_command(Path("psql"), "postgresql://u:p%40ss@127.0.0.1/d", ["-c", "SELECT 1"])
    assert command == ["psql", "-d", "postgresql://u@127.0.0.1/d", "-c", "SELECT 1"]
    assert environment["PGPASSWORD"] == "p@ss"
