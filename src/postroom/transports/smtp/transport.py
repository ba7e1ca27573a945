"""The SMTP transport: sends a message over a pooled connection and returns the reply."""

import asyncio
import ssl
from collections import deque

from postroom.post.reply import Content, Envelope, Reply, Stage
from postroom.transports.base import FeedMail, MailFeed, SendProgress
from postroom.transports.guard import GuardedResolver
from postroom.transports.smtp.opening import ConnectionOpener, Timeouts
from postroom.transports.smtp.protocol import SmtpClientConnection
from postroom.transports.smtp.relay import SmtpRelay
from postroom.transports.smtp.session import ServerPace, SmtpSession
from postroom.transports.tls import client_context

DEFAULT_TIMEOUTS = Timeouts()
QUICK_S = 0.05  # the last content was answered within this time: mails need not have a connection each
QUICK_QUEUE, LONGEST_QUEUE = 5, 20
"""Mails that wait for each connection of a quick server. Each follows the content before it, which halves the system
calls. With 5, a mail needs 1.19 writes, with 20 it needs 1.05."""
QUEUE_S = 0.05  # more than five mails wait only if the server answers them all within this time


class SmtpTransport:
    """Sends mail to one relay. Any number of tasks may send at once; `max_connections` of them are served."""

    name = "smtp"

    def __init__(
        self,
        relay: SmtpRelay,
        *,
        local_name: str = "localhost",
        max_connections: int = 20,
        messages_per_connection: int = 1000,
        timeouts: Timeouts = DEFAULT_TIMEOUTS,
        guard: GuardedResolver | None = None,
    ) -> None:
        if not (local_name.isascii() and local_name.isprintable() and local_name and " " not in local_name):
            raise ValueError("local_name must be a host name or an address literal")
        if max_connections < 1 or messages_per_connection < 1:
            raise ValueError("a transport needs at least one connection and one message on it")
        self.relay, self.max_connections = relay, max_connections
        self._timeouts, self._messages_per_connection = timeouts, messages_per_connection
        self.pace = ServerPace()
        self._opener = ConnectionOpener(relay, local_name, timeouts, tls_context(relay), guard)
        self._pool = ConnectionPool(
            max_connections, messages_per_connection=messages_per_connection, idle_s=timeouts.idle
        )

    @property
    def queue_depth(self) -> int:
        """How many mails may wait for each connection in use: a few, if the server answers quickly."""
        answer_s = self.pace.answer_s
        if answer_s > QUICK_S:
            return 0
        if answer_s * LONGEST_QUEUE <= QUEUE_S:  # a server on the LAN
            return LONGEST_QUEUE
        return max(QUICK_QUEUE, min(int(QUEUE_S / max(answer_s, 0.001)), LONGEST_QUEUE))

    async def send(self, envelope: Envelope, content: Content) -> Reply:
        """Try once to hand the message over, on a kept connection if there is one."""
        feed = _MessageFeed(FeedMail(envelope, content, SendProgress.current()))
        await self.send_all(feed)
        assert feed.reply is not None, "every message has a reply"
        return feed.reply

    async def send_all(self, feed: MailFeed) -> None:
        """Send the messages of a feed, one after another over as few connections as possible."""
        while (mail := feed.take()) is not None:
            mail.progress.follow(_at_connect)
            if not feed.begin(mail):
                continue
            if self._pool.closed:
                feed.ended(mail, Reply(Stage.CONNECT, text="the transport is closed", remote_host=self.relay.address))
                continue
            connection = await self._pool.acquire()
            await self._send_over(connection, mail, feed)

    async def _send_over(self, kept: SmtpClientConnection | None, mail: FeedMail, feed: MailFeed) -> None:
        """Send this message and those that follow at once; open a new connection for one that lost its own."""
        connection = kept
        left: FeedMail | None = mail
        try:
            while left is not None and (connection := connection or await self._open(left, feed)) is not None:
                if not feed.begin(left):
                    break
                session = self._session(connection, is_kept=connection is kept)
                left = await session.send_all(left, feed)
                connection = connection if left is None else None
        except BaseException:
            # Cancelled, or a bug: the state of this connection is unknown.
            if connection is not None:
                connection.abort()
            raise
        finally:
            self._pool.release(connection)

    async def _open(self, mail: FeedMail, feed: MailFeed) -> SmtpClientConnection | None:
        mail.progress.follow(_at_connect)
        if not feed.begin(mail):
            return None
        opened = await self._opener.open()
        if isinstance(opened, Reply):
            feed.ended(mail, opened)
            return None
        return opened

    def _session(self, connection: SmtpClientConnection, *, is_kept: bool) -> SmtpSession:
        left = self._messages_per_connection - connection.messages
        return SmtpSession(connection, self.relay.address, self._timeouts, self.pace, left, is_kept)

    async def probe(self) -> Reply | None:
        """Connect and log in on a connection of its own, without a mail; None if the server would take one."""
        opened = await self._opener.open()
        if isinstance(opened, Reply):
            return opened
        opened.quit()
        await asyncio.wait([opened.closed])
        return None

    async def close(self) -> None:
        """Quit idle connections. Messages in flight and those that wait for a connection are still sent."""
        await self._pool.close()


class ConnectionPool:
    """All connections of one transport, reused and limited. Belongs to one event loop.

    A place is the right to hold one connection; there are `limit` of them. `acquire` returns with a place: a kept
    connection, or None if the caller may open one. `release` returns the place, first come, first served. The
    connection used last is used next, so that surplus connections become idle and are closed.
    """

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


class _MessageFeed:
    """A feed of one message."""

    def __init__(self, mail: FeedMail) -> None:
        self._mail: FeedMail | None = mail
        self.reply: Reply | None = None

    def take(self) -> FeedMail | None:
        mail, self._mail = self._mail, None
        return mail

    def begin(self, mail: FeedMail) -> bool:
        if not mail.progress.may_leave():
            self.reply = Reply(Stage.CONNECT, text="the message has expired")
            return False
        return True

    def ended(self, _mail: FeedMail, reply: Reply) -> None:
        self.reply = reply

    def returned(self, mail: FeedMail) -> None:
        self._mail = mail


def _at_connect() -> Stage:
    return Stage.CONNECT


def tls_context(relay: SmtpRelay) -> ssl.SSLContext | None:
    return None if relay.tls == "none" else client_context(relay.ca_file, verify=relay.verify)
