"""Bulk mail gives way while a notified mail of another lane is on its way to its transport.

The rooms of a process share its event loop, and their statements the server's cores. A mail of a quiet room passes the
event loop some ten times before it leaves, each time behind the replies, statements and messages of a busy room. So
tasks of lane `bulk`, in every room of the process, begin nothing new from the notification of a mail in lane `auth` or
`transactional` until that mail is with its transport: a few milliseconds. Work in flight goes on.

Bulk mail is held back for half of the time at most, and never for longer than `LONGEST_S` at once: a server that does
not answer in one room does not stop the bulk mail of the others. A lane under load is not notified, and takes no
precedence.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from postroom.delivery.model import Lane

LONGEST_S = 0.1  # ten times what the statements of one mail take on an idle server


class Precedence:
    """Shared by the workers of a process. Belongs to one event loop."""

    __slots__ = ("_clear", "_ends_at", "_rests_until", "_urgent")

    def __init__(self) -> None:
        self._urgent = 0
        self._ends_at = self._rests_until = 0.0
        self._clear = asyncio.Event()

    @asynccontextmanager
    async def turn(self, lane: Lane, *, is_notified: bool) -> AsyncIterator[None]:
        """Hold bulk mail back during this block, if it is about a mail of another lane that was just accepted."""
        await self.give_way(lane)
        if lane is Lane.BULK or not is_notified:
            yield
            return
        self._urgent += 1
        self._ends_at = asyncio.get_running_loop().time() + LONGEST_S
        self._clear.clear()
        try:
            yield
        finally:
            self._urgent -= 1
            if not self._urgent:
                self._clear.set()

    def holds_back(self, lane: Lane) -> bool:
        """True if this lane should begin nothing new now."""
        if not self._urgent or lane is not Lane.BULK:
            return False
        return self._rests_until <= asyncio.get_running_loop().time() < self._ends_at

    async def give_way(self, lane: Lane) -> None:
        """Wait until bulk mail may go on."""
        if not self.holds_back(lane):
            return
        loop = asyncio.get_running_loop()
        began = loop.time()
        with suppress(TimeoutError):
            async with asyncio.timeout_at(self._ends_at):
                await self._clear.wait()
        ended = loop.time()
        self._rests_until = max(self._rests_until, ended + (ended - began))
