"""The submission server: listens, counts connections, and stops without losing an answer."""

import asyncio
import contextlib
import logging
import os
import socket
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Self

import structlog

from postroom.delivery.service import AcceptCombiner
from postroom.errors import SettingInvalid
from postroom.intake.smtp.handler import Authenticate, SubmissionHandler
from postroom.intake.smtp.session import SubmissionSession
from postroom.runtime.peers import LOOPBACK, Network, is_within, network_of
from postroom.settings import Settings

MEGABYTE = 1024 * 1024

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmissionOptions:
    """Where and how to listen; the defaults are those of the settings."""

    host: str = "127.0.0.1"
    port: int = 2525
    hostname: str = "postroom.localhost"
    size_limit: int = 35 * MEGABYTE
    tls: ssl.SSLContext | None = None
    implicit: bool = False  # TLS from the first byte (RFC 8314) instead of STARTTLS
    most_connections: int = 500
    most_per_peer: int = 100
    unlimited: Sequence[Network] = LOOPBACK  # peers that may have any number of the connections
    grace: timedelta = timedelta(seconds=25)

    @classmethod
    def of(cls, settings: Settings, *, implicit: bool = False) -> "SubmissionOptions | None":
        """The options that the settings mean, None if submission is off; a useless certificate stops the start."""
        address = settings.smtps_addr if implicit else settings.smtp_addr
        if address is None:
            return None
        tls = load_tls(settings.smtp_tls_cert, settings.smtp_tls_key)
        if implicit and tls is None:
            raise SettingInvalid("POSTROOM_SMTP_TLS_CERT", "is required with POSTROOM_SMTPS_ADDR")
        host, port = address
        return cls(
            host=host,
            port=port,
            hostname=settings.message_domain,
            size_limit=settings.smtp_max_mb * MEGABYTE,
            tls=tls,
            implicit=implicit,
            most_per_peer=settings.connections_per_peer,
            unlimited=(*LOOPBACK, *settings.trusted_proxies),
            grace=settings.shutdown_grace,
        )


def load_tls(certificate: Path | None, key: Path | None) -> ssl.SSLContext | None:
    """What TLS needs; None without a certificate."""
    if certificate is None:
        if key is not None:
            raise SettingInvalid("POSTROOM_SMTP_TLS_CERT", "is required with POSTROOM_SMTP_TLS_KEY")
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise SettingInvalid("POSTROOM_SMTP_TLS_CERT", f"cannot be used: {error}") from error
    return context


class SubmissionServer:
    """Submission on one address, as an async context manager: inside, it listens; at the end, it has finished.

    A `listener` is a socket that already has the address; without one the address is taken when the server is entered.
    """

    def __init__(
        self,
        accepting: AcceptCombiner,
        authenticate: Authenticate,
        options: SubmissionOptions,
        *,
        listener: socket.socket | None = None,
    ) -> None:
        self._options, self._listener = options, listener
        self._handler = SubmissionHandler(accepting, authenticate)
        self._sessions: set[SubmissionSession] = set()
        self._server: asyncio.Server | None = None
        self._is_closing = False

    @property
    def port(self) -> int:
        """The port it listens on, chosen by the system if 0 was asked for."""
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    async def __aenter__(self) -> Self:
        # The library's own log names every address it sees.
        logging.getLogger("mail.log").setLevel(logging.ERROR)
        self._server = await self._listen()
        tls = "none" if self._options.tls is None else "implicit" if self._options.implicit else "starttls"
        _log.info("submission_listening", host=self._options.host, port=self.port, tls=tls)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop listening, finish what is being accepted, say goodbye to the others."""
        self._is_closing = True
        if self._server is not None:
            self._server.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._options.grace.total_seconds()):
                await self._handler.idle.wait()
        for session in list(self._sessions):
            with contextlib.suppress(OSError, RuntimeError):
                await session.dismiss("421 4.3.2 Closing, please try again later")
        if self._server is not None:
            await self._server.wait_closed()

    async def _listen(self) -> asyncio.Server:
        loop = asyncio.get_running_loop()
        host, port = self._options.host, self._options.port
        tls = self._options.tls if self._options.implicit else None
        try:
            if self._listener is not None:
                return await loop.create_server(self._session, sock=self._listener, ssl=tls)
            return await loop.create_server(self._session, host, port, ssl=tls)
        except OSError as error:
            variable = "POSTROOM_SMTPS_ADDR" if self._options.implicit else "POSTROOM_SMTP_ADDR"
            problem = f"cannot listen on {host}:{port}: {os.strerror(error.errno or 0)}"
            raise SettingInvalid(variable, problem) from error

    def _session(self) -> SubmissionSession:
        return SubmissionSession(
            self._handler,
            hostname=self._options.hostname,
            size_limit=self._options.size_limit,
            tls=None if self._options.implicit else self._options.tls,
            opened=self._opened,
            closed=self._sessions.discard,
        )

    def _opened(self, session: SubmissionSession) -> str | None:
        """Count the session, or say why there is no room for it."""
        if self._is_closing or len(self._sessions) >= self._options.most_connections:
            return "421 4.3.2 Too many connections, please try again later"
        peer = network_of(session.peer)
        others = sum(network_of(each.peer) == peer for each in self._sessions)
        if others >= self._options.most_per_peer and not is_within(session.peer, self._options.unlimited):
            return "421 4.7.0 Too many connections from this address, please close some first"
        self._sessions.add(session)
        return None
