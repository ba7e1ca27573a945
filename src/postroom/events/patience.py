"""Waiting for somebody's open transaction: not for ever, and never with the whole pool.

Whoever waits for a lock keeps a connection meanwhile. So everybody tries for a moment first, and of those who find the
lock taken only a few, a quarter of the pool, wait for it with a connection in hand; the others wait for one of these
seats. Everything else the process does has the rest of the pool.
"""

import asyncio
from collections.abc import Awaitable
from typing import Protocol, TypeVar

import asyncpg

from postroom.db.pool import Pool
from postroom.events.errors import EventsBusy

LONGEST_S = 10
"""For a seat. For the lock it is the same, unless the connection has a lock_timeout of its own: see the SQL."""

Result_co = TypeVar("Result_co", covariant=True)


class RetryableWork(Protocol[Result_co]):
    """What may have to wait. It is asked to be patient or not, and again if it was not and had to wait."""

    def __call__(self, *, is_patient: bool) -> Awaitable[Result_co]: ...


class LockWait:
    """One per process and room."""

    def __init__(self, pool: Pool) -> None:
        self._seats = asyncio.Semaphore(max(1, pool.get_max_size() // 4))

    async def run(self, work: RetryableWork[Result_co]) -> Result_co:
        """What comes of the work. Raises `EventsBusy` if somebody else holds for too long what it needs."""
        try:
            return await work(is_patient=False)
        except asyncpg.LockNotAvailableError:
            await self._take_seat()
        try:
            return await work(is_patient=True)
        except asyncpg.LockNotAvailableError as error:
            raise EventsBusy from error
        finally:
            self._seats.release()

    async def _take_seat(self) -> None:
        try:
            async with asyncio.timeout(LONGEST_S):
                await self._seats.acquire()
        except TimeoutError:
            raise EventsBusy from None
