"""Pool of connections, reused and limited.

A place is the right to hold one connection; there are `limit` of them. `acquire` returns with a place: a kept
connection, or None if the caller may open one. `release` returns the place, first come, first served. The connection
used last is used next, so that surplus connections become idle and are closed.
"""

import asyncio
from collections import deque

from postroom.transports.smtp.protocol import SmtpClientConnection


class ConnectionPool:
    """All connections of one transport. Belongs to one event loop."""

    def __init__(self, limit: int, *, messages_per_connection: int, idle_s: float) -> None:
        self.closed = False
        self._limit = limit
        self._messages_per_connection = messages_per_connection
        self._idle_s = idle_s
        self._taken = 0  # places given out or kept by an idle connection
        self._idle: list[SmtpClientConnection] = []
        self._leaving: set[SmtpClientConnection] = set()
        self._waiters: deque[asyncio.Future[SmtpClientConnection | None]] = deque()
        self._sweeper: asyncio.TimerHandle | None = None

    async def acquire(self) -> SmtpClientConnection | None:
        """Wait for a place. Callers already waiting when the pool is closed still get one."""
        while self._idle:
            connection = self._idle.pop()
            if connection.trouble is None:
                return connection
            self._taken -= 1
        if self._taken < self._limit:
            self._taken += 1
            return None
        return await self._wait()

    def release(self, connection: SmtpClientConnection | None) -> None:
        """Return a place, with the connection if it can be reused."""
        if connection is None or connection.trouble is not None:
            self._pass_on(None)
        elif connection.messages >= self._messages_per_connection:
            self._dismiss(connection)
        else:
            self._pass_on(connection)

    async def close(self) -> None:
        """Quit idle connections and wait until they are closed; busy ones follow when no caller waits."""
        self.closed = True
        if self._sweeper is not None:
            self._sweeper.cancel()
            self._sweeper = None
        while self._idle:
            self._dismiss(self._idle.pop())
        if self._leaving:
            await asyncio.wait([connection.closed for connection in self._leaving])

    async def _wait(self) -> SmtpClientConnection | None:
        waiter: asyncio.Future[SmtpClientConnection | None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self.release(waiter.result())  # the place arrived together with the cancellation
            raise

    def _grant(self, connection: SmtpClientConnection | None) -> bool:
        """Give a place to the caller that has waited longest; False if no caller waits."""
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(connection)
                return True
        return False

    def _pass_on(self, connection: SmtpClientConnection | None) -> None:
        if self._grant(connection):
            return
        if connection is None:
            self._taken -= 1
        elif self.closed:
            self._dismiss(connection)
        else:
            self._keep(connection)

    def _keep(self, connection: SmtpClientConnection) -> None:
        loop = asyncio.get_running_loop()
        connection.idle_since = loop.time()
        self._idle.append(connection)
        if self._sweeper is None:
            self._sweeper = loop.call_later(self._idle_s, self._sweep)

    def _sweep(self) -> None:
        """Close connections idle for too long; run again when the next one will be."""
        loop = asyncio.get_running_loop()
        self._sweeper = None
        old = loop.time() - self._idle_s + 0.001  # timers may fire a clock tick early
        expired = [connection for connection in self._idle if connection.idle_since <= old]
        self._idle = [connection for connection in self._idle if connection.idle_since > old]
        for connection in expired:
            self._dismiss(connection)
        if self._idle:
            oldest = min(connection.idle_since for connection in self._idle)
            self._sweeper = loop.call_at(oldest + self._idle_s, self._sweep)

    def _dismiss(self, connection: SmtpClientConnection) -> None:
        """Quit a connection. Its place is free when the server no longer counts the connection."""
        connection.quit()
        self._leaving.add(connection)
        connection.closed.add_done_callback(lambda _: self._gone(connection))

    def _gone(self, connection: SmtpClientConnection) -> None:
        self._leaving.discard(connection)
        self._pass_on(None)
