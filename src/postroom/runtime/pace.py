"""Giving way: after each step a rest in proportion to how long the step took."""

import asyncio
from collections.abc import Awaitable, Callable
from time import monotonic


class Pace:
    """Keeps work to a share of the time, so that housekeeping is not what mail waits for."""

    def __init__(self, share: float, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        """`sleep` may end early, for whoever is told to stop."""
        self._rest_per_work, self._sleep = 1 / share - 1, sleep
        self._since = monotonic()

    async def rest(self) -> None:
        await self._sleep((monotonic() - self._since) * self._rest_per_work)
        self._since = monotonic()
