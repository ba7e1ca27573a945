"""An SMTP server: listens, limits connections in total and per peer, and sends every reply before it stops.

`SmtpServer` is shared; a handler decides about mail. The bounce address (`postroom.feedback.listener`) and mail
submission (`postroom.intake.smtp`) are two handlers, each with its own connection class.
"""

import asyncio
import contextlib
import logging
import os
import socket
import ssl
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol, Self

import structlog
from aiosmtpd.smtp import SMTP

from postroom.errors import SettingInvalid
from postroom.runtime.peers import LOOPBACK, Network, is_within, network_of

COMMAND_LIMIT = 2048  # more than the 512 of RFC 5321, because extensions such as XOAUTH2 have longer lines
CRLF, END_OF_DATA = b"\r\n", b"\r\n.\r\n"
LONGEST_ANSWER = 510  # RFC 5321 allows 512 octets with the end of the line
DATABASE_AWAY = "451 4.3.0 The database does not answer, please try again later"
OUR_FAULT = "451 4.3.0 Something went wrong here, please try again later"

_log = structlog.get_logger()


MEGABYTE = 1024 * 1024  # bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class SmtpOptions:
    """The address and the limits of a server, with the defaults of submission."""

    host: str = "127.0.0.1"
    port: int = 2525
    variable: str = "POSTROOM_SMTP_ADDR"  # the setting of the address, named in errors
    hostname: str = "postroom.localhost"
    size_limit: int = 35 * MEGABYTE  # attachments of 25 MB in base64
    tls: ssl.SSLContext | None = None
    implicit: bool = False  # TLS from the first byte (RFC 8314) instead of STARTTLS
    most_connections: int = 500  # leaves room for the database below the 1024 descriptors of many systems
    most_per_peer: int = 100  # one address cannot occupy all of them
    unlimited: Sequence[Network] = LOOPBACK  # peers without the limit per peer, such as a relay on this host
    grace: timedelta = timedelta(seconds=25)  # for messages being accepted when the server stops


class SmtpHandler(Protocol):
    """The hooks of aiosmtpd, shared by all connections, and two more."""

    name: str  # in log events: <name>_listening

    async def finish(self) -> None:
        """Wait until every message being accepted has its reply."""

    async def close(self) -> None:
        """Release the handler's resources; all connections are closed."""


class SmtpConnection(SMTP):
    """One connection. `rules` are aiosmtpd's: the timeout, and whether a client must authenticate."""

    # RFC 5321 allows 1000 octets; programs that write HTML in one line exceed it, and reports quote such mail. An
    # unknown client can occupy this much memory, so the limit is not larger.
    line_length_limit = 64 * 1024

    def __init__(self, handler: SmtpHandler, server: "SmtpServer", *, kept: int | None = None, **rules: Any) -> None:
        options = server.options
        super().__init__(
            handler,
            data_size_limit=options.size_limit,
            enable_SMTPUTF8=True,
            hostname=options.hostname,
            ident="Postroom",
            tls_context=None if options.implicit else options.tls,
            loop=asyncio.get_running_loop(),
            **rules,
        )
        self._server = server
        self._size_limit, self._kept = options.size_limit, kept or options.size_limit
        self._received = 0  # bytes of the last message
        # aiosmtpd keeps these in the class, where connections would share them.
        self.command_size_limits = defaultdict(lambda: COMMAND_LIMIT)
        self.peer = ""  # the address of the client; empty on a Unix socket

    @property
    def is_too_large(self) -> bool:
        """True if the last message exceeded the size limit."""
        return self._received > self._size_limit

    @property
    def is_unlimited(self) -> bool:
        return is_within(self.peer, self._server.options.unlimited)

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        peer = transport.get_extra_info("peername")
        self.peer = str(peer[0]) if isinstance(peer, tuple) and peer else ""

    async def _handle_client(self) -> None:
        if (refusal := self._server.add(self)) is not None:
            await self.dismiss(refusal)
            return
        try:
            await super()._handle_client()
        finally:
            self._server.remove(self)

    async def dismiss(self, answer: str) -> None:
        """Send a last reply and close the connection."""
        if self.transport is not None:
            await self.push(answer)
            self.transport.close()

    async def smtp_DATA(self, arg: str | None) -> None:  # noqa: N802 - the command's name
        """Read in large chunks: with aiosmtpd's line by line, 60,000 empty lines blocked the event loop for 99 ms."""
        if await self.check_helo_needed() or await self.check_auth_needed("DATA"):
            return
        envelope: Any = self.envelope
        if arg:
            await self.push("501 5.5.4 Syntax: DATA")
        elif not envelope.rcpt_tos:
            await self.push("503 5.5.1 No recipient was accepted")
        else:
            await self.push("354 End data with <CR><LF>.<CR><LF>")
            envelope.content = await self._read_message()
            answer = await self.event_handler.handle_DATA(self, self.session, envelope)
            self.envelope = self._create_envelope()
            await self.push(answer)

    async def _read_message(self) -> bytes:
        """The message up to the end of data; only the first `kept` bytes of a long one."""
        # Only CRLF.CRLF ends the data: accepting a bare newline would allow SMTP smuggling. Its first CRLF may be the
        # one that ended the DATA command, so that one is put back.
        reader: Any = self._reader
        reader._buffer[:0] = CRLF  # noqa: SLF001 - StreamReader has no public way to put bytes back
        pieces: list[bytes] = []
        size, is_complete = 0, False
        while not is_complete:
            try:
                piece = await reader.readuntil(END_OF_DATA)
                is_complete = True
            except asyncio.LimitOverrunError as more:
                piece = await reader.readexactly(more.consumed)
            self._reset_timeout()
            if size <= self._kept:
                pieces.append(piece)
            size += len(piece)
        self._received = size - len(END_OF_DATA)
        # Remove the dot that the client added to each line that begins with one.
        whole = b"".join(pieces)[: len(CRLF) + self._received]
        return whole.replace(b"\r\n.", CRLF)[len(CRLF) :][: self._kept]

    async def push(self, status: Any) -> None:
        # aiosmtpd's replies to large messages, with the enhanced status code.
        if isinstance(status, str) and status.startswith("552 Error:"):
            status = status.replace("552 Error:", "552 5.3.4", 1)
        if isinstance(status, str) and len(octets := status.encode("utf-8", "replace")) > LONGEST_ANSWER:
            status = octets[:LONGEST_ANSWER].decode("utf-8", "ignore")
        await super().push(status)


