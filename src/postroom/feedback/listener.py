"""The bounce address on SMTP: a server that takes reports and nothing else.

It never relays and needs no login: it takes mail only for return paths that carry our HMAC, for the addresses where
complaints and postmasters write, and only in the bounce domain. 250 is answered after the commit.

Strangers may connect, so everything is bounded: connections in all and from one network, messages in a connection, and
the memory of a message, of which only the beginning is kept. Reports are read in processes of their own (`reading`).

| answer       | when                                                                                       |
|--------------|--------------------------------------------------------------------------------------------|
| 250 2.0.0    | read and kept                                                                              |
| 421 4.3.2    | too many connections, in all or from this network                                          |
| 451 4.3.0    | the database does not answer, or it is our fault: try again                                |
| 452 4.5.3    | more recipients than a report has, or more messages than a connection may bring            |
| 550 5.1.1    | a return path that is not ours, or nobody at this domain                                   |
| 550 5.7.1    | another domain: no relaying                                                                |
| 552 5.3.4    | larger than a report may be                                                                |
"""

import asyncio
import contextlib
import logging
import os
import socket
import ssl
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self, cast

import structlog
from aiosmtpd.smtp import SMTP, syntax

from postroom.db.pool import Pool
from postroom.errors import SettingInvalid
from postroom.feedback.attribution import Incoming, ReturnPaths
from postroom.feedback.ingest import ingest
from postroom.feedback.reading import ReportReaders
from postroom.post.report import LARGEST
from postroom.post.return_path import read_return_path
from postroom.runtime.combiner import is_connection_lost
from postroom.runtime.peers import LOOPBACK, Network, is_within, network_of

ORIGIN = "smtp"
MEGABYTE = 1024 * 1024
MAILBOXES = ("postmaster", "abuse", "fbl")
MOST_RECIPIENTS = 100
TIMEOUT_S = 120
COMMAND_LIMIT = 2048
END = b".\r\n"
TOO_LARGE = "552 5.3.4 Larger than a report may be"
AWAY = "451 4.3.0 The database does not answer, please try again later"
OUR_FAULT = "451 4.3.0 Something went wrong here, please try again later"

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerOptions:
    """Where to listen and for which domain; the defaults are those of the settings."""

    domain: str
    keys: tuple[bytes, ...] = field(repr=False)
    host: str = "127.0.0.1"
    port: int = 2526
    size_limit: int = 20 * MEGABYTE
    tls: ssl.SSLContext | None = None
    most_connections: int = 100
    most_per_peer: int = 10
    most_messages: int = 100  # in a connection
    unlimited: Sequence[Network] = LOOPBACK  # peers without these bounds: a relay on this host
    mailboxes: tuple[str, ...] = MAILBOXES

    @property
    def paths(self) -> ReturnPaths:
        return ReturnPaths(self.domain, self.keys)


class BounceHandler:
    """The hooks of the server, shared by all its connections."""

    def __init__(self, pool: Pool, options: ListenerOptions, readers: ReportReaders) -> None:
        self._pool, self._options, self._readers = pool, options, readers

    async def handle_RCPT(  # noqa: N802 - a hook, by the server's name for it
        self, server: "BounceSession", _session: Any, envelope: Any, address: str, _options: list[str]
    ) -> str:
        if server.messages >= self._options.most_messages and not server.is_unlimited:
            return "452 4.5.3 Too many messages in one connection, please open another"
        if len(envelope.rcpt_tos) >= MOST_RECIPIENTS:
            return f"452 4.5.3 At most {MOST_RECIPIENTS} recipients"
        local, _, domain = address.rpartition("@")
        options = self._options
        if domain.lower() != options.domain.lower():
            return "550 5.7.1 This server takes reports only and never relays"
        is_mailbox = local.lower() in options.mailboxes
        if not is_mailbox and read_return_path(address, domain=options.domain, keys=options.keys) is None:
            return "550 5.1.1 There is no such address here"
        envelope.rcpt_tos.append(address)
        return "250 2.1.5 OK"

    async def handle_DATA(self, server: "BounceSession", _session: Any, envelope: Any) -> str:  # noqa: N802 - as above
        server.messages += 1
        if server.is_too_large:
            return TOO_LARGE
        raw = envelope.content if isinstance(envelope.content, bytes) else envelope.content.encode()
        peer = None if server.is_unlimited else network_of(server.peer)
        message = Incoming(raw, ORIGIN, tuple(envelope.rcpt_tos), peer)
        try:
            await ingest(self._pool, [message], paths=self._options.paths, read=self._readers.read)
        except Exception as error:
            if is_connection_lost(error):
                return AWAY
            raise
        return "250 2.0.0 Thank you"

    async def handle_exception(self, error: Exception) -> str:
        _log.error("report_failed", error=type(error).__name__)
        return OUR_FAULT


