"""Combining: who waits together is answered together, and nobody pays for a neighbour."""

import asyncio
from collections.abc import Sequence

import asyncpg
import pytest

from postroom.db.faults import is_connection_lost
from postroom.runtime.combiner import Combiner


class Flushes:
    """Doubles numbers; refuses negative ones; waits at the gate if there is one."""

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


async def test_a_lone_item_waits_for_nobody() -> None:
    """With nobody at work a flush starts at once."""
    flushes = Flushes()
    assert await Combiner(flushes).submit(1) == 2
    assert flushes.batches == [[1]]


async def test_who_comes_during_a_flush_joins_the_next() -> None:
    """While one flush runs, the others gather and are flushed together, in order."""
    flushes = Flushes(gated=True)
    combiner = Combiner(flushes)
    first = asyncio.create_task(combiner.submit(1))
    await flushes.entered.wait()
    others = [asyncio.create_task(combiner.submit(number)) for number in (2, 3, 4)]
    await asyncio.sleep(0)
    flushes.gate.set()
    assert await asyncio.gather(first, *others) == [2, 4, 6, 8]
    assert flushes.batches == [[1], [2, 3, 4]]


async def test_a_poisonous_item_fails_alone() -> None:
    """When a flush raises, its items are tried one by one and only the bad one gets the error."""
    combiner = Combiner(Flushes())
    answers = await asyncio.gather(*map(combiner.submit, (1, -1, 2)), return_exceptions=True)
    assert answers[0] == 2
    assert isinstance(answers[1], ValueError)
    assert answers[2] == 4


async def test_a_lost_connection_is_not_tried_again() -> None:
    """After a lost connection nobody knows what was committed: trying again could do it twice."""
    flushes = Flushes()
    combiner = Combiner(flushes)
    answers = await asyncio.gather(*map(combiner.submit, (1, 404, 2)), return_exceptions=True)
    assert all(isinstance(answer, ConnectionResetError) for answer in answers)
    assert flushes.batches == [[1, 404, 2]]
    assert await combiner.submit(5) == 10


async def test_batches_are_bounded_by_number_and_weight() -> None:
    """No flush is larger than it may be; an item heavier than the bound goes alone."""
    flushes = Flushes()
    combiner = Combiner(flushes, largest=3, heaviest=10, weigh=lambda item: item)
    await asyncio.gather(*map(combiner.submit, (1, 1, 1, 1, 50, 6, 6)))
    assert flushes.batches == [[1, 1, 1], [1], [50], [6], [6]]


async def test_giving_up_does_not_take_back() -> None:
    """A caller who stops waiting leaves the others alone, and its item is still flushed."""
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
    """After draining, nothing waits and nothing runs."""
    flushes = Flushes()
    combiner = Combiner(flushes)
    task = asyncio.create_task(combiner.submit(1))
    await flushes.entered.wait()
    await combiner.drain()
    assert task.done() or await task == 2
    await combiner.drain()


async def test_a_stopped_combiner_leaves_nobody_waiting() -> None:
    """If its task is cancelled, everyone who waits is told."""
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
def test_which_errors_leave_everything_unknown(error: Exception, lost: bool) -> None:  # noqa: FBT001 - a case
    """Only an error of the connection leaves open what became of a statement."""
    assert is_connection_lost(error) is lost
