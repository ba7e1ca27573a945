"""The SMTP transport: sends a message over a pooled connection and returns the reply."""

import ssl

from postroom.post.reply import Content, Envelope, Reply, Stage
from postroom.transports.base import SendProgress
from postroom.transports.guard import GuardedResolver
from postroom.transports.smtp.answer import SERVICE_CLOSING
from postroom.transports.smtp.opening import ConnectionOpener, Timeouts
from postroom.transports.smtp.pool import ConnectionPool
from postroom.transports.smtp.protocol import SmtpClientConnection
from postroom.transports.smtp.relay import SmtpRelay
from postroom.transports.smtp.session import SmtpSession
from postroom.transports.tls import client_context

DEFAULT_TIMEOUTS = Timeouts()


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
        self._timeouts = timeouts
        self._opener = ConnectionOpener(relay, local_name, timeouts, tls_context(relay), guard)
        self._pool = ConnectionPool(
            max_connections, messages_per_connection=messages_per_connection, idle_s=timeouts.idle
        )

    async def send(self, envelope: Envelope, content: Content) -> Reply:
        """Try once to hand the message over, on a kept connection if there is one."""
        if self._pool.closed:
            return Reply(Stage.CONNECT, text="the transport is closed", remote_host=self.relay.address)
        passage = SendProgress.current()
        passage.follow(_at_connect)
        connection = await self._pool.acquire()
        try:
            if connection is not None:
                reply = await self._deliver(connection, envelope, content, passage)
                if not went_stale(connection, reply):
                    return reply
            connection = None
            passage.follow(_at_connect)
            opened = await self._opener.open()
            if isinstance(opened, Reply):
                return opened
            connection = opened
            return await self._deliver(connection, envelope, content, passage)
        except BaseException:
            # Cancelled, or a bug: the state of this connection is unknown.
            if connection is not None:
                connection.abort()
            raise
        finally:
            self._pool.release(connection)

    async def close(self) -> None:
        """Quit idle connections. Messages in flight and those that wait for a connection are still sent."""
        await self._pool.close()

    async def _deliver(
        self, connection: SmtpClientConnection, envelope: Envelope, content: Content, passage: SendProgress
    ) -> Reply:
        passage.follow(connection.stage)
        if not passage.may_leave():
            return Reply(Stage.CONNECT, text="the message has expired", remote_host=self.relay.address)
        return await SmtpSession(connection, self.relay.address, self._timeouts).deliver(envelope, content)


def _at_connect() -> Stage:
    return Stage.CONNECT


def went_stale(connection: SmtpClientConnection, reply: Reply) -> bool:
    """True if a kept connection was found closed and the message can safely use a new one."""
    unanswered = reply.code is None or reply.code == SERVICE_CLOSING
    return unanswered and connection.lost and not connection.content_started


def tls_context(relay: SmtpRelay) -> ssl.SSLContext | None:
    return None if relay.tls == "none" else client_context(relay.ca_file, verify=relay.verify)