class SmtpServer:
    """A server on one address, as an async context manager that listens while it is entered.

    A `listener` is a socket that is already bound; without one the address is bound on entry.
    """

    def __init__(
        self,
        handler: SmtpHandler,
        options: SmtpOptions,
        connect: Callable[["SmtpServer"], SmtpConnection],
        *,
        listener: socket.socket | None = None,
    ) -> None:
        self.options = options
        self._handler, self._connect_with, self._listener = handler, connect, listener
        self._connections: set[SmtpConnection] = set()
        self._server: asyncio.Server | None = None
        self._is_closing = False

    @property
    def port(self) -> int:
        """The port of the listener, also when 0 was requested."""
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    def add(self, connection: SmtpConnection) -> str | None:
        """Count a connection, or return the reply that rejects it."""
        if self._is_closing or len(self._connections) >= self.options.most_connections:
            return "421 4.3.2 Too many connections, please try again later"
        peer = network_of(connection.peer)
        others = sum(network_of(each.peer) == peer for each in self._connections)
        if others >= self.options.most_per_peer and not connection.is_unlimited:
            return "421 4.7.0 Too many connections from this address, please close some first"
        self._connections.add(connection)
        return None

    def remove(self, connection: SmtpConnection) -> None:
        self._connections.discard(connection)

    async def __aenter__(self) -> Self:
        logging.getLogger("mail.log").setLevel(logging.ERROR)  # aiosmtpd logs every address it sees
        self._server = await self._listen()
        tls = "none" if self.options.tls is None else "implicit" if self.options.implicit else "starttls"
        _log.info(f"{self._handler.name}_listening", host=self.options.host, port=self.port, tls=tls)
        return self

    async def __aexit__(self, *_error: object) -> None:
        """Stop listening, finish messages being accepted, and close all connections."""
        self._is_closing = True
        if self._server is not None:
            self._server.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.options.grace.total_seconds()):
                await self._handler.finish()
        for connection in list(self._connections):
            with contextlib.suppress(OSError, RuntimeError):
                await connection.dismiss("421 4.3.2 Closing, please try again later")
        if self._server is not None:
            await self._server.wait_closed()
        await self._handler.close()

    async def _listen(self) -> asyncio.Server:
        loop = asyncio.get_running_loop()
        host, port = self.options.host, self.options.port
        tls = self.options.tls if self.options.implicit else None
        try:
            if self._listener is not None:
                return await loop.create_server(self._connect, sock=self._listener, ssl=tls)
            return await loop.create_server(self._connect, host, port, ssl=tls)
        except OSError as error:
            problem = f"cannot listen on {host}:{port}: {os.strerror(error.errno or 0)}"
            raise SettingInvalid(self.options.variable, problem) from error

    def _connect(self) -> SmtpConnection:
        return self._connect_with(self)
