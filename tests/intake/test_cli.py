"""Malformed commands at the command line."""

import asyncio
import base64
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import structlog
from tests.support.intake import PAYLOAD, entries, keys_of, raw
from typer.testing import CliRunner, Result

from postroom.db.pool import Pool, open_pool
from postroom.errors import BadInput
from postroom.intake import service
from postroom.intake.cli import malformed

Run = Callable[..., Result]


@pytest.fixture
def run(database_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """Runs a command in the test's room."""
    monkeypatch.setenv("POSTROOM_DATABASE_URL", database_url)

    def command(*arguments: str, stdin: str | None = None) -> Result:
        return CliRunner().invoke(malformed, arguments, input=stdin)

    yield command
    structlog.reset_defaults()  # a command logs to its own standard error, which is gone now


async def _in_pool(url: str, *raws: bytes) -> list[str]:
    pool: Pool = await open_pool(url, "postroom", size=1)
    try:
        await service.accept_commands(pool, entries(*raws))
        return await keys_of(pool)
    finally:
        await pool.close()


def test_malformed_commands_are_listed_shown_and_resubmitted(run: Run, database_url: str) -> None:
    """An operator lists, inspects and corrects a malformed command, which then leaves the list."""
    asyncio.run(_in_pool(database_url, raw({**PAYLOAD, "to": "ada"})))
    listed = json.loads(run("list", "--json").output)["items"]
    assert [item["reason"] for item in listed] == ["bad_payload"]
    assert json.loads(run("list", "--json").output)["waiting"] == 1
    assert "1 waiting" in run("list").output
    assert "payload_json.to" in run("show", "1").output
    shown = json.loads(run("show", "1", "--json").output)
    assert (shown["id"], base64.b64decode(shown["raw"])) == (1, raw({**PAYLOAD, "to": "ada"}))
    assert run("show", "1", "--raw").stdout_bytes == raw({**PAYLOAD, "to": "ada"})
    mended = run("resubmit", "1", "--payload", "-", "--set", "idempotency_key=k9", stdin=json.dumps(PAYLOAD))
    assert (mended.exit_code, mended.output.strip()) == (0, "1")
    assert asyncio.run(_in_pool(database_url)) == ["k9"]
    assert json.loads(run("list", "--json").output)["items"] == []
    everything = json.loads(run("list", "--all", "--json").output)
    assert (len(everything["items"]), everything["waiting"]) == (1, 0)


def test_unreadable_payload_file_is_reported(run: Run, tmp_path: Path) -> None:
    """A file that is missing, a directory or no text is a mistake in the command's use, and named."""
    (tmp_path / "latin").write_bytes(b"\xff")
    results = {name: run("resubmit", "1", "--payload", str(tmp_path / name)) for name in ("absent", ".", "latin")}
    assert [result.exit_code for result in results.values()] == [2, 2, 2]
    said = {name: " ".join(result.output.replace("│", " ").split()) for name, result in results.items()}
    assert "does not exist" in said["absent"]
    assert "is a folder, not a file" in said["."]
    assert "is not UTF-8" in said["latin"]


def test_a_field_is_taken_away(run: Run, database_url: str) -> None:
    """`--set name=` removes a field that should not be there."""
    asyncio.run(_in_pool(database_url, raw(prioriti="high")))
    assert run("resubmit", "1", "--set", "prioriti=").exit_code == 0


def test_junk_is_dismissed(run: Run, database_url: str) -> None:
    """A dismissed command is no longer listed as waiting, but `--all` still lists it."""
    asyncio.run(_in_pool(database_url, b"junk", b"more junk", raw(payload_mode="x")))
    assert run("dismiss", "1", "2").output == "2 dismissed\n"
    assert run("dismiss", "1", "2").output == "0 dismissed\n"
    assert "dismissed at" in run("list", "--all").output
    listed = json.loads(run("list", "--json").output)
    assert ([item["id"] for item in listed["items"]], listed["waiting"]) == ([3], 1)
    everything = json.loads(run("list", "--all", "--json").output)["items"]
    assert [item["dismissed_at"] is not None for item in everything] == [False, True, True]


def test_field_that_is_still_invalid_ends_the_command(run: Run, database_url: str) -> None:
    """The error names the field; `postroom` prints it and exits with 1."""
    asyncio.run(_in_pool(database_url, raw(payload_mode="x")))
    result = run("resubmit", "1")
    assert isinstance(result.exception, BadInput)
    assert "payload_mode" in str(result.exception)
