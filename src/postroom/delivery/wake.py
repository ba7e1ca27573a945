"""Who is to be woken when something is accepted: one bell per lane, and one for the renderer."""

import asyncio
from datetime import timedelta

from postroom.delivery.model import Lane


class Waker:
    """Bells that notifications, and neighbours in the same process, ring."""

    def __init__(self) -> None:
        self._bells = {lane: asyncio.Event() for lane in Lane}
        self.renderer = asyncio.Event()

    def notified(self, payload: str) -> None:
        """A NOTIFY arrived; an empty payload, after a reconnection, may mean anything."""
        self.renderer.set()
        for lane in Lane:
            if payload in ("", lane.value):
                self._bells[lane].set()

    def ring(self, lane: Lane) -> None:
        self._bells[lane].set()

    async def wait(self, lane: Lane, longest: timedelta) -> bool:
        """True if the lane's bell rang in time; the bell is silent afterwards."""
        bell = self._bells[lane]
        try:
            async with asyncio.timeout(longest.total_seconds()):
                await bell.wait()
        except TimeoutError:
            return False
        bell.clear()
        return True
