"""Closed-loop load: some clients, each doing the next operation as soon as its last one is done."""

import asyncio
import math
import statistics
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TypeVar

Client = TypeVar("Client")

BATCH = 1_000
BULK_CLIENTS = 2
CLAIMED_AT_ONCE = 100
CLAIMS_TIMED = 40
CLAIMS_UNTIMED = 5


async def rate_of_singles(
    clients: Sequence[Client], numbers: range, act: Callable[[Client, int], Awaitable[object]]
) -> float:
    """Operations per second when the clients share the numbers, one operation each."""
    queue = iter(numbers)

    async def work(client: Client) -> None:
        for number in queue:
            await act(client, number)

    return await _rate(len(numbers), [work(client) for client in clients])


async def rate_of_batches(
    clients: Sequence[Client], numbers: range, act: Callable[[Client, range], Awaitable[object]]
) -> float:
    """Rows per second when the clients share the numbers in batches."""
    queue = batches(numbers)

    async def work(client: Client) -> None:
        for batch in queue:
            await act(client, batch)

    return await _rate(len(numbers), [work(client) for client in clients])


def batches(numbers: range, size: int = BATCH) -> Iterator[range]:
    for start in range(0, len(numbers), size):
        yield numbers[start : start + size]


async def _rate(count: int, work: Sequence[Awaitable[None]]) -> float:
    began = time.perf_counter()
    await asyncio.gather(*work)
    return count / (time.perf_counter() - began)


async def compare_claims(
    shallow: Callable[[], Awaitable[float]], deep: Callable[[], Awaitable[float]]
) -> dict[str, float]:
    """Claims from a short and a long queue by turns, so that noise falls on both; medians and their ratio."""
    pairs = [(await shallow(), await deep()) for _ in range(CLAIMS_UNTIMED + CLAIMS_TIMED)][CLAIMS_UNTIMED:]
    few, many = (statistics.median(seconds) * 1_000 for seconds in zip(*pairs, strict=True))
    return {"claim-shallow": few, "claim-deep": many, "claim-flatness": many / few}


def percentile(values: Sequence[float], hundredth: float) -> float:
    """The smallest value that at least so many of a hundred do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * hundredth / 100) - 1)]


class Numbers:
    """Hands out fresh ranges, so that no round repeats another's recipients or idempotency keys."""

    def __init__(self) -> None:
        self._next = 0

    def take(self, count: int) -> range:
        start, self._next = self._next, self._next + count
        return range(start, self._next)
