"""Closed-loop load: each client starts its next operation as soon as its last one is done."""

import asyncio
import math
import statistics
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TypeVar

import asyncpg

Client = TypeVar("Client")
Piece = TypeVar("Piece")
Act = Callable[[Client, Piece], Awaitable[object]]
"""One operation of a client: a number, or a batch of them."""

BATCH = 1_000
BULK_CLIENTS = 2
PAIRS_TIMED = 40
PAIRS_UNTIMED = 6  # plans are cached from the sixth execution on


async def share_singles(clients: Sequence[Client], numbers: range, act: Act[Client, int]) -> None:
    """Let the clients share the numbers, one operation each."""
    await _share(clients, iter(numbers), act)


async def share_batches(clients: Sequence[Client], numbers: range, act: Act[Client, range]) -> None:
    """Let the clients share the numbers in batches."""
    await _share(clients, batches(numbers), act)


async def _share(clients: Sequence[Client], queue: Iterator[Piece], act: Act[Client, Piece]) -> None:
    async def work(client: Client) -> None:
        for piece in queue:
            await act(client, piece)

    await asyncio.gather(*(work(client) for client in clients))


def batches(numbers: range, size: int = BATCH) -> Iterator[range]:
    for start in range(0, len(numbers), size):
        yield numbers[start : start + size]


async def in_one_transaction(connection: asyncpg.Connection, numbers: range, act: Act[asyncpg.Connection, int]) -> None:
    """Every operation inside one transaction: the cost of the operation without that of committing."""
    async with connection.transaction():
        for number in numbers:
            await act(connection, number)


async def call_latency(
    connection: asyncpg.Connection, numbers: range, act: Act[asyncpg.Connection, int]
) -> dict[str, float]:
    """Milliseconds that the call adds to a transaction of its caller, which commits after each."""
    waits = []
    for number in numbers:
        async with connection.transaction():
            began = time.perf_counter()
            await act(connection, number)
            waits.append((time.perf_counter() - began) * 1_000)
    return percentiles("latency", waits)


async def compare(few: Callable[[], Awaitable[float]], many: Callable[[], Awaitable[float]]) -> tuple[float, float]:
    """Both by turns, so that noise falls on both; medians of the seconds they return, in milliseconds."""
    pairs = [(await few(), await many()) for _ in range(PAIRS_UNTIMED + PAIRS_TIMED)][PAIRS_UNTIMED:]
    first, second = (statistics.median(seconds) * 1_000 for seconds in zip(*pairs, strict=True))
    return first, second


def percentile(values: Sequence[float], hundredth: float) -> float:
    """The smallest value that at least so many of a hundred do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * hundredth / 100) - 1)]


def percentiles(row: str, milliseconds: Sequence[float]) -> dict[str, float]:
    return {f"{row}-p50": percentile(milliseconds, 50), f"{row}-p99": percentile(milliseconds, 99)}


class Numbers:
    """Hands out fresh ranges, so that no round repeats another's recipients or idempotency keys."""

    def __init__(self) -> None:
        self._next = 0

    def take(self, count: int) -> range:
        start, self._next = self._next, self._next + count
        return range(start, self._next)
