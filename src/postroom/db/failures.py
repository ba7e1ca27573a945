"""Failures of background loops, stored for `postroom doctor`: one row per loop and host."""

import os
import socket
from datetime import timedelta

import asyncpg

from postroom.db.pool import Pool
from postroom.db.queries import Connection, load

_QUERIES = load("postroom.db")


async def record_loop_failure(pool: Pool, loop: str, error: Exception) -> None:
    """Count a failure. Only the error's class is stored: a message may contain an address or a secret."""
    async with pool.acquire() as connection:
        await _QUERIES["record_loop_failure"].exec(
            connection, loop=loop, host=socket.gethostname(), pid=os.getpid(), error=type(error).__name__
        )


async def list_loop_failures(connection: Connection, *, since: timedelta) -> list[asyncpg.Record]:
    """Loops that failed recently, the latest first."""
    return await _QUERIES["list_loop_failures"].many(connection, since=since)
