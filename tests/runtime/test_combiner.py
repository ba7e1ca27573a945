"""Combiner: concurrent items share a flush, and an invalid item fails alone."""

import asyncio
from collections.abc import Sequence

import asyncpg
import pytest

from postroom.db.faults import is_connection_lost
from postroom.runtime.combiner import Combiner


class Flushes:
    """Doubles numbers; rejects negative ones; waits at the gate if there is one."""

    def __init__(self, *, gated: bool = False) -> None:
        self.batches: list[list[int]] = []
        self.gate = asyncio.Event()
        self.entered = asyncio.Event()
        if not gated:
            self.gate.set()

    async def __call__(self, items: Sequence[int]) -> list[int]:
        self.batches.append(list(items))
        self.entered.set()
        await self.gate.wait()
        if any(item < 0 for item in items):
            raise ValueError("negative")
        if 404 in items:
            raise ConnectionResetError
        return [item * 2 for item in items]


async def test_single_item_is_flushed_at_once() -> None:
    """Without a running flush a new one starts immediately."""
    flushes = Flushes()
    assert await Combiner(flushes).submit(1) == 2
    assert flushes.batches == [[1]]


async def test_items_during_a_flush_join_the_next() -> None:
    """They are collected and flushed together, in order."""
    flushes = Flushes(gated=True)
    combiner = Combiner(flushes)
    first = asyncio.create_task(combiner.submit(1))
    await flushes.entered.wait()
    others = [asyncio.create_task(combiner.submit(number)) for number in (2, 3, 4)]
    await asyncio.sleep(0)
    flushes.gate.set()
    assert await asyncio.gather(first, *others) == [2, 4, 6, 8]
    assert flushes.batches == [[1], [2, 3, 4]]


async def test_invalid_item_fails_alone() -> None:
    """When a flush raises, its items are flushed one by one, and only the invalid one gets the error."""
    combiner = Combiner(Flushes())
    answers = await asyncio.gather(*map(combiner.submit, (1, -1, 2)), return_exceptions=True)
    assert answers[0] == 2
    assert isinstance(answers[1], ValueError)
    assert answers[2] == 4


async def test_lost_connection_is_not_retried() -> None:
    """It is unknown whether the flush was committed: a retry could do it twice."""
    flushes = Flushes()
    combiner = Combiner(flushes)
    answers = await asyncio.gather(*map(combiner.submit, (1, 404, 2)), return_exceptions=True)
    assert all(isinstance(answer, ConnectionResetError) for answer in answers)
    assert flushes.batches == [[1, 404, 2]]
    assert await combiner.submit(5) == 10


async def test_batches_are_bounded_by_number_and_weight() -> None:
    """No flush exceeds the limits; an item heavier than the limit is flushed alone."""
    flushes = Flushes()
    combiner = Combiner(flushes, largest=3, heaviest=10, weigh=lambda item: item)
    await asyncio.gather(*map(combiner.submit, (1, 1, 1, 1, 50, 6, 6)))
    assert flushes.batches == [[1, 1, 1], [1], [50], [6], [6]]


async def test_cancelled_caller_does_not_withdraw_its_item() -> None:
    """The item is still flushed, and other callers are not affected."""
    flushes = Flushes(gated=True)
    combiner = Combiner(flushes)
    impatient, patient = asyncio.create_task(combiner.submit(1)), asyncio.create_task(combiner.submit(2))
    await flushes.entered.wait()
    impatient.cancel()
    flushes.gate.set()
    assert await patient == 4
    assert impatient.cancelled()
    assert flushes.batches == [[1, 2]]


async def test_drain_waits_for_everything() -> None:
    """After draining no item is left and no flush runs."""
    flushes = Flushes()
    combiner = Combiner(flushes)
    task = asyncio.create_task(combiner.submit(1))
    await flushes.entered.wait()
    await combiner.drain()
    assert task.done() or await task == 2
    await combiner.drain()


async def test_cancelled_combiner_fails_its_callers() -> None:
    """Every waiting caller gets an error."""
    flushes = Flushes(gated=True)
    combiner = Combiner(flushes)
    first = asyncio.create_task(combiner.submit(1))
    await flushes.entered.wait()
    second = asyncio.create_task(combiner.submit(2))
    await asyncio.sleep(0)
    assert combiner._task is not None
    combiner._task.cancel()
    answers = await asyncio.gather(first, second, return_exceptions=True)
    assert all(isinstance(answer, asyncio.CancelledError) for answer in answers)


@pytest.mark.parametrize(
    "error,lost",
    [
        (ConnectionRefusedError(), True),
        (TimeoutError(), True),
        (asyncpg.InterfaceError("the pool is closed"), True),
        (asyncpg.ConnectionDoesNotExistError(), True),
        (asyncpg.AdminShutdownError(), True),
        (asyncpg.UniqueViolationError(), False),
        (asyncpg.DeadlockDetectedError(), False),
        (ValueError(), False),
    ],
)
def test_lost_connection_errors_are_recognised(error: Exception, lost: bool) -> None:  # noqa: FBT001 - a case
    """Only a connection error leaves the result of a statement unknown."""
    assert is_connection_lost(error) is lost
