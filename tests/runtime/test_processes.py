"""Supervision: children are restarted, stopped and never left behind."""

import asyncio
import os
import signal
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest
import structlog
from structlog.testing import LogCapture

from postroom.runtime.processes import Supervisor, SupervisorOptions

QUICK = SupervisorOptions(grace=timedelta(hours=1), first_delay=timedelta(milliseconds=10))

# A child that prints a line and waits for SIGTERM.
PATIENT = "import signal, sys; print('ready', flush=True); signal.sigwait({signal.SIGTERM}); sys.exit(0)"
# A child that ignores SIGTERM.
STUBBORN = """
import os, signal, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
open(sys.argv[1], "w").close()
signal.pause()
"""
# A child that exits at once with the given code.
ENDING = "import os, sys; os._exit(int(sys.argv[1]))"
# A child that ends with its supervisor, as a worker does.
LOYAL = """
import asyncio
from postroom.runtime.processes import stop_with_parent
async def main():
    stop = asyncio.Event()
    stop_with_parent(stop.set)
    print("ready", flush=True)
    await stop.wait()
asyncio.run(main())
"""
SUPERVISING = """
import asyncio, sys
from postroom.runtime.processes import Supervisor
asyncio.run(Supervisor([sys.executable, "-c", sys.argv[1]], 2).run(asyncio.Event()))
"""


def _child(code: str, *arguments: str) -> list[str]:
    return [sys.executable, "-c", code, *arguments]


class Announced:
    """The supervisor's log events, which a test can wait for."""

    def __init__(self) -> None:
        self.capture = LogCapture()
        self._news = asyncio.Event()

    def __call__(self, logger: object, method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
        self._news.set()
        self.capture(logger, method, event)
        raise structlog.DropEvent

    async def wait(self, name: str, number: int = 1) -> list[int]:
        """The process ids of this many events of the name, once they have happened."""
        while len(found := [entry["pid"] for entry in self.capture.entries if entry["event"] == name]) < number:
            self._news.clear()
            await self._news.wait()
        return found


@pytest.fixture
def announced(monkeypatch: pytest.MonkeyPatch) -> Announced:
    from postroom.runtime import processes

    listener = Announced()
    monkeypatch.setattr(processes, "_log", structlog.wrap_logger(None, processors=[listener]))
    return listener


def _gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


async def test_a_killed_child_is_replaced(announced: Announced) -> None:
    """A child that dies is replaced; a stop ends all children."""
    stop = asyncio.Event()
    supervising = asyncio.create_task(Supervisor(_child(PATIENT), 2, options=QUICK).run(stop))
    first, _second = await announced.wait("process_started", 2)
    os.kill(first, signal.SIGKILL)
    assert await announced.wait("process_ended") == [first]
    pids = await announced.wait("process_started", 3)
    stop.set()
    assert await supervising is True
    assert all(_gone(pid) for pid in pids)


async def test_only_failed_children_are_replaced_until_done(announced: Announced) -> None:
    """With `until_done`, exit code 0 means finished; any other code is retried until a stop."""
    options = SupervisorOptions(first_delay=timedelta(milliseconds=10), until_done=True)
    done = Supervisor(_child(ENDING, "0"), 3, options=options)
    assert await done.run(asyncio.Event()) is True
    assert len(await announced.wait("process_started")) == 3
    stop = asyncio.Event()
    failing = asyncio.create_task(Supervisor(_child(ENDING, "1"), 1, options=options).run(stop))
    await announced.wait("process_ended", 3)
    stop.set()
    assert await failing is True


async def test_a_child_that_does_not_stop_is_killed(announced: Announced, tmp_path: Path) -> None:
    """It is killed after the grace time, and `run` returns False."""
    stop = asyncio.Event()
    deaf = tmp_path / "deaf"
    os.mkfifo(deaf)  # readable when the child, which ignores SIGTERM by then, opens it
    options = SupervisorOptions(grace=timedelta(milliseconds=100))
    supervising = asyncio.create_task(Supervisor(_child(STUBBORN, str(deaf)), 1, options=options).run(stop))
    [pid] = await announced.wait("process_started")
    await asyncio.to_thread(deaf.read_text)
    stop.set()
    assert await supervising is False
    assert await announced.wait("process_killed") == [pid]
    assert _gone(pid)


async def test_stop_during_a_restart_delay_is_prompt(announced: Announced) -> None:
    """The delay between restarts does not delay the stop."""
    stop = asyncio.Event()
    slow = SupervisorOptions(first_delay=timedelta(hours=1), longest_delay=timedelta(hours=1))
    supervising = asyncio.create_task(Supervisor(_child(ENDING, "3"), 1, options=slow).run(stop))
    await announced.wait("process_ended")
    stop.set()
    async with asyncio.timeout(60):
        assert await supervising is True


def test_children_end_with_a_supervisor_that_is_killed() -> None:
    """After SIGKILL of the supervisor the pipe on standard input closes, and the children end."""
    process = subprocess.Popen(_child(SUPERVISING, LOYAL), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=0)
    assert process.stdout is not None
    with process.stdout as output:
        seen = b""
        while seen.count(b"ready") < 2:  # three processes write here, and their lines may interleave
            more = output.read(65536)
            assert more
            seen += more
        process.kill()
        process.wait()
        # The children hold the other end of this pipe: EOF means that both have ended.
        output.read()
