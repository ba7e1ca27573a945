"""Wait for a lock of another open transaction, with a timeout and without occupying the whole pool.

Waiting for a lock occupies a connection. So every append first tries with a short lock timeout; of those that time out
only as many as a quarter of the pool wait for the lock with a connection, and the others wait for one of these slots.
The rest of the pool stays free for the other work of the process.
"""

import asyncio
from collections.abc import Awaitable
from typing import Protocol, TypeVar

import asyncpg

from postroom.db.pool import Pool
from postroom.events.errors import EventsBusy

LONGEST_S = 10
"""Timeout for a slot. The lock has the same timeout, unless the connection sets its own lock_timeout: see the SQL."""

Result_co = TypeVar("Result_co", covariant=True)


class RetryableWork(Protocol[Result_co]):
    """Work that may wait for a lock: called with a short timeout first, and with a long one if it timed out."""

    def __call__(self, *, is_patient: bool) -> Awaitable[Result_co]: ...


class LockWait:
    """The slots for waiting; one instance per process and room."""

    def __init__(self, pool: Pool) -> None:
        self._seats = asyncio.Semaphore(max(1, pool.get_max_size() // 4))  # the rest need not wait

    async def run(self, work: RetryableWork[Result_co]) -> Result_co:
        """The result of the work. Raises `EventsBusy` if another transaction holds a needed lock for too long."""
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
