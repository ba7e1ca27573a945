"""SMTP server of the bounce address: it accepts reports only.

It never relays and needs no login: it accepts mail only for return paths with our HMAC and for the addresses of
complaints and postmasters, and only in the bounce domain. It replies 250 after the commit.

Strangers may connect, so everything is limited: connections in total and per network, messages per connection, and the
memory of a message, which is truncated. Reports are read in child processes (`reading`).

A process may serve many rooms; `report_rooms` finds the room of a report.

| reply        | condition                                                                                  |
|--------------|--------------------------------------------------------------------------------------------|
| 250 2.0.0    | read and stored                                                                            |
| 421 4.3.2    | too many connections, in total or from this network                                        |
| 451 4.3.0    | the database is unavailable, or an internal error: retry                                   |
| 452 4.5.3    | too many recipients of a message, or too many messages in a connection                     |
| 550 5.1.1    | an invalid return path, or an unknown address in the bounce domain                         |
| 550 5.7.1    | another domain: no relaying                                                                |
| 552 5.3.4    | larger than a report may be                                                                |
"""

import socket
from collections import defaultdict
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import structlog

from postroom.db.errors import DatabaseError
from postroom.db.faults import is_connection_lost
from postroom.feedback.attribution import Incoming, ReturnPaths
from postroom.feedback.ingest import ingest
from postroom.feedback.reading import ReportReaders
from postroom.feedback.report_rooms import ReportRoom, ReportRooms, find_room, find_signer
from postroom.post.report import LARGEST
from postroom.runtime.peers import network_of
from postroom.runtime.smtp_server import DATABASE_AWAY, MEGABYTE, OUR_FAULT, SmtpConnection, SmtpOptions, SmtpServer

ORIGIN = "smtp"
MAILBOXES = ("postmaster", "abuse", "fbl")
MOST_RECIPIENTS = 100  # RFC 5321 requires at least 100
LARGEST_UNSIGNED = 64 * 1024
"""Bytes of a message for an address that anyone knows; a return path with our HMAC proves that our mail arrived."""
TIMEOUT_S = 120  # seconds of silence; RFC 5321 recommends five minutes, but bounces come from servers that retry
TOO_LARGE = "552 5.3.4 Larger than a report may be"
NO_ADDRESS = "550 5.1.1 There is no such address here"

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerOptions(SmtpOptions):
    """Listening address and bounce domain, with the defaults of the settings."""

    domain: str
    port: int = 2526
    variable: str = "POSTROOM_BOUNCE_ADDR"
    size_limit: int = 20 * MEGABYTE  # some servers return the whole mail with its attachments
    most_connections: int = 100  # fewer than submission has: strangers connect
    most_per_peer: int = 10  # a server that returns many mails uses a few connections
    grace: timedelta = timedelta(0)  # servers send a report again if they get no reply
    most_messages: int = 100  # per connection
    mailboxes: tuple[str, ...] = MAILBOXES


class BounceHandler:
    """The hooks of the server, shared by all its connections."""

    name = "bounces"

    def __init__(self, rooms: ReportRooms, options: ListenerOptions, readers: ReportReaders) -> None:
        self._rooms, self._options, self._readers = rooms, options, readers

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
        try:
            is_signed = find_signer(self._rooms, [address], domain=options.domain) is not None
        except DatabaseError:
            return DATABASE_AWAY
        if not is_signed and local.lower() not in options.mailboxes:
            return NO_ADDRESS
        server.keep(LARGEST if is_signed else LARGEST_UNSIGNED, is_first=not envelope.rcpt_tos)
        envelope.rcpt_tos.append(address)
        return "250 2.1.5 OK"

    async def handle_DATA(self, server: "BounceSession", _session: Any, envelope: Any) -> str:  # noqa: N802 - as above
        server.messages += 1
        if server.is_too_large:
            return TOO_LARGE
        peer = None if server.is_unlimited else network_of(server.peer)
        try:
            found = self._by_room(envelope)
            for room, addresses in found.items():
                message = Incoming(envelope.content, ORIGIN, tuple(addresses), peer)
                paths = ReturnPaths(self._options.domain, room.keys)
                await ingest(room.pool, [message], paths=paths, read=self._readers.read)
        except Exception as error:
            if is_connection_lost(error) or isinstance(error, DatabaseError):
                return DATABASE_AWAY
            raise
        return "250 2.0.0 Thank you" if found else NO_ADDRESS

    def _by_room(self, envelope: Any) -> dict[ReportRoom, list[str]]:
        """The recipients of each room. A report is stored once, however often a server sends it again."""
        found = defaultdict[ReportRoom, list[str]](list)
        for address in envelope.rcpt_tos:
            room = find_room(self._rooms, envelope.content, domain=self._options.domain, to=[address])
            if room is not None:
                found[room].append(address)
        return found

    async def finish(self) -> None:
        """Stop at once: servers send a report again if they get no reply."""

    async def close(self) -> None:
        self._readers.close()

    async def handle_exception(self, error: Exception) -> str:
        _log.error("report_failed", error=type(error).__name__)
        return OUR_FAULT


class BounceSession(SmtpConnection):
    """One connection, which keeps only the beginning of each message: more of it if a recipient is a return path."""

    def __init__(self, handler: BounceHandler, server: SmtpServer) -> None:
        super().__init__(handler, server, kept=LARGEST_UNSIGNED, timeout=TIMEOUT_S)
        self.messages = 0

    def keep(self, size: int, *, is_first: bool) -> None:
        """Keep this many bytes of the next message, or more if an earlier recipient of it needs them."""
        self._kept = size if is_first else max(self._kept, size)


def bounce_server(
    rooms: ReportRooms,
    options: ListenerOptions,
    *,
    listener: socket.socket | None = None,
    readers: ReportReaders | None = None,
) -> SmtpServer:
    options = replace(options, hostname=options.domain)
    handler = BounceHandler(rooms, options, readers or ReportReaders())
    return SmtpServer(handler, options, lambda server: BounceSession(handler, server), listener=listener)
