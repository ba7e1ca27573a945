"""Supervision of loops: an error in one of them stops neither the others nor the process."""

import asyncio

import asyncpg
import pytest
from tests.support.patience import PATIENCE_S

from postroom.runtime import loops
from postroom.runtime.loops import run_loops
from postroom.runtime.metrics import REGISTRY


class Main:
    """The loop that decides when the process ends."""

    def __init__(self) -> None:
        self._stopping = asyncio.Event()

    async def run(self) -> None:
        await self._stopping.wait()

    def stop(self) -> None:
        self._stopping.set()


class Flaky(Main):
    """Raises each of these errors once, then runs until it is stopped."""

    def __init__(self, *errors: Exception) -> None:
        super().__init__()
        self._errors = list(errors)
        self.steady = asyncio.Event()

    async def run(self) -> None:
        if self._errors:
            raise self._errors.pop(0)
        self.steady.set()
        await super().run()


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loops, "FIRST_PAUSE_S", 0.01)


async def test_a_side_loop_that_raises_is_started_again() -> None:
    """An error of the driver, then a bug: the main loop goes on, and each failure is counted and recorded."""
    side, stop, recorded = Flaky(asyncpg.InternalClientError("state 11"), KeyError("a bug")), asyncio.Event(), []
    before = REGISTRY.get_sample_value("postroom_loop_restarts_total", {"loop": "Flaky"}) or 0

    async def failed(name: str, error: Exception) -> None:
        recorded.append((name, type(error)))

    async with asyncio.timeout(PATIENCE_S):
        running = asyncio.create_task(run_loops([side], main=Main(), stop=stop, failed=failed))
        await side.steady.wait()
        assert not running.done()
        stop.set()
        await running
    assert recorded == [("Flaky", asyncpg.InternalClientError), ("Flaky", KeyError)]
    assert REGISTRY.get_sample_value("postroom_loop_restarts_total", {"loop": "Flaky"}) == before + 2


async def test_a_pausing_loop_does_not_delay_the_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop that waits for its next start ends at once when the process is stopped."""
    monkeypatch.setattr(loops, "FIRST_PAUSE_S", 3600.0)
    stop, failed_once = asyncio.Event(), asyncio.Event()

    async def failed(_name: str, _error: Exception) -> None:
        failed_once.set()

    async with asyncio.timeout(PATIENCE_S):
        running = asyncio.create_task(run_loops([Flaky(OSError())], main=Main(), stop=stop, failed=failed))
        await failed_once.wait()
        stop.set()
        await running


async def test_the_process_ends_with_its_main_loop() -> None:
    """An error of the main loop is raised, and side loops are not left running."""
    with pytest.raises(ExceptionGroup) as ended:
        await run_loops([Main()], main=Flaky(KeyError("a bug")), stop=asyncio.Event())
    assert ended.value.subgroup(KeyError) is not None
