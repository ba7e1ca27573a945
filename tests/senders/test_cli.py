"""Commands for sender accounts."""

import json
import os
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path

import pytest
import structlog
from tests.support.command_line import environment
from tests.support.patience import PATIENCE_S
from typer.testing import CliRunner, Result

from postroom.errors import BadInput
from postroom.senders.cli import senders
from postroom.senders.errors import SenderNotFound
from postroom.senders.model import SenderAccount

Run = Callable[..., Result]
OLD, NEW = "00" * 32, "11" * 32


@pytest.fixture
def run(database_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """Run `senders …` in the test's room."""
    monkeypatch.setenv("POSTROOM_DATABASE_URL", database_url)
    monkeypatch.setenv("POSTROOM_SECRET_KEY", OLD)
    monkeypatch.setenv("POSTROOM_SENDERS_ALLOW_PRIVATE", "1")
    monkeypatch.setenv("COLUMNS", "300")

    def command(*arguments: str, stdin: str | None = None) -> Result:
        return CliRunner().invoke(senders, arguments, input=stdin)

    yield command
    structlog.reset_defaults()  # a command logs to its own standard error, which is gone now


def added(run: Run, *more: str) -> dict[str, object]:
    done = run(
        "add", "news@example.org", "--host", "127.0.0.1:2525", "--username", "news", "--secret-file", "-", "--json",
        *more, stdin="hunter2\n",
    )  # fmt: skip
    assert done.exit_code == 0, (done.output, done.exception)
    found: dict[str, object] = json.loads(done.stdout)
    return found


def test_operator_manages_an_account(run: Run) -> None:
    """Accounts are added, listed, shown, updated, paused, resumed and removed; the secret is never shown."""
    account = added(run, "--lane", "bulk", "--warmup")
    assert (account["status"], account["lanes"], account["warmup_current_limit"]) == ("warming_up", ["bulk"], 50)
    (line,) = json.loads(run("list", "--json").stdout)["items"]
    assert (line["email"], set(line)) == (
        "news@example.org",
        {field.name for field in fields(SenderAccount)},
    )  # as over HTTP
    assert "news@example.org" in run("list").output
    one = str(account["id"])
    shown = run("show", one).output
    assert "daily limit" in shown
    updated = json.loads(run("update", one, "--daily-limit", "9", "--no-warmup", "--json").stdout)
    assert (updated["daily_limit"], updated["status"]) == (9, "active")
    assert run("pause", one, "--reason", "holiday").output == "paused\n"
    assert run("resume", one).output == "active\n"
    assert "hunter2" not in shown + str(account) + str(line) + str(updated)
    assert run("remove", one).output == "removed\n"
    assert isinstance(run("show", one).exception, SenderNotFound)


def test_a_password_is_asked_for_on_a_terminal(database_url: str) -> None:
    """Without a file the password is prompted for without echo."""
    ours, theirs = os.openpty()
    command = ("senders", "add", "a@example.org", "--host", "127.0.0.1:25", "--username", "a", "--json")
    adding = subprocess.Popen(
        [sys.executable, "-m", "postroom.cli", *command],
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=environment(
            POSTROOM_DATABASE_URL=database_url, POSTROOM_SECRET_KEY="5e" * 32, POSTROOM_SENDERS_ALLOW_PRIVATE="1"
        ),
        start_new_session=True,
    )
    assert adding.stdout is not None
    assert adding.stdout.read(len("Password")) == b"Password"
    while termios.tcgetattr(theirs)[3] & termios.ECHO:  # switching the echo off discards what was typed before
        os.sched_yield()
    os.write(ours, b"hunter2\n")
    said, _ = adding.communicate(timeout=PATIENCE_S)
    os.close(theirs)
    os.close(ours)
    assert adding.returncode == 0, said
    assert b"hunter2" not in said


@pytest.mark.parametrize(
    "arguments, words",
    [
        (("add", "a@example.org", "--type", "pigeon"), "smtp, gmail or ses"),
        (("add", "a@example.org", "--host", "nowhere"), "host:port"),
        (("add", "a@example.org", "--host", "h:25", "--secret-file", "/nowhere/at/all"), "does not exist"),
        (("rotate-key", "--old-key-file", "old"), "postroom secrets rotate"),
    ],
)
def test_usage(run: Run, arguments: tuple[str, ...], words: str) -> None:
    """Invalid arguments exit with 2."""
    done = run(*arguments)
    assert done.exit_code == 2
    assert words in done.output


def test_a_refusal_names_its_field(run: Run) -> None:
    """Gmail without a key file names the missing field."""
    done = run("add", "a@example.org", "--type", "gmail", "--subject", "a@example.org")
    assert isinstance(done.exception, BadInput)
    assert [error.field for error in done.exception.errors] == ["gmail_credentials"]


def test_ses_takes_id_and_secret_from_a_file(run: Run, tmp_path: Path) -> None:
    """`id:secret`, as one line."""
    file = tmp_path / "key"
    file.write_text("AK:SK\n")
    done = run("add", "a@example.org", "--type", "ses", "--region", "eu-west-1", "--secret-file", str(file), "--json")
    assert done.exit_code == 0, done.output
    assert "SK" not in done.output


def test_a_trial_that_fails_exits_with_1(run: Run) -> None:
    """Without a listening server the table shows the failed step."""
    account = added(run, "--no-tls")
    done = run("test", str(account["id"]))
    assert done.exit_code == 1
    assert "connect" in done.output
    told = json.loads(run("test", str(account["id"]), "--json").stdout)
    assert not told["ok"]


def test_destinations(run: Run) -> None:
    """Set, list, remove."""
    assert "example.org" in run("domains", "set", "Example.org", "--rate", "5").output
    limited = run("domains", "set", "example.org", "--connections", "2", "--json")
    assert json.loads(limited.stdout)["max_connections"] == 2
    (line,) = json.loads(run("domains", "list", "--json").stdout)["items"]
    assert line["domain"] == "example.org"
    assert run("domains", "remove", "example.org").output == "removed\n"


def test_a_warm_up_takes_bulk_mail_alone_unless_it_is_told_otherwise(run: Run) -> None:
    """Codes and receipts do not wait for the small quota of a new mailbox; the command says what leaves there."""
    one = ("add", "one@example.org", "--host", "127.0.0.1:2525")
    done = run(*one, "--warmup")
    assert "All mail of lane bulk now leaves through the accounts of that lane" in done.stdout
    assert "50 mails a day at first, 2,000 after its warm-up" in done.stdout
    assert "Mail of other lanes leaves as before." in done.stdout
    two = json.loads(run("add", "two@example.org", *one[2:], "--warmup", "--lane", "auth", "--json").stdout)
    three = json.loads(run("add", "three@example.org", *one[2:], "--json").stdout)
    assert (two["lanes"], three["lanes"]) == (["auth"], ["auth", "transactional", "bulk"])
    changed = json.loads(run("update", str(three["id"]), "--warmup", "--json").stdout)
    assert changed["lanes"] == ["auth", "transactional", "bulk"]
