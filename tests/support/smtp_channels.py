"""The three ways to a relay: plain, STARTTLS and implicit TLS, with a certificate that is verified.

for channel in CHANNELS: async with channel_to(channel, Script()) as (server, transport): ...
"""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import trustme
import uvloop
from tests.support.smtp_server import Script, Server, smtp_server, transport_to

from postroom.transports.smtp import SmtpRelay, SmtpTransport
from postroom.transports.smtp.relay import TlsMode

CHANNELS: dict[str, TlsMode] = {"plain": "none", "STARTTLS": "starttls", "implicit TLS": "implicit"}

Run = Callable[[Coroutine[Any, Any, Any]], Any]
LOOPS: dict[str, Run] = {"asyncio": asyncio.run, "uvloop": uvloop.run}


@dataclass(frozen=True)
class Authority:
    """A certificate authority."""

    file: Path
    authority: trustme.CA

    def server_context(self, *names: str) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.authority.issue_cert(*names).configure_cert(context)
        return context


@cache
def authority() -> Authority:
    """The authority of this process."""
    made = trustme.CA()
    file = Path(mkdtemp(prefix="postroom-authority-")) / "ca.pem"
    made.cert_pem.write_to_path(str(file))
    return Authority(file, made)


@cache
def loopback_context() -> ssl.SSLContext:
    """The server's side of TLS on loopback."""
    return authority().server_context("127.0.0.1")


@contextlib.asynccontextmanager
async def channel_to(
    tls: TlsMode, script: Script | None = None, **options: Any
) -> AsyncIterator[tuple[Server, SmtpTransport]]:
    """A server with this script and a transport to it over one of the channels."""
    script = script or Script()
    if tls != "none":
        script = replace(script, tls=script.tls or loopback_context(), implicit_tls=tls == "implicit")
    async with smtp_server(script) as server:
        relay = SmtpRelay("127.0.0.1", server.port, tls=tls, ca_file=None if tls == "none" else authority().file)
        async with transport_to(server, relay=relay, **options) as transport:
            yield server, transport
