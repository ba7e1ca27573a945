"""Open connections to PostgreSQL.

A host that loses power, or an address that moves, leaves connections open without any response. So every connection
has timeouts: the kernel probes the peer (keepalive, TCP_USER_TIMEOUT), a pooled connection limits each statement, and
neither a cancelled statement nor closing waits longer than `END_S`.

Each new connection reads the URL again and tries its hosts in order, beginning with the one that worked last.
"""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable
from typing import Any, TypeAlias

import asyncpg

from postroom.db.url import READ_WRITE, VERIFY_FULL, Host, hosts_of, parameters_of, tls_context, tls_mode
from postroom.errors import SettingInvalid

Url: TypeAlias = str | Callable[[], str]
"""A URL, or a function that returns the current one: the embedded server may restart on another port."""

CONNECT_S = 10.0  # to one host, with TLS and login; a host that drops packets must not delay the next one for long
END_S = 5.0  # long enough to cancel over a slow network; longer delays the end of a process
DEAD_AFTER_S = 30  # longer than a failover of a network, shorter than a person waits

_TCP_OPTIONS = {
    "TCP_KEEPIDLE": 15,
    "TCP_KEEPINTVL": 5,
    "TCP_KEEPCNT": 3,
    "TCP_USER_TIMEOUT": DEAD_AFTER_S * 1000,  # milliseconds; covers data that the peer never acknowledged
}


def current(url: Url) -> str:
    return url if isinstance(url, str) else url()


class PostgresConnection(asyncpg.Connection):  # type: ignore[misc]  # the driver is shipped without type information
    """A connection on which neither a cancelled statement nor closing can hang."""

    __slots__ = ()

    def __init__(self, protocol: Any, transport: Any, *others: Any) -> None:
        super().__init__(protocol, transport, *others)
        _watch_peer(transport.get_extra_info("socket"))

    async def close(self, *, timeout: float | None = None) -> None:  # noqa: ASYNC109 - the driver's signature
        with contextlib.suppress(TimeoutError):  # the driver has already dropped the connection
            await super().close(timeout=END_S if timeout is None else timeout)

    async def _cancel(self, *waiters: Any) -> None:
        """Wait at most `END_S` for a cancelled statement, instead of the statement's timeout."""
        async with asyncio.timeout(END_S) as limit:
            await super()._cancel(*waiters)
        if limit.expired() and not self.is_closed():
            self.terminate()


class Connector:
    """Opens one connection per call. Calls raise the driver's errors."""

    def __init__(self, url: Url, *, options: dict[str, Any]) -> None:
        self._url, self._options = url, options
        self._last: Host | None = None

    @property
    def url(self) -> str:
        return current(self._url)

    async def __call__(self, *_: Any, **more: Any) -> PostgresConnection:
        url = self.url
        try:
            hosts = hosts_of(url)
        except ValueError as error:
            raise SettingInvalid("POSTROOM_DATABASE_URL", f"is not a URL of PostgreSQL: {error}") from error
        options = {"dsn": url, "timeout": CONNECT_S, **self._options, **more, "connection_class": PostgresConnection}
        if not hosts:
            made: PostgresConnection = await asyncpg.connect(**options)
            return made
        if len(hosts) > 1 and "target_session_attrs" not in parameters_of(url):
            options["target_session_attrs"] = READ_WRITE
        return await self._first_of(url, hosts, options)

    async def _first_of(self, url: str, hosts: list[Host], options: dict[str, Any]) -> PostgresConnection:
        failures: list[str] = []
        for host in sorted(hosts, key=lambda host: host != self._last):
            try:
                made: PostgresConnection = await asyncpg.connect(
                    host=host.name, port=host.port, ssl=_tls(url, host), **options
                )
            except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError) as error:
                if len(hosts) == 1:
                    raise
                failures.append(f"{host}: {reason_of(error)}")
            else:
                self._last = host
                return made
        raise ConnectionError("; ".join(failures))


def reason_of(error: Exception) -> str:
    """The reason as text, with the remedy for TLS and poolers."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"its TLS certificate cannot be verified ({error.verify_message}). Add sslrootcert=/path/to/ca.pem to "
            f"POSTROOM_DATABASE_URL for a private certificate authority, or sslmode=require to encrypt without "
            f"verifying the server"
        )
    if "rejected SSL upgrade" in str(error):
        return (
            "it does not offer TLS, and a database that is not on this host is reached by verified TLS unless "
            "POSTROOM_DATABASE_URL says otherwise. Enable TLS there, or add sslmode=disable to the URL if the network "
            "is trusted"
        )
    if isinstance(error, asyncpg.TargetServerAttributeNotMatched):
        return "it is read-only"
    if isinstance(error, asyncpg.ProtocolViolationError) and "startup parameter" in str(error):
        return (
            f"{error}. It is a pooler such as PgBouncer: set POSTROOM_DATABASE_DIRECT_URL to the URL of PostgreSQL "
            f"itself, beside POSTROOM_DATABASE_URL"
        )
    return str(error) or f"timed out after {CONNECT_S:g} s"


def _tls(url: str, host: Host) -> ssl.SSLContext | str | None:
    """The driver's ssl argument; verify-full gets our own context, because the driver's lacks the system's CAs."""
    mode = tls_mode(url, host)
    if mode != VERIFY_FULL:
        return mode
    try:
        return tls_context(url)
    except OSError as error:
        raise SettingInvalid("POSTROOM_DATABASE_URL", f"sslrootcert or sslcert cannot be read: {error}") from error


def _watch_peer(made: Any) -> None:
    """Let the kernel end a connection whose peer is gone."""
    if made is None or made.family == socket.AF_UNIX:
        return
    # uvloop's socket cannot be configured; a duplicate of its descriptor is the same socket.
    with contextlib.suppress(OSError), socket.fromfd(made.fileno(), made.family, made.type) as same:
        same.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _TCP_OPTIONS.items():
            if hasattr(socket, name):
                same.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
