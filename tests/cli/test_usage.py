"""Wrong usage: one plain sentence on standard error, exit code 2, and nothing of the libraries that parse arguments."""

import re
from pathlib import Path

import pytest
from tests.support.command_line import postroom

WRONG = [
    (("deliveries", "list", "--limit", "x"), "--limit: must be a whole number."),
    (("deliveries", "list", "--limit", "0"), "--limit: must be at least 1."),
    (
        ("send", "--to", "a@example.org", "--lane", "fast"),
        "--lane: 'fast' is not one of 'auth', 'transactional', 'bulk'.",
    ),
    (("send", "--subject", "x"), "Missing option '--to'."),
    (("deliveries", "lst"), "No such command 'lst'. Did you mean 'list'?"),
    (("send", "--to", "a@example.org", "--at", "soon"), "--at: must be a time such as 2030-01-31T09:00:00Z, or +10m."),
]
READERS = [
    ("suppressions", "import"),
    ("feedback", "ingest"),
    ("campaigns", "upload", "1"),
    ("users", "import"),
    ("restore",),
    ("backup", "--check"),
    ("send", "--to", "a@example.org", "--attach"),
    ("campaigns", "create", "--name", "a", "--subject", "b", "--html"),
    ("senders", "add", "a@example.org", "--host", "mail.example.org:587", "--username", "a", "--secret-file"),
]


@pytest.mark.parametrize("arguments, sentence", WRONG)
def test_wrong_argument_is_reported_in_one_sentence(arguments: tuple[str, ...], sentence: str) -> None:
    """The sentence names the argument and the rule, and says where the help is."""
    done = postroom(*arguments)
    assert done.returncode == 2
    [line] = done.stderr.splitlines()
    assert line.startswith(f"postroom: {sentence} See `postroom ")


@pytest.mark.parametrize("arguments", READERS, ids=" ".join)
def test_a_missing_file_is_wrong_usage(arguments: tuple[str, ...], tmp_path: Path) -> None:
    """Every command that reads a file says the same about one that does not exist."""
    missing = tmp_path / "missing"
    done = postroom(*arguments, str(missing))
    assert (done.returncode, done.stdout) == (2, "")
    [line] = done.stderr.splitlines()
    assert f"{missing} does not exist. See `postroom {arguments[0]}" in line


def test_a_password_is_not_asked_for_without_a_terminal() -> None:
    """`senders add` in a script names the option to use instead."""
    done = postroom("senders", "add", "a@example.org", "--host", "mail.example.org:587", "--username", "a", stdin="")
    assert done.returncode == 2
    assert done.stderr.startswith("postroom: No terminal to ask for the password; use --secret-file.")
    assert "Warning" not in done.stderr


def test_help_names_types_as_people_do() -> None:
    """TEXT, NUMBER, FILE or the choices; no type of Python."""
    shown = postroom("send", "--help").stdout
    assert "TEXT" in shown
    assert "auth|transactional|bulk" in shown
    for python in ("list[", "<str>", "<int>", "Path"):
        assert python not in shown


@pytest.mark.parametrize("command", [("erase",), ("campaigns", "upload"), ("deliveries",), ()], ids=" ".join)
def test_help_shows_no_type_for_flags_and_readable_types_for_arguments(command: tuple[str, ...]) -> None:
    """`--help` is a flag as well; typer creates it late, and showed `<bool>`."""
    shown = postroom(*command, "--help").stdout
    [line] = [line for line in shown.splitlines() if "Show this message" in line]
    assert re.fullmatch(r"│ +--help +-h +Show this message and exit\. +│", line)
    assert not re.search(r"<(bool|str|int|path|file)>", shown)
