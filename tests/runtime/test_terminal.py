"""Shared functions of commands: parsing of arguments and output."""

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


def test_times_need_a_zone() -> None:
    """A time has a zone, or is a delay from now; an error names the option."""
    assert terminal.parse_moment("2030-01-31T09:00:00Z", "--at") == datetime(2030, 1, 31, 9, 0, tzinfo=UTC)
    assert terminal.parse_moment("+10m", "--at") > datetime.now(UTC) + timedelta(minutes=9)
    for wrong in ("2030-01-31T09:00:00", "tomorrow", "+soon", "+99999999999d", "0001-01-01T00:00:00+14:00"):
        with pytest.raises(typer.BadParameter) as refused:
            terminal.parse_moment(wrong, "--at")
        assert refused.value.format_message().startswith("Invalid value for --at: must ")


def test_variables_are_pairs_over_json() -> None:
    """`--var` overrides `--vars-json`; a value may contain an equals sign."""
    assert terminal.parse_variables(["a=b=c"], '{"a": 1, "n": [2]}') == {"a": "b=c", "n": [2]}
    for pairs, as_json in ((["a"], None), (["=b"], None), ([], "[1]"), ([], "{")):
        with pytest.raises(typer.BadParameter):
            terminal.parse_variables(pairs, as_json)


def test_a_page_is_a_table_or_json(capsys: pytest.CaptureFixture[str]) -> None:
    """Tables have times in UTC, JSON has the API's form; brackets are text, not markup."""
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


def test_record_omits_empty_attributes(capsys: pytest.CaptureFixture[str]) -> None:
    """Each attribute with a value has a line."""
    terminal.print_record(Thing(1, THING.made_at, ()), columns=("id", "names"))
    assert capsys.readouterr().out == "id     1\n"


def test_control_characters_are_replaced() -> None:
    """Escapes and bells become a visible mark; line ends and tabs stay."""
    assert terminal.printable("a\x1b[31m\x07\r\nb\tc") == "a\ufffd[31m\ufffd\nb\tc"


def test_error_is_one_sentence_and_an_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    """Errors inside an exception group too."""
    assert report(DeliveryNotFound()) == 1
    assert report(ExceptionGroup("tasks", [BadInput.of("to", "is wrong")])) == 1
    assert capsys.readouterr().err == "postroom: There is no such delivery.\npostroom: to: is wrong\n"
    assert exit_code(PostroomError()) == 1
    assert exit_code(KeyboardInterrupt()) == 130


def test_unexpected_error_keeps_its_traceback() -> None:
    """Only known errors are shortened to a sentence."""
    with pytest.raises(ZeroDivisionError):
        report(ZeroDivisionError())


def test_lost_database_is_reported_in_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    """The driver's connection error is printed without a traceback."""
    import asyncpg

    assert report(asyncpg.ConnectionDoesNotExistError("connection was closed")) == 1
    assert capsys.readouterr().err == "postroom: The database went away: connection was closed\n"


def test_room_is_added_to_the_options_of_a_url() -> None:
    """Other options and parameters of the URL are kept."""
    url = room_url("postgresql://u:p@h:5/d?sslmode=require&options=-cjit%3Doff", "mail")
    assert url == "postgresql://u:p@h:5/d?sslmode=require&options=-cjit%3Doff%20-csearch_path%3Dmail"


def test_psql_gets_the_password_by_environment() -> None:
    """Every user of the host can read a command line."""
    command, environment = psql_command(Path("psql"), "postgresql://u:p%40ss@127.0.0.1/d", ["-c", "SELECT 1"])
    assert command == ["psql", "-d", "postgresql://u@127.0.0.1/d", "-c", "SELECT 1"]
    assert environment["PGPASSWORD"] == "p@ss"
