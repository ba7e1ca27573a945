"""Supervision: children are kept, told to stop, and never left behind."""

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

# A child that says it is there and waits for SIGTERM.
PATIENT = "import signal, sys; print('ready', flush=True); signal.sigwait({signal.SIGTERM}); sys.exit(0)"
# A child that does not listen.
STUBBORN = """
import os, signal, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
open(sys.argv[1], "w").close()
signal.pause()
"""
# A child that ends at once with the code it is given.
ENDING = "import os, sys; os._exit(int(sys.argv[1]))"
# A child that ends when its supervisor is gone, as a worker does.
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
    """The supervisor's log as something a test can wait for."""

    def __init__(self) -> None:
        self.capture = LogCapture()
        self._news = asyncio.Event()

    def __call__(self, logger: object, method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
        self._news.set()
        self.capture(logger, method, event)
        raise structlog.DropEvent

    async def wait(self, name: str, number: int = 1) -> list[int]:
        """The processes of so many events of this name, as soon as they have happened."""
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
    """The place of a child that dies is filled again; stopping ends everybody."""
    stop = asyncio.Event()
    supervising = asyncio.create_task(Supervisor(_child(PATIENT), 2, options=QUICK).run(stop))
    first, _second = await announced.wait("process_started", 2)
    os.kill(first, signal.SIGKILL)
    assert await announced.wait("process_ended") == [first]
    pids = await announced.wait("process_started", 3)
    stop.set()
    assert await supervising is True
    assert all(_gone(pid) for pid in pids)


async def test_done_children_are_not_replaced_and_failed_ones_are(announced: Announced) -> None:
    """With `until_done`, 0 means finished; anything else is tried again until told to stop."""
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
    """After the grace time there is no more asking, and the supervisor says that it was not clean."""
    stop = asyncio.Event()
    deaf = tmp_path / "deaf"
    os.mkfifo(deaf)  # can be read as soon as the child, deaf by then, opens it
    options = SupervisorOptions(grace=timedelta(milliseconds=100))
    supervising = asyncio.create_task(Supervisor(_child(STUBBORN, str(deaf)), 1, options=options).run(stop))
    [pid] = await announced.wait("process_started")
    await asyncio.to_thread(deaf.read_text)
    stop.set()
    assert await supervising is False
    assert await announced.wait("process_killed") == [pid]
    assert _gone(pid)


async def test_stopping_while_a_restart_waits_is_prompt(announced: Announced) -> None:
    """Patience between restarts does not delay the end."""
    stop = asyncio.Event()
    slow = SupervisorOptions(first_delay=timedelta(hours=1), longest_delay=timedelta(hours=1))
    supervising = asyncio.create_task(Supervisor(_child(ENDING, "3"), 1, options=slow).run(stop))
    await announced.wait("process_ended")
    stop.set()
    async with asyncio.timeout(60):
        assert await supervising is True


def test_children_end_with_a_supervisor_that_is_killed() -> None:
    """SIGKILL leaves nobody behind: the pipe on standard input ends, and so do the children."""
    process = subprocess.Popen(_child(SUPERVISING, LOYAL), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=0)
    assert process.stdout is not None
    with process.stdout as output:
        seen = b""
        while seen.count(b"ready") < 2:  # three processes write here, and may tear each other's lines
            more = output.read(65536)
            assert more
            seen += more
        process.kill()
        process.wait()
        # The children hold the other end of this pipe: it is read to its end only when both are gone.
        output.read()
