"""Loops: an error is logged, counted, recorded and retried; it stops neither other loops nor the process."""

import asyncio
from datetime import timedelta
from functools import partial

import asyncpg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs
from tests.support.loops import looping
from tests.support.patience import PATIENCE_S

from postroom.cli.database_checks import examine
from postroom.db.failures import record_loop_failure
from postroom.db.room import Room
from postroom.runtime import loop as loop_module
from postroom.runtime.loop import Backoff, Loop, run_loops
from postroom.runtime.metrics import REGISTRY

HOUR = timedelta(hours=1)


class Task:
    """A `run_once` that raises each of these errors once and then works; `worked` is set by its first success."""

    def __init__(self, *errors: Exception) -> None:
        self._errors = list(errors)
        self.runs, self.worked = 0, asyncio.Event()

    async def run_once(self) -> int:
        self.runs += 1
        if self._errors:
            raise self._errors.pop(0)
        self.worked.set()
        return self.runs

    def loop(self, name: str = "task", *, rest: timedelta = HOUR) -> Loop:
        return Loop(name, self.run_once, rest=rest)


class Main:
    """A main task that runs until stopped, or raises at once."""

    def __init__(self, error: Exception | None = None) -> None:
        self._error, self._stopping = error, asyncio.Event()

    async def run(self) -> None:
        if self._error is not None:
            raise self._error
        await self._stopping.wait()

    def stop(self) -> None:
        self._stopping.set()


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_module, "FIRST_PAUSE_S", 0.001)
    monkeypatch.setattr(loop_module, "FIRST_INTERRUPTION_S", 0.001)


def failures_of(name: str) -> float:
    return REGISTRY.get_sample_value("postroom_loop_failures_total", {"loop": name}) or 0


async def test_a_bug_is_logged_counted_recorded_and_retried(room: Room) -> None:
    """The task succeeds at its third try; meanwhile the other loop ran, and doctor shows the failure."""
    task, neighbour, before = (
        Task(KeyError("ada@example.org"), asyncpg.UndefinedTableError()),
        Task(),
        failures_of("task"),
    )
    failed = partial(record_loop_failure, room.pool)
    with capture_logs() as logs:
        async with asyncio.timeout(PATIENCE_S), looping(task.loop(), neighbour.loop("neighbour"), failed=failed):
            await task.worked.wait()
            await neighbour.worked.wait()
    assert (task.runs, failures_of("task") - before, failures_of("neighbour")) == (3, 2, 0)
    assert [entry["error"] for entry in logs if entry["event"] == "loop_failed"] == ["KeyError", "UndefinedTableError"]
    assert logs[0]["frames"][-1].startswith("test_loop.py:")
    assert "ada@" not in str(logs)
    async with room.pool.acquire() as connection:
        [shown] = [each.found for each in await examine(connection, room.settings) if each.check == "loops"]
    assert shown.startswith("task on")
    assert "UndefinedTableError" in shown


@pytest.mark.parametrize("error", [OSError(), asyncpg.InternalClientError("state 11"), asyncpg.DiskFullError()])
async def test_an_interruption_is_retried_and_not_counted_as_a_failure(error: Exception) -> None:
    """An unreachable database is no bug of the loop."""
    task, before = Task(error, error), failures_of("task")
    with capture_logs() as logs:
        async with asyncio.timeout(PATIENCE_S), looping(task.loop()):
            await task.worked.wait()
    assert [entry["event"] for entry in logs] == ["loop_interrupted"] * 2
    assert failures_of("task") == before


async def test_an_argument_that_cannot_be_encoded_is_a_bug(room: Room) -> None:
    """The driver raises an InterfaceError for it, but no later try can succeed."""
    before = failures_of("task")
    failed = asyncio.Event()

    async def encode() -> None:
        await room.pool.execute("SELECT $1::integer", "seven")

    async def record(_name: str, _error: Exception) -> None:
        failed.set()

    async with asyncio.timeout(PATIENCE_S), looping(Loop("task", encode, rest=HOUR), failed=record):
        await failed.wait()
    assert failures_of("task") > before


async def test_a_failure_that_cannot_be_recorded_does_not_end_the_loop() -> None:
    """The database that stores the record may be the cause."""
    task = Task(KeyError())

    async def record(_name: str, _error: Exception) -> None:
        raise OSError

    async with asyncio.timeout(PATIENCE_S), looping(task.loop(), failed=record):
        assert await task.worked.wait()


