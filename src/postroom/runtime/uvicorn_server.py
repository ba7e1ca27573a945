"""HTTP by uvicorn without its signal handlers: `serve` ends when its event is set.

`bind` takes the address before anything else starts; `serve` begins to listen. In between, connections of clients are
refused and do not hang.
"""

import asyncio
import errno
import math
import socket
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any

import uvicorn

from postroom.errors import SettingInvalid
from postroom.runtime.http_connection import HttpLimits, LimitedConfig, LimitedConnection
from postroom.runtime.peers import local_url

KEEP_ALIVE_S = 75  # longer than the idle timeout of common load balancers (60 s), which must close first
_TICKS_PER_S = 10  # as uvicorn itself


def bind(address: tuple[str, int], *, variable: str = "POSTROOM_HTTP_ADDR") -> socket.socket:
    """Bind an address without listening. Raises `SettingInvalid` with the variable of the address."""
    host, port = address
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise _refused(address, error, variable) from error
    listener.settimeout(0)
    return listener


def url_of(listener: socket.socket) -> str:
    """The URL of the listener on this machine."""
    return local_url(*listener.getsockname()[:2])


async def serve(
    app: Any,
    listener: socket.socket,
    stop: asyncio.Event,
    *,
    grace: timedelta,
    on_ready: Callable[[], None],
    limits: HttpLimits | None = None,
) -> None:
    """Serve until `stop` is set; then accept no connection and finish running requests."""
    config = LimitedConfig(
        app,
        limits or HttpLimits(),
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,  # POSTROOM_TRUSTED_PROXIES decides which proxies are trusted
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=max(1, math.floor(grace.total_seconds())),
    )
    server = _Server(config, on_ready)
    stopping = asyncio.create_task(_stop_when_set(server, stop), name="http-stop")
    try:
        await server.serve(sockets=[listener])
    except OSError as error:
        # Two processes may both have bound the address before either listened: the second one fails here.
        raise _refused(listener.getsockname()[:2], error, "POSTROOM_HTTP_ADDR") from error
    finally:
        stopping.cancel()
        with suppress(asyncio.CancelledError):
            await stopping


class _Server(uvicorn.Server):
    """A server that installs no signal handlers and reports when it listens."""

    def __init__(self, config: uvicorn.Config, on_ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_ready = on_ready

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield

    async def on_tick(self, counter: int) -> bool:
        if counter % _TICKS_PER_S == 0:
            now = asyncio.get_running_loop().time()
            for connection in list(self.server_state.connections):
                assert isinstance(connection, LimitedConnection)
                connection.check(now)
        return await super().on_tick(counter)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._on_ready()


async def _stop_when_set(server: uvicorn.Server, stop: asyncio.Event) -> None:
    await stop.wait()
    server.should_exit = True


def _refused(address: tuple[str, int], error: OSError, variable: str) -> SettingInvalid:
    shown = f"{address[0]}:{address[1]}"
    if error.errno == errno.EADDRINUSE:
        return SettingInvalid(variable, f"{shown} is in use by another process; stop it or choose another address")
    return SettingInvalid(variable, f"{shown} cannot be listened on: {error.strerror or error}")
