"""The loop of every background task: run once, sleep, run again, until the process stops.

One rule for all errors. An interruption (see `postroom.db.faults.is_passing`) is logged and retried after a short
pause. Any other error is a bug: it is logged, counted in `postroom_loop_failures_total`, recorded for `postroom doctor`
and retried after a longer pause. No error ends a loop, so none stops the other loops of the process.
"""

import asyncio
import random
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol, TypeVar

import structlog

from postroom.db.faults import is_passing
from postroom.runtime.metrics import LOOP_FAILURES

FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0
"""Between two failures of the same loop. A persistent bug logs one line a minute, not thousands."""

FIRST_INTERRUPTION_S, LONGEST_INTERRUPTION_S = 0.1, 5.0
"""While the database is unreachable. Work continues at most five seconds after it is back."""

_log = structlog.get_logger()

Item = TypeVar("Item")
Result = TypeVar("Result")

Rest = timedelta | Callable[[], timedelta]
Failed = Callable[[str, Exception], Awaitable[None]]
"""Called with the name of a loop and its error, before the pause."""
Signal = Callable[[str], None]
"""Announces a step ("claimed", "started", "completed"): concurrency and crash tests wait for it instead of sleeping."""


def unheard(_step: str) -> None:
    """The signal in production: none."""


@dataclass(slots=True)
class Backoff:
    """The pause before the next try doubles with each failure in a row, up to a limit.

    `jitter` is the largest random share subtracted from a pause, to spread retries.
    """

    first_s: float
    longest_s: float
    jitter: float = 0.25
    failures: int = 0

    def fail(self) -> float:
        """Count a failure; returns the pause before the next try, in seconds."""
        self.failures += 1
        return self.pause_s

    @property
    def pause_s(self) -> float:
        """The pause after the failures counted so far, at least the first one."""
        doubled = self.first_s * (1 << min(max(self.failures - 1, 0), 32))
        return min(doubled, self.longest_s) * random.uniform(1 - self.jitter, 1)  # noqa: S311 - spreads load, guards nothing

    def reset(self) -> None:
        """Reset the count after a success."""
        self.failures = 0


class Runs(Protocol):
    """Runs until `stop` is called, then finishes the work it has begun."""

    async def run(self) -> None: ...
    def stop(self) -> None: ...


