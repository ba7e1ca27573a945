"""What is worth another try when many write at once: decisions overtaken, and what PostgreSQL asks to repeat."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

import asyncpg

from postroom.events.errors import AppendConditionFailed

ATTEMPTS = 10
FIRST_DELAY_S = 0.002
LONGEST_DELAY_S = 0.25
OVERTAKEN = (AppendConditionFailed, asyncpg.SerializationError, asyncpg.DeadlockDetectedError)

Result = TypeVar("Result")


async def retried(work: Callable[[], Awaitable[Result]], *, attempts: int = ATTEMPTS) -> Result:
    """Run it until it is not overtaken, at most this often; between tries wait a random while, longer each time."""
    for attempt in range(attempts - 1):
        try:
            return await work()
        except OVERTAKEN:
            # Random from nothing upwards: those who collided once must not meet again.
            await asyncio.sleep(random.uniform(0, min(LONGEST_DELAY_S, FIRST_DELAY_S * 2**attempt)))  # noqa: S311
    return await work()
