"""Decisions of one process about the same thing take turns.

Whoever decides by a query that somebody else here is deciding by would only be overtaken: it waits instead, and reads
when the other has written. Processes do not know of each other's turns: between them the append condition decides, as
it does anyway.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Turns:
    """One line for each key, kept only as long as somebody stands in it."""

    def __init__(self) -> None:
        self._lines: dict[str, tuple[asyncio.Lock, int]] = {}

    @property
    def is_empty(self) -> bool:
        return not self._lines

    @asynccontextmanager
    async def take(self, key: str) -> AsyncIterator[None]:
        lock, waiting = self._lines.get(key) or (asyncio.Lock(), 0)
        self._lines[key] = (lock, waiting + 1)
        try:
            async with lock:
                yield
        finally:
            _, waiting = self._lines.pop(key)
            if waiting > 1:
                self._lines[key] = (lock, waiting - 1)