class Beginning:
    """The lines of one message: the beginning is handed on, the rest is read and forgotten."""

    def __init__(self, reader: asyncio.StreamReader, kept: int) -> None:
        self._reader, self._kept = reader, kept
        self.received = 0

    async def readuntil(self, separator: bytes) -> bytes:
        line = await self._next(separator)
        while self.received > self._kept and line != END:
            line = await self._next(separator)
        return line

    async def read(self, size: int) -> bytes:
        piece = await self._reader.read(size)
        self.received += len(piece)
        return piece

    async def _next(self, separator: bytes) -> bytes:
        line = await self._reader.readuntil(separator)
        self.received += len(line)
        return line


class BounceSession(SMTP):
    """One connection. Reports quote mails with long lines; a line here may be longer than RFC 5321 asks for."""

    line_length_limit = 64 * 1024

    def __init__(self, handler: BounceHandler, options: ListenerOptions, server: "BounceListener") -> None:
        super().__init__(
            handler,
            data_size_limit=options.size_limit,
            enable_SMTPUTF8=True,
            hostname=options.domain,
            ident="Postroom",
            tls_context=options.tls,
            timeout=TIMEOUT_S,
            loop=asyncio.get_running_loop(),
        )
        self._listener, self._unlimited = server, options.unlimited
        self._beginning: Beginning | None = None
        self.messages = 0
        # aiosmtpd keeps these in the class, shared and reset by every connection.
        self.command_size_limits = defaultdict(lambda: COMMAND_LIMIT)

    @property
    def peer(self) -> str:
        """The address of the other side; empty on a Unix socket."""
        found = self.session.peer if self.session is not None else None
        return str(found[0]) if isinstance(found, tuple) and found else ""

    @property
    def is_too_large(self) -> bool:
        """True if the last message was larger than a report may be."""
        return self._beginning is not None and self._beginning.received > self._listener.size_limit

    @property
    def is_unlimited(self) -> bool:
        return is_within(self.peer, self._unlimited)

    @syntax("DATA")
    async def smtp_DATA(self, arg: str) -> None:  # noqa: N802 - a command, by its name
        whole = self._reader
        self._beginning = Beginning(whole, LARGEST)
        self._reader = cast("asyncio.StreamReader", self._beginning)  # what the command asks of a reader, it has
        try:
            await super().smtp_DATA(arg)
        finally:
            self._reader = whole

    async def _handle_client(self) -> None:
        if not self._listener.opened(self):
            await self.dismiss("421 4.3.2 Too many connections, please try again later")
            return
        try:
            await super()._handle_client()
        finally:
            self._listener.closed(self)

    async def dismiss(self, answer: str) -> None:
        """Say why and hang up."""
        if self.transport is not None:
            await self.push(answer)
            self.transport.close()

    async def push(self, status: Any) -> None:
        # The server's own refusals of large messages, with the code that programs look for.
        if isinstance(status, str) and status.startswith("552 Error:"):
            status = status.replace("552 Error:", "552 5.3.4", 1)
        await super().push(status)


class BounceListener:
    """The server as an async context manager: inside, it listens. A `listener` is a socket that has the address."""

    def __init__(
        self,
        pool: Pool,
        options: ListenerOptions,
        *,
        listener: socket.socket | None = None,
        readers: ReportReaders | None = None,
    ) -> None:
        self._options, self._listener = options, listener
        self._readers = readers or ReportReaders()
        self._handler = BounceHandler(pool, options, self._readers)
        self._sessions: set[BounceSession] = set()
        self._server: asyncio.Server | None = None
        self._is_closing = False

    @property
    def port(self) -> int:
        """The port it listens on, chosen by the system if 0 was asked for."""
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    @property
    def size_limit(self) -> int:
        return self._options.size_limit

    def opened(self, session: BounceSession) -> bool:
        if self._is_closing or len(self._sessions) >= self._options.most_connections:
            return False
        network = network_of(session.peer)
        others = sum(network_of(each.peer) == network for each in self._sessions)
        if others >= self._options.most_per_peer and not session.is_unlimited:
            return False
        self._sessions.add(session)
        return True

    def closed(self, session: BounceSession) -> None:
        self._sessions.discard(session)

    async def __aenter__(self) -> Self:
        # The library's own log names every address it sees.
        logging.getLogger("mail.log").setLevel(logging.ERROR)
        self._server = await self._listen()
        _log.info("bounces_listening", host=self._options.host, port=self.port, domain=self._options.domain)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop listening and hang up: a report that was not answered will come again."""
        self._is_closing = True
        if self._server is None:
            return
        self._server.close()
        for session in list(self._sessions):
            with contextlib.suppress(OSError, RuntimeError):
                await session.dismiss("421 4.3.2 Closing, please try again later")
        await self._server.wait_closed()
        self._readers.close()

    async def _listen(self) -> asyncio.Server:
        loop = asyncio.get_running_loop()
        host, port = self._options.host, self._options.port
        try:
            if self._listener is not None:
                return await loop.create_server(self._session, sock=self._listener)
            return await loop.create_server(self._session, host, port)
        except OSError as error:
            problem = f"cannot listen on {host}:{port}: {os.strerror(error.errno or 0)}"
            raise SettingInvalid("POSTROOM_BOUNCE_ADDR", problem) from error

    def _session(self) -> BounceSession:
        return BounceSession(self._handler, self._options, self)
