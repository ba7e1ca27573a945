"""Open connections to PostgreSQL.

A host that loses power, or an address that moves, leaves connections open without any response. So every connection
has timeouts: the kernel probes the peer (keepalive, TCP_USER_TIMEOUT), a pooled connection limits each statement, and
neither a cancelled statement nor closing waits longer than `END_S`.

Each new connection reads the URL again and tries its hosts in order, beginning with the one that worked last. A host
that has not responded after `NEXT_HOST_S` does not delay the next one: the first that accepts the connection is used.
"""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary, WeakSet

import asyncpg

from postroom.db.iam import make_token, uses_iam, without_auth
from postroom.db.url import READ_WRITE, VERIFY_FULL, Host, hosts_of, parameters_of, tls_context, tls_mode
from postroom.errors import SettingInvalid
from postroom.runtime.loop import is_stopped_before

Url: TypeAlias = str | Callable[[], str]
"""A URL, or a function that returns the current one: the embedded server may restart on another port."""

CONNECT_S = 10.0  # to one host, with TLS and login; a host that drops packets must not delay the next one for long
NEXT_HOST_S = 1.0  # longer than a login takes; then the next host of the URL is tried at the same time
END_S = 5.0  # long enough to cancel over a slow network; longer delays the end of a process
DEAD_AFTER_S = 30  # longer than a failover of a network, shorter than a person waits

TCP_OPTIONS = {
    "TCP_KEEPIDLE": 15,
    "TCP_KEEPINTVL": 5,
    "TCP_KEEPCNT": 3,
    "TCP_USER_TIMEOUT": DEAD_AFTER_S * 1000,  # milliseconds; covers data that the peer never acknowledged
}


def current(url: Url) -> str:
    return url if isinstance(url, str) else url()


class PostgresConnection(asyncpg.Connection):  # type: ignore[misc]  # the driver is shipped without type information
    """A connection on which neither a cancelled statement nor closing can hang.

    `on_drop` is called when the connection is dropped instead of closed, because its server did not respond.
    """

    __slots__ = ("on_drop",)

    def __init__(self, protocol: Any, transport: Any, *others: Any) -> None:
        super().__init__(protocol, transport, *others)
        self.on_drop: Callable[[], None] | None = None
        _watch_peer(transport.get_extra_info("socket"))

    def terminate(self) -> None:
        super().terminate()
        if self.on_drop is not None:
            self.on_drop()

    async def close(self, *, timeout: float | None = None) -> None:  # noqa: ASYNC109 - the driver's signature
        with contextlib.suppress(TimeoutError):  # the driver has already dropped the connection
            await super().close(timeout=END_S if timeout is None else timeout)

    async def _cancel(self, *waiters: Any) -> None:
        """Wait at most `END_S` for a cancelled statement, instead of the statement's timeout."""
        async with asyncio.timeout(END_S) as limit:
            await super()._cancel(*waiters)
        if limit.expired() and not self.is_closed():
            self.terminate()


_NOT_MADE = (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)


class Connector:
    """Opens one connection per call. Calls raise the driver's errors."""

    def __init__(
        self, url: Url, *, options: dict[str, Any], connection: type[PostgresConnection] = PostgresConnection
    ) -> None:
        self._url, self._options = url, {**options, "connection_class": connection}
        self._last: Host | None = None
        self._made: WeakKeyDictionary[PostgresConnection, tuple[Host | None, float]] = WeakKeyDictionary()
        self._left = asyncio.Event()  # set when the server is gone to which attempts may still be made
        self._beside: WeakSet[Connector] = WeakSet()

    @property
    def url(self) -> str:
        return current(self._url)

    async def __call__(self, *_: Any, **more: Any) -> PostgresConnection:
        while True:
            trying = asyncio.create_task(self._connect(more))
            is_used = False
            try:
                if not await is_stopped_before(trying, self._left):
                    is_used = True
                    return trying.result()
            finally:
                if not is_used:  # it may have ended at the moment at which it, or this call, was cancelled
                    trying.add_done_callback(_discard)

    def leave(self, before: float | None) -> int:
        """Close every connection to a host that is not the last one that worked, and those made before this time.

        With a time, attempts begin again: an old one may still wait for a server that is gone. Returns the number of
        closed connections.
        """
        old = [made for made, (host, at) in self._made.items() if host != self._last or at < (before or 0)]
        closed = [made for made in old if not made.is_closed()]
        for made in closed:
            made.terminate()
        if before is not None:
            self._left.set()
            self._left = asyncio.Event()
        return len(closed) + sum(other.leave(before) for other in tuple(self._beside))

    def beside(self, options: dict[str, Any]) -> "Connector":
        """Another connector to the same URL, which leaves a server together with this one."""
        other = Connector(self._url, options=options)
        self._beside.add(other)
        return other

    async def _connect(self, more: dict[str, Any]) -> PostgresConnection:
        url = self.url
        try:
            hosts = hosts_of(url)
        except ValueError as error:
            raise SettingInvalid("POSTROOM_DATABASE_URL", f"is not a URL of PostgreSQL: {error}") from error
        options = {"dsn": url, "timeout": CONNECT_S, **more, **self._options}
        if not hosts and not uses_iam(url):
            return self._use(await asyncpg.connect(**options), None)
        if len(hosts) == 1:
            return self._use(await _open(url, hosts[0], options), hosts[0])
        if "target_session_attrs" not in parameters_of(url):
            options["target_session_attrs"] = READ_WRITE
        return await self._first_of(url, hosts, options)

    async def _first_of(self, url: str, hosts: list[Host], options: dict[str, Any]) -> PostgresConnection:
        """Begin with one host, and with the next when one fails or is slow; returns the first connection."""
        waiting = sorted(hosts, key=lambda host: host != self._last)
        trying: dict[asyncio.Task[PostgresConnection], Host] = {}
        failures: list[str] = []
        try:
            while waiting or trying:
                if waiting:
                    host = waiting.pop(0)
                    trying[asyncio.create_task(_open(url, host, options))] = host
                limit_s = NEXT_HOST_S if waiting else None
                done, _ = await asyncio.wait(trying, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    if (failure := _failure_of(task)) is None:
                        return self._use(task.result(), trying.pop(task))
                    failures.append(f"{trying.pop(task)}: {failure}")
        finally:
            for task in trying:
                task.cancel()
                task.add_done_callback(_discard)
        raise ConnectionError("; ".join(failures))

    def _use(self, made: PostgresConnection, host: Host | None) -> PostgresConnection:
        self._last = host
        self._made[made] = host, asyncio.get_running_loop().time()
        return made


async def _open(url: str, host: Host, options: dict[str, Any]) -> PostgresConnection:
    if uses_iam(url):
        options = {**options, "dsn": without_auth(url), "password": partial(make_token, url, host)}
        url = options["dsn"]
    made: PostgresConnection = await asyncpg.connect(host=host.name, port=host.port, ssl=_tls(url, host), **options)
    return made


def _failure_of(task: "asyncio.Task[PostgresConnection]") -> str | None:
    """Why a host did not accept the connection; None if it did. Raises other errors."""
    error = task.exception()
    if isinstance(error, _NOT_MADE):
        return reason_of(error)
    if error is not None:
        raise error
    return None


def _discard(task: "asyncio.Task[PostgresConnection]") -> None:
    """Close the connection of an attempt that is no longer wanted."""
    if not task.cancelled() and task.exception() is None:
        task.result().terminate()


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
        return "it is not a replica" if "standby" in str(error) else "it is read-only"
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
        for name, value in TCP_OPTIONS.items():
            if hasattr(socket, name):
                same.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
