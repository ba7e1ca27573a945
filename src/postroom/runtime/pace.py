"""Pauses in proportion to work: after each step, sleep according to its duration."""

import asyncio
from time import monotonic


class Pace:
    """Limits work to a share of the time, so that housekeeping does not slow down mail."""

    def __init__(self, share: float) -> None:
        self._rest_per_work = 1 / share - 1
        self._since = monotonic()

    async def rest(self) -> None:
        await asyncio.sleep((monotonic() - self._since) * self._rest_per_work)
        self._since = monotonic()
