"""`postroom top`: one frame for scripts, a live view in a terminal."""

import os
import pty
import subprocess
import sys
from functools import partial

import pytest
from tests.support.builders import a_mail, accepted
from tests.support.command_line import COMMAND, environment, postroom
from tests.support.patience import PATIENCE_S

from postroom.db.room import Room


@pytest.fixture
def settings(database_url: str) -> dict[str, str]:
    return {"POSTROOM_DATABASE_URL": database_url}


async def test_one_frame_has_every_part_of_the_overview(room: Room) -> None:
    """Lanes with their waiting mail, rates, workers, senders, outbox and the doctor's findings; no escape sequences."""
    await accepted(room.pool, a_mail(), a_mail(), a_mail())
    done = postroom("top", settings={"POSTROOM_DATABASE_URL": room.url})
    assert done.returncode == 0, done.stderr
    lines = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert lines[0].startswith("postroom top · room postroom · ")
    assert any(line.startswith("transactional 3 3 ") for line in lines)
    assert "attempts this minute last minute hour by minute" in lines
    assert "No worker is running: postroom work." in lines
    assert "No publisher follows the events." in lines
    assert "warn workers: none seen lately → start one with `postroom work` or `postroom up`" in lines
    assert "\x1b" not in done.stdout


def test_ctrl_c_ends_the_live_view(settings: dict[str, str]) -> None:
    """In a terminal, the view runs until Ctrl-C, restores the screen and exits with 0."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, *COMMAND, "top"],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=environment(**settings, TERM="xterm"),
        preexec_fn=partial(os.login_tty, theirs),  # noqa: PLW1509 - Ctrl-C needs a terminal that controls the process
    )
    os.close(theirs)
    seen = _read_until(ours, b"postroom top")
    os.write(ours, b"\x03")
    seen += _read_until(ours, b"\x1b[?1049l")
    assert b"\x1b[?1049h" in seen
    assert process.wait(timeout=PATIENCE_S) == 0
    os.close(ours)


def _read_until(terminal: int, wanted: bytes) -> bytes:
    seen = b""
    while wanted not in seen:
        seen += os.read(terminal, 4096)
    return seen
