"""Supervision of the loops in one process.

A worker process runs one main loop, which delivers, and several side loops, which plan, count, clean up and publish.
A side loop that raises is logged, counted in `postroom_loop_restarts_total` and started again after a pause, so that
an error in one of them stops neither the others nor delivery. When the main loop ends, the process ends.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

import structlog

from postroom.runtime.metrics import LOOP_RESTARTS

FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 60.0
STEADY_AFTER_S = 300.0  # a loop that ran this long starts again with the first pause

_log = structlog.get_logger()


class Loop(Protocol):
    """Runs by itself until `stop` is called, then finishes the work it has begun. `run` may be called again."""

    async def run(self) -> None: ...
    def stop(self) -> None: ...


Failed = Callable[[str, Exception], Awaitable[None]]
"""Called with the name of a loop and its error, before the pause."""


async def _ignore(_name: str, _error: Exception) -> None:
    """For processes that keep no record of failures."""


async def run_loops(loops: Sequence[Loop], *, main: Loop, stop: asyncio.Event, failed: Failed = _ignore) -> None:
    """Run all loops. When `stop` is set, or the main loop ends by itself, the side loops end too."""
    stopping = asyncio.Event()

    def stop_all() -> None:
        stopping.set()
        for loop in (*loops, main):
            loop.stop()

    async def stop_when_asked() -> None:
        await stop.wait()
        stop_all()

    asking = asyncio.create_task(stop_when_asked())
    try:
        async with asyncio.TaskGroup() as together:
            for loop in loops:
                together.create_task(keep_running(loop, stopping=stopping, failed=failed), name=type(loop).__name__)
            await together.create_task(main.run(), name=type(main).__name__)
            stop_all()
    finally:
        asking.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asking


async def keep_running(loop: Loop, *, stopping: asyncio.Event, failed: Failed = _ignore) -> None:
    """Run a side loop and start it again whenever it raises, until it returns or `stopping` is set."""
    name, pause_s = type(loop).__name__, FIRST_PAUSE_S
    while not stopping.is_set():
        began = asyncio.get_running_loop().time()
        try:
            await loop.run()
        except Exception as error:  # noqa: BLE001 - whatever it is, the other loops go on
            if asyncio.get_running_loop().time() - began > STEADY_AFTER_S:
                pause_s = FIRST_PAUSE_S
            _log.exception("loop_failed", loop=name, retry_in_s=pause_s)
            LOOP_RESTARTS.labels(loop=name).inc()
            with contextlib.suppress(Exception):  # the record is for people; the restart must not depend on it
                await failed(name, error)
        else:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause_s):
                await stopping.wait()
        pause_s = min(pause_s * 2, LONGEST_PAUSE_S)
