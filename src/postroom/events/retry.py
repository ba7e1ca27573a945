"""Retry decisions that lost a race, and transactions that PostgreSQL asks to repeat."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import asyncpg

from postroom.events.errors import AppendConditionFailed
from postroom.runtime.loop import Backoff

ATTEMPTS = 10  # a decider that lost once waits for its turn, so that more are hardly ever needed
FIRST_DELAY_S = 0.002  # about the time of one append
LONGEST_DELAY_S = 0.25  # the pauses of ten attempts last less than a second together
OVERTAKEN = (AppendConditionFailed, asyncpg.SerializationError, asyncpg.DeadlockDetectedError)

Result = TypeVar("Result")


async def retried(work: Callable[[], Awaitable[Result]], *, attempts: int = ATTEMPTS) -> Result:
    """Run the work until it wins the race, at most `attempts` times, with random delays that grow."""
    pause = Backoff(FIRST_DELAY_S, LONGEST_DELAY_S, jitter=1)  # from zero up, so that losers do not collide again
    for _attempt in range(attempts - 1):
        try:
            return await work()
        except OVERTAKEN:
            await asyncio.sleep(pause.fail())
    return await work()
