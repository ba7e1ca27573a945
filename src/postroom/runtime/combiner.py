"""Combine concurrent calls into one statement.

A call starts a flush at once if none runs; calls during a flush join the next one. So a single caller does not wait,
and concurrent callers share one round trip and one commit. A call returns after its flush has returned.

One invalid item does not fail the others: when a flush raises, its items are flushed one by one. After a lost
connection, when it is unknown whether the flush was committed, all of them get the error.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from postroom.db.faults import is_connection_lost

Item = TypeVar("Item")
Result = TypeVar("Result")


def _weighs_nothing(_item: object) -> int:
    return 0


class Combiner(Generic[Item, Result]):
    """Collects waiting items and passes them to `flush`, which returns results in the same order."""

    def __init__(
        self,
        flush: Callable[[Sequence[Item]], Awaitable[Sequence[Result]]],
        *,
        largest: int = 200,
        heaviest: int = 8 * 1024 * 1024,
        weigh: Callable[[Item], int] = _weighs_nothing,
    ) -> None:
        self._flush, self._largest, self._heaviest, self._weigh = flush, largest, heaviest, weigh
        self._waiting: deque[tuple[Item, asyncio.Future[Result]]] = deque()
        self._task: asyncio.Task[None] | None = None
        self._in_hand = 0

    def __len__(self) -> int:
        """The number of items that are waiting or being flushed."""
        return len(self._waiting) + self._in_hand

    async def submit(self, item: Item) -> Result:
        """Wait until the flush of this item has returned. Cancelling the wait does not withdraw the item."""
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, future))
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="combiner")
        return await future

    async def drain(self) -> None:
        """Wait until no item is left."""
        while self._task is not None:
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        try:
            while self._waiting:
                batch = self._gather()
                self._in_hand = len(batch)
                await self._answer(batch)
        finally:
            self._task, self._in_hand = None, 0
            for _item, future in self._waiting:  # only after a cancellation: no caller may wait indefinitely
                future.cancel()
            self._waiting.clear()

    def _gather(self) -> list[tuple[Item, "asyncio.Future[Result]"]]:
        batch = [self._waiting.popleft()]
        weight = self._weigh(batch[0][0])
        while self._waiting and len(batch) < self._largest:
            weight += self._weigh(self._waiting[0][0])
            if weight > self._heaviest:
                break
            batch.append(self._waiting.popleft())
        return batch

    async def _answer(self, batch: Sequence[tuple[Item, "asyncio.Future[Result]"]]) -> None:
        try:
            results = await self._flush([item for item, _future in batch])
        except asyncio.CancelledError:
            for _item, future in batch:
                future.cancel()
            raise
        except Exception as error:  # noqa: BLE001 - every error is raised in the callers
            await self._answer_alone(batch, error)
        else:
            for (_item, future), result in zip(batch, results, strict=True):
                if not future.done():
                    future.set_result(result)

    async def _answer_alone(self, batch: Sequence[tuple[Item, "asyncio.Future[Result]"]], error: Exception) -> None:
        if len(batch) > 1 and not is_connection_lost(error):
            for entry in batch:
                await self._answer([entry])
            return
        for _item, future in batch:
            if not future.done():
                future.set_exception(error)
