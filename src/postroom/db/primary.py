"""Leave a server that is gone.

A host that vanishes leaves statements without a response until POSTROOM_DATABASE_TIMEOUT, although another server may
have become the primary long before, on another host of the URL or under the same address. So a process has one more
connection, which asks its server every `PING_S` when it was started. While there is no answer, a second connection is
tried. If the first one answers after all, the server was only slow. If the second one does, or if it finds another
server, then all connections that were made before are closed: their statements fail at once, and their callers retry.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta

import structlog

from postroom.db.connection import Connector, PostgresConnection
from postroom.db.queries import columns, load
from postroom.runtime.loop import Backoff, Loop

PING_S = 3.0  # with PING_TIMEOUT_S and CONNECT_S well below the 15 s in which work must resume
PING_TIMEOUT_S = 3.0  # a loaded server answers earlier; the reason for PING_S holds here too
CONNECT_S = 4.0  # a login; an attempt that began just before the address moved waits for all of it
RECONNECT_S = 0.1  # before the first try; later ones wait up to LONGEST_RECONNECT_S
LONGEST_RECONNECT_S = 1.0  # an election takes seconds, and everything waits for its end

_log = structlog.get_logger()
_QUERIES = load("postroom.db")
is_in_recovery = _QUERIES["is_in_recovery"].one_as(columns("is_in_recovery"))
identify_server = _QUERIES["identify_server"].one_as(columns("started_at"))


@asynccontextmanager
async def primary_followed(*connectors: Connector, server: datetime | None = None) -> AsyncIterator[None]:
    """Close the connections that these have made to a server that is gone, during the block.

    `server` is the start of the one to which they were made, if it is known.
    """
    watch = _Watch(connectors, server)
    backoff = Backoff(RECONNECT_S, LONGEST_RECONNECT_S)
    loop = Loop("primary", watch.check, rest=_pause, wake=watch.is_lost, interruption=backoff)
    loop.postpone(_pause())  # a command that ends sooner needs no connection more
    try:
        async with loop.beside():
            yield
    finally:
        watch.end()


def _pause() -> timedelta:
    return timedelta(seconds=PING_S)


class _Watch:
    """The connection that asks, and its question."""

    def __init__(self, connectors: Sequence[Connector], server: datetime | None) -> None:
        self._connectors, self._server = connectors, server
        self._connection: PostgresConnection | None = None
        self._question: asyncio.Task[datetime] | None = None
        self._asked_at = 0.0
        self._failed_at: float | None = None
        self._is_unreachable = False
        self.is_lost = asyncio.Event()

    async def check(self) -> None:
        """Ask the server; if it does not answer, connect again and leave it."""
        if self._connection is not None and await self._is_answered(self._connection):
            return
        self._failed_at = self._failed_at or asyncio.get_running_loop().time()
        connection, server = await self._connect()
        if self._has_answer():
            connection.terminate()
            return
        self._leave(server)
        self.end()
        self._connection, self._server, self._question = connection, server, None
        self._failed_at, self._is_unreachable = None, False
        connection.add_termination_listener(lambda _connection: self.is_lost.set())

    def end(self) -> None:
        if self._connection is not None:
            self._connection.terminate()

    async def _is_answered(self, connection: PostgresConnection) -> bool:
        now = asyncio.get_running_loop().time()
        if self._question is None:
            self._question, self._asked_at = asyncio.create_task(identify_server(connection)), now
            self._question.add_done_callback(_failure_of)  # it is read here or not at all
        await asyncio.wait({self._question}, timeout=max(self._asked_at + PING_TIMEOUT_S - now, 0))
        return self._has_answer()

    def _has_answer(self) -> bool:
        """True if the question was answered, which ends it; one that failed stays as the sign that it did."""
        if self._question is None or not self._question.done() or _failure_of(self._question) is not None:
            return False
        self._server = self._question.result()  # behind a pooler it may have changed
        self._question = self._failed_at = None
        return True

    async def _connect(self) -> tuple[PostgresConnection, datetime]:
        try:
            connection = await self._connectors[0](timeout=CONNECT_S)
        except OSError:
            self._is_unreachable = True
            raise
        try:
            async with asyncio.timeout(CONNECT_S):
                return connection, await identify_server(connection)
        except BaseException:
            connection.terminate()
            raise

    def _leave(self, server: datetime) -> None:
        """Close connections to other hosts; also to this one, if the old server is silent or this is another one.

        Before the first answer, it counts as silent if it could not be reached.
        """
        is_silent = self._is_unreachable if self._question is None else not self._question.done()
        is_gone = is_silent or self._server not in (None, server)
        before = self._failed_at if is_gone else None
        if closed := sum(connector.leave(before) for connector in self._connectors):
            _log.warning("primary_changed", closed_connections=closed)


def _failure_of(question: "asyncio.Task[datetime]") -> BaseException | None:
    return asyncio.CancelledError() if question.cancelled() else question.exception()
