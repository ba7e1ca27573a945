"""Changes that lock the tables of a room while its processes and applications use them."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import asyncpg

from postroom.db.pool import Session, connect, quote_identifier
from postroom.rooms import store
from postroom.rooms.service import Server
from postroom.runtime.loop import Backoff

LOCK_WAIT = Backoff(first_s=0.5, longest_s=4.0)  # below deadlock_timeout at first: then no writer is its victim


async def drop_schema(server: Server, name: str) -> None:
    """Drop a room and everything in it. Transactions of its processes end before, or fail after."""
    session = await connect(server.url, name)
    try:
        await insist(session, lambda: session.execute(f"DROP SCHEMA {quote_identifier(name)} CASCADE"))
    finally:
        await session.close()


async def insist(session: Session, change: Callable[[], Awaitable[object]]) -> None:
    """Run a change that locks tables. Writers queue behind it, so it waits briefly, and again after a pause.

    It locks tables in another order than they do: it gives way before the server finds a deadlock.
    """
    waits = replace(LOCK_WAIT)
    while True:
        pause_s = waits.fail()
        try:
            async with session.transaction():
                await store.limit_lock_wait(session, milliseconds=int(pause_s * 1000))
                await change()
                return
        except (asyncpg.LockNotAvailableError, asyncpg.DeadlockDetectedError):
            await asyncio.sleep(pause_s)