async def test_sleeping_loop_stops_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stop does not wait for a pause or a sleep."""
    monkeypatch.setattr(loop_module, "FIRST_PAUSE_S", 3600.0)
    failed_once, resting = asyncio.Event(), Task()

    async def record(_name: str, _error: Exception) -> None:
        failed_once.set()

    async with asyncio.timeout(PATIENCE_S), looping(Task(KeyError()).loop(), resting.loop(), failed=record):
        await failed_once.wait()
        await resting.worked.wait()
    assert failed_once.is_set()


async def test_wake_ends_a_rest_even_if_it_came_during_the_run() -> None:
    """A notification is never missed: one that arrives while `run_once` runs makes it run again."""
    wake, runs, third = asyncio.Event(), 0, asyncio.Event()

    async def run_once() -> None:
        nonlocal runs
        runs += 1
        if runs < 3:
            wake.set()
        else:
            third.set()

    async with asyncio.timeout(PATIENCE_S), looping(Loop("task", run_once, rest=HOUR, wake=wake)):
        await third.wait()
    assert runs == 3


async def test_a_postponed_loop_waits_for_its_gate() -> None:
    """It does not run before, and a stop ends the wait."""
    task, gate = Task(), asyncio.Event()
    loop = task.loop()
    loop.postpone(timedelta(), gate)
    async with looping(loop):
        pass
    assert task.runs == 0
    async with looping(loop):
        gate.set()
        await task.worked.wait()


async def test_a_loop_with_more_to_do_does_not_rest() -> None:
    task, done = Task(), asyncio.Event()

    def more(runs: int) -> bool:
        if runs == 5:
            done.set()
        return runs < 5

    async with asyncio.timeout(PATIENCE_S), looping(Loop("task", task.run_once, rest=HOUR, more=more)):
        await done.wait()
    assert task.runs == 5


async def test_a_stop_lets_a_run_finish_unless_it_is_interruptible() -> None:
    began, ended, may_end = asyncio.Semaphore(0), [], asyncio.Event()

    async def run(name: str) -> None:
        began.release()
        await may_end.wait()
        ended.append(name)

    async with asyncio.timeout(PATIENCE_S):
        loops = [Loop("patient", partial(run, "patient")), Loop("cut", partial(run, "cut"), interruptible=True)]
        async with looping(*loops) as stop:
            await began.acquire()
            await began.acquire()
            stop.set()
            asyncio.get_running_loop().call_later(0.05, may_end.set)
    assert ended == ["patient"]


async def test_the_process_ends_with_its_main_task() -> None:
    """An error of the main task is raised, and no loop is left running."""
    with pytest.raises(ExceptionGroup) as ended:
        await run_loops([Task().loop()], main=Main(KeyError()), stop=asyncio.Event())
    assert ended.value.subgroup(KeyError) is not None


async def test_a_stop_reaches_the_main_task() -> None:
    stop, task = asyncio.Event(), Task()
    async with asyncio.timeout(PATIENCE_S):
        running = asyncio.create_task(run_loops([task.loop()], main=Main(), stop=stop))
        await task.worked.wait()
        assert not running.done()
        stop.set()
        await running


# ── back-off: pauses double up to a limit and start again after a success ─────────────────────────────────────────────


def test_pauses_double_up_to_the_longest() -> None:
    backoff = Backoff(1, 10, jitter=0)
    assert [backoff.fail() for _ in range(6)] == [1, 2, 4, 8, 10, 10]


def test_a_success_starts_again_with_the_first_pause() -> None:
    backoff = Backoff(1, 10, jitter=0)
    backoff.fail()
    backoff.fail()
    backoff.reset()
    assert backoff.fail() == 1


@given(failures=st.integers(min_value=0, max_value=10**6), jitter=st.floats(min_value=0, max_value=1))
def test_a_pause_is_never_longer_than_the_longest(failures: int, jitter: float) -> None:
    """Jitter only shortens a pause, however many failures came before."""
    full = Backoff(0.2, 30, jitter=0, failures=failures).pause_s
    assert (1 - jitter) * full <= Backoff(0.2, 30, jitter=jitter, failures=failures).pause_s <= full <= 30
