"""Many who ask at once, answered by one statement.

Whoever comes while nobody works starts a flush at once; whoever comes while a flush runs joins the next. So a lone
caller waits for nobody, and a crowd pays for one round trip and one commit together. An answer is given only after the
flush it belongs to has returned.

One bad item cannot fail its neighbours: when a flush raises, its items are tried one by one. The exception is a lost
connection, after which nobody knows what was committed: then all of them get the error.
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
    """Gathers items that wait and hands them to `flush`, which answers in the same order."""

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
        """How many wait or are being answered."""
        return len(self._waiting) + self._in_hand

    async def submit(self, item: Item) -> Result:
        """Wait until the flush that holds this item has returned. Giving up waiting does not take the item back."""
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, future))
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="combiner")
        return await future

    async def drain(self) -> None:
        """Wait until nothing waits."""
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
            for _item, future in self._waiting:  # only after a cancellation: nobody may wait for ever
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
        except Exception as error:  # noqa: BLE001 - whatever it is belongs to those who wait, not to this loop
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
