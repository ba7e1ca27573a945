"""Giving way: after each step a rest in proportion to how long the step took."""

import asyncio
from time import monotonic


class Pace:
    """Keeps work to a share of the time, so that archiving is not what mail waits for."""

    def __init__(self, share: float) -> None:
        self._rest_per_work = 1 / share - 1
        self._since = monotonic()

    async def rest(self) -> None:
        worked = monotonic() - self._since
        await asyncio.sleep(worked * self._rest_per_work)
        self._since = monotonic()
