"""Pauses in proportion to work: after each step, sleep according to its duration."""

import asyncio
from collections.abc import Awaitable, Callable
from time import monotonic


class Pace:
    """Limits work to a share of the time, so that housekeeping does not slow down mail."""

    def __init__(self, share: float, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        """`sleep` may return early when the process stops."""
        self._rest_per_work, self._sleep = 1 / share - 1, sleep
        self._since = monotonic()

    async def rest(self) -> None:
        await self._sleep((monotonic() - self._since) * self._rest_per_work)
        self._since = monotonic()
