"""Follow the primary of a URL with several hosts.

A host that vanishes leaves statements without a response until POSTROOM_DATABASE_TIMEOUT, although another server may
have become the primary long before. So every pool of such a URL has one connection more, which pings its server. When
it is lost it connects again, and if another host is the primary then, all connections to the others are closed: their
statements fail at once, and their callers retry on the new primary.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from functools import partial

import structlog

from postroom.db.connection import Connector
from postroom.db.listen import ping_until
from postroom.db.url import hosts_of
from postroom.runtime.backoff import Backoff
from postroom.runtime.loop import Loop

PING_S = 3.0  # with PING_TIMEOUT_S and NEXT_HOST_S well below the 15 s in which work must resume
PING_TIMEOUT_S = 3.0
RECONNECT = timedelta(milliseconds=100)
LONGEST_RECONNECT_S = 1.0  # an election takes seconds, and everything waits for its end

_log = structlog.get_logger()


@asynccontextmanager
async def primary_followed(connector: Connector) -> AsyncIterator[None]:
    """Follow the primary during the block; a URL with one host has nothing to follow."""
    if len(hosts_of(connector.url)) < 2:  # noqa: PLR2004 - several
        yield
        return
    backoff = Backoff(RECONNECT.total_seconds(), LONGEST_RECONNECT_S)
    loop = Loop("primary", partial(_follow, connector), rest=RECONNECT, interruption=backoff)
    task = asyncio.create_task(loop.run(asyncio.Event()), name=loop.name)
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def _follow(connector: Connector) -> None:
    """Connect to the primary, leave all other hosts, and return when it is lost."""
    connection = await connector()
    if closed := connector.close_others():
        _log.warning("primary_changed", closed_connections=closed)
    lost = asyncio.Event()
    connection.add_termination_listener(lambda _connection: lost.set())
    try:
        await ping_until(lost, connection, every_s=PING_S, timeout_s=PING_TIMEOUT_S)
    finally:
        connection.terminate()