class Loop:
    """Calls `run_once`, sleeps and calls it again; without a pause if `more` is true of its result.

    `wake` ends a sleep early. A stop lets `run_once` finish, or cancels it if the loop is `interruptible`: then the
    next call of `run_once` must finish any half-done work. `expected` are interruptions besides those of the database:
    errors of another server that the loop depends on. `fatal` errors end the loop and the process. A loop with `ends`
    also returns when that is true of a result.
    """

    def __init__(  # noqa: PLR0913 - the options in which loops differ
        self,
        name: str,
        run_once: Callable[[], Awaitable[Any]],
        *,
        rest: Rest = timedelta(),
        more: Callable[[Any], bool] | None = None,
        ends: Callable[[Any], bool] | None = None,
        wake: asyncio.Event | None = None,
        interruptible: bool = False,
        expected: tuple[type[Exception], ...] = (),
        fatal: tuple[type[Exception], ...] = (),
        interruption: Backoff | None = None,
    ) -> None:
        self.name, self._run_once, self._rest, self._more, self._ends = name, run_once, rest, more, ends
        self._wake, self._interruptible, self._expected, self._fatal = wake, interruptible, expected, fatal
        self._interruption = interruption or Backoff(FIRST_INTERRUPTION_S, LONGEST_INTERRUPTION_S)
        self._failure = Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S)
        self._first_rest = timedelta()
        self._gate: asyncio.Event | None = None

    def beside(self) -> AbstractAsyncContextManager[None]:
        """Run during a block."""
        return running(self.run(asyncio.Event()), self.name)

    def postpone(self, by: timedelta, gate: asyncio.Event | None = None) -> None:
        """Rest before the first run, and then wait until the gate is open."""
        self._first_rest, self._gate = by, gate

    async def run(self, stop: asyncio.Event, failed: Failed | None = None) -> None:
        """Run until `stop` is set, or `ends` is true of a result."""
        await self._wait_to_begin(stop)
        while not stop.is_set():
            try:
                result = await self._run(stop)
            except self._fatal:
                raise
            except Exception as error:  # noqa: BLE001 - any bug: the other loops continue, and this one retries
                await wait_for_any(stop, timeout_s=await self._report(error, failed))
            else:
                self._interruption.reset()
                self._failure.reset()
                if self._ends is not None and self._ends(result):
                    return
                if self._more is None or not self._more(result):
                    await self._take_rest(stop)

    async def _wait_to_begin(self, stop: asyncio.Event) -> None:
        if self._first_rest:
            await wait_for_any(stop, timeout_s=self._first_rest.total_seconds())
        if self._gate is not None:
            await wait_for_any(stop, self._gate, timeout_s=None)

    async def _run(self, stop: asyncio.Event) -> Any:
        if not self._interruptible:
            return await self._run_once()
        work = asyncio.ensure_future(self._run_once())
        await is_stopped_before(work, stop)
        return None if work.cancelled() else work.result()

    async def _report(self, error: Exception, failed: Failed | None) -> float:
        """Log an error, and count and record it if it is a bug; returns the pause before the next try."""
        if is_passing(error) or isinstance(error, self._expected):
            pause_s = self._interruption.fail()
            _log.warning("loop_interrupted", loop=self.name, error=type(error).__name__, retry_in_s=round(pause_s, 2))
            return pause_s
        pause_s = self._failure.fail()
        # Neither the message nor local variables: both may contain an address or a secret.
        frames = [f"{Path(each.filename).name}:{each.lineno}" for each in traceback.extract_tb(error.__traceback__)]
        _log.error(
            "loop_failed", loop=self.name, error=type(error).__name__, frames=frames, retry_in_s=round(pause_s, 2)
        )
        LOOP_FAILURES.labels(loop=self.name).inc()
        if failed is not None:
            with suppress(Exception):  # the retry must not depend on the record, which is for operators
                await failed(self.name, error)
        return pause_s

    async def _take_rest(self, stop: asyncio.Event) -> None:
        rest = self._rest() if callable(self._rest) else self._rest
        if self._wake is None:
            await wait_for_any(stop, timeout_s=rest.total_seconds())
        else:
            await wait_for_any(stop, self._wake, timeout_s=rest.total_seconds())
            self._wake.clear()


@asynccontextmanager
async def running(work: Coroutine[Any, Any, None], name: str) -> AsyncIterator[None]:
    """Run a coroutine during the block, and cancel it at the end."""
    task = asyncio.create_task(work, name=name)
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def run_all(run: Callable[[Item], Awaitable[Result]], items: Iterable[Item]) -> list[Result]:
    """Run it for every item, even after a failure, then raise the first error; an interruption is raised at once."""
    results: list[Result] = []
    errors: list[Exception] = []
    for item in items:
        try:
            results.append(await run(item))
        except Exception as error:
            if is_passing(error):
                raise
            errors.append(error)
    if errors:
        raise errors[0]
    return results


async def wait_for_any(*events: asyncio.Event, timeout_s: float | None) -> None:
    """Return when one of the events is set, or after the timeout."""
    waits = [asyncio.create_task(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
        await asyncio.gather(*waits, return_exceptions=True)


async def is_stopped_before(work: "asyncio.Future[Any]", stop: asyncio.Event) -> bool:
    """Wait for the work to end; if `stop` is set before, cancel the work and return True."""
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait((work, stopping), return_when=asyncio.FIRST_COMPLETED)
        return not work.done()
    finally:
        for task in (work, stopping):
            task.cancel()
        await asyncio.gather(work, stopping, return_exceptions=True)


async def run_loops(
    loops: Sequence[Loop], *, stop: asyncio.Event, main: Runs | None = None, failed: Failed | None = None
) -> None:
    """Run all loops until `stop` is set, or the main task ends. An error of the main task is raised."""
    stopping = asyncio.Event()

    def stop_all(_waited: object = None) -> None:
        stopping.set()
        if main is not None:
            main.stop()

    asked = asyncio.create_task(stop.wait())
    asked.add_done_callback(stop_all)
    try:
        async with asyncio.TaskGroup() as together:
            for loop in loops:
                together.create_task(loop.run(stopping, failed), name=loop.name)
            if main is not None:
                await together.create_task(main.run(), name=type(main).__name__)
                stop_all()
    finally:
        asked.cancel()
