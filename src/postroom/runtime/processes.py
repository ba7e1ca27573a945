"""Supervision of several processes of the same kind until a stop.

A child that ends is replaced, at once the first time and with growing delays while it keeps ending quickly. A stop
sends SIGTERM to the children; a child that has not ended within the grace time is killed. A child that receives
SIGTERM from another process finishes its work and is replaced, so workers can be restarted one by one.

The standard input of children is a pipe from the supervisor. When the supervisor ends, even by SIGKILL, the pipe
closes, and a child that called `stop_with_parent` stops gracefully. Children have sessions of their own, so that
Ctrl-C reaches them only through the supervisor.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta

import structlog

from postroom.runtime.loop import Backoff, is_stopped_before, wait_for_any

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class SupervisorOptions:
    """Delays and grace time of a supervisor."""

    grace: timedelta = timedelta(seconds=28)  # below the 30 s that most orchestrators wait before they kill
    first_delay: timedelta = timedelta(milliseconds=200)  # a crash by one bad request costs little time
    longest_delay: timedelta = timedelta(seconds=30)  # a child that cannot start logs twice a minute
    steady_after: timedelta = timedelta(seconds=10)  # a child that ran this long restarts with the first delay
    until_done: bool = False  # a child that exits with 0 is finished and not replaced


def own_command(*arguments: str) -> list[str]:
    """A command line of Postroom with the same interpreter, independent of PATH."""
    return [sys.executable, "-m", "postroom.cli", *arguments]


class Supervisor:
    """Keeps `count` children running. `run` returns when all have ended after a stop, or are finished."""

    def __init__(
        self,
        command: Sequence[str],
        count: int,
        *,
        options: SupervisorOptions | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._command, self._count = command, count
        self._options = options or SupervisorOptions()
        self._environment = dict(os.environ if environment is None else environment)
        self._stop = asyncio.Event()
        self._lifeline = -1

    async def run(self, stop: asyncio.Event) -> bool:
        """Supervise until `stop` is set. False if a child had to be killed."""
        self._stop = stop
        self._lifeline, held = os.pipe()  # `held` is never written to; it closes when this process ends
        try:
            ended = await asyncio.gather(*(self._keep(place) for place in range(self._count)))
        finally:
            os.close(self._lifeline)
            os.close(held)
        return all(ended)

    async def _keep(self, place: int) -> bool:
        """Keep one child running, replacing it whenever it ends."""
        options = self._options
        delay = Backoff(options.first_delay.total_seconds(), options.longest_delay.total_seconds(), jitter=0)
        while not self._stop.is_set():
            began = asyncio.get_running_loop().time()
            child = await self._start(place)
            if await is_stopped_before(asyncio.ensure_future(child.wait()), self._stop):
                return await self._end(child)
            if child.returncode == 0 and options.until_done:
                return True
            lived = asyncio.get_running_loop().time() - began
            if lived >= options.steady_after.total_seconds():
                delay.reset()
            restart_in_s = delay.fail()
            _log.warning("process_ended", place=place, pid=child.pid, code=child.returncode, restart_in_s=restart_in_s)
            await wait_for_any(self._stop, timeout_s=restart_in_s)
        return True

    async def _start(self, place: int) -> asyncio.subprocess.Process:
        child = await asyncio.create_subprocess_exec(
            *self._command, stdin=self._lifeline, env=self._environment, start_new_session=True
        )
        _log.info("process_started", place=place, pid=child.pid)
        return child

    async def _end(self, child: asyncio.subprocess.Process) -> bool:
        with suppress(ProcessLookupError):
            child.terminate()
        try:
            async with asyncio.timeout(self._options.grace.total_seconds()):
                await child.wait()
        except TimeoutError:
            with suppress(ProcessLookupError):
                child.kill()
            await child.wait()
            _log.error("process_killed", pid=child.pid)
            return False
        return child.returncode in (0, -signal.SIGTERM)  # -SIGTERM: it was stopped before it installed a handler


def stop_with_parent(end: Callable[[], None]) -> None:
    """In a child: call `end` when the supervisor, which holds the other end of standard input, is gone."""
    loop = asyncio.get_running_loop()

    def gone() -> None:
        if not os.read(sys.stdin.fileno(), 1):
            loop.remove_reader(sys.stdin.fileno())
            end()

    loop.add_reader(sys.stdin.fileno(), gone)
