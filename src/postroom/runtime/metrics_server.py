"""Metrics of processes without another HTTP server: workers.

Several workers of one host share one setting: the first takes the port, each other one the next free port above.
"""

import errno
from collections.abc import Iterator
from contextlib import contextmanager

import structlog
from prometheus_client import start_http_server

from postroom.errors import SettingInvalid
from postroom.runtime.metrics import REGISTRY

PORTS = 64  # one per process of a supervisor on this host

_log = structlog.get_logger()


@contextmanager
def metrics_served(address: tuple[str, int] | None) -> Iterator[str | None]:
    """Serve `GET /metrics` while the block runs; yields the address. None serves nothing."""
    if address is None:
        yield None
        return
    host, first = address
    server, thread, port = _start(host, first)
    _log.info("metrics_served", address=f"{host}:{port}")
    try:
        yield f"{host}:{port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _start(host: str, first: int):  # type: ignore[no-untyped-def] # noqa: ANN202 - the library's own types are private
    for port in range(first, min(first + PORTS, 65536)):
        try:
            return *start_http_server(port, host, registry=REGISTRY), port
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise SettingInvalid("POSTROOM_METRICS_ADDR", f"{host}:{port}: {error.strerror}") from error
    raise SettingInvalid("POSTROOM_METRICS_ADDR", f"{PORTS} ports from {host}:{first} on are in use")
