"""The life of a long-running command: starting, running, stopping.

A signal while starting ends it at once, because nothing has begun. A signal while running sets `stop`, and everything
that runs finishes the work it has begun. Both end with exit 0: a requested stop is not a failure.

From the first signal on, a thread counts down POSTROOM_SHUTDOWN_GRACE. If the process exists until shortly before its
end, because a task, a library or the database hangs, the thread ends it with exit 1: no process outlives its grace
time. No work is lost by that: claims are recovered by other workers when their lease ends. A second watchdog, which
needs no Python, ends a process that the thread cannot: no other thread runs while the interpreter shuts down, which
takes seconds on a busy machine. Work in flight has a part of the grace time (`work_grace`): its results are written in
the rest.
"""

import asyncio
import faulthandler
import gc
import os
import signal
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta

import structlog

_FORCED_EXIT = 1  # a second signal: ended without waiting for work in flight

_LONGEST_S = 86_400.0 * 365  # more than the watchdogs can count is as good as no limit
_SPARE_S = 0.5  # for the thread to log and exit, before the grace time is over and the second watchdog ends the process

_log = structlog.get_logger()


class Lifetime:
    """Handed to a command's main: `stop` to watch, `running` to call once its start is done."""

    def __init__(self, limit: timedelta) -> None:
        self.stop = asyncio.Event()
        self._limit, self._is_running = limit, False
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.end)

    @property
    def is_running(self) -> bool:
        return self._is_running

    def running(self) -> None:
        """From here on a signal means finishing, not giving up."""
        self._is_running = True
        _collect_less()

    def end(self) -> None:
        """Stop, and do not outlive the limit."""
        if not self.stop.is_set():
            self.stop.set()
            exit_after(self._limit)


def exit_after(limit: timedelta) -> None:
    """End this process when the time is over, whatever it does then."""

    def end() -> None:
        _log.error("shutdown_forced", after_s=limit.total_seconds())
        os._exit(_FORCED_EXIT)

    limit_s = min(limit.total_seconds(), _LONGEST_S)
    limit_s -= min(_SPARE_S, limit_s / 10)
    timer = threading.Timer(limit_s, end)
    timer.daemon = True  # a process that ends in time takes the thread along
    timer.start()
    faulthandler.dump_traceback_later(limit_s + _SPARE_S, exit=True)


def _collect_less() -> None:
    """Freeze the objects of the start and collect rarely: garbage collection cost a tenth of all work."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)


async def live(main: Callable[[Lifetime], Awaitable[None]], *, grace: timedelta) -> None:
    """Run a command's main until it ends by itself or by a signal, at most `grace` after the signal."""
    life = Lifetime(grace)
    work = asyncio.ensure_future(main(life))
    stopping = asyncio.ensure_future(life.stop.wait())
    await asyncio.wait((work, stopping), return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if work.done() or life.is_running:
        await work
        return
    work.cancel()
    with suppress(asyncio.CancelledError):
        await work
