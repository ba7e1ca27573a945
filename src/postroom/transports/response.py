"""An HTTP response that keeps its peer for the ledger; used by every HTTP transport."""

from typing import Self

import aiohttp
from aiohttp.connector import Connection


class KnownResponse(aiohttp.ClientResponse):
    """Keeps the peer and the TLS version: when the response is read, the connection may be closed."""

    peer: str | None = None
    tls_version: str | None = None

    async def start(self, connection: Connection) -> Self:
        if connection.transport is not None:
            peer = connection.transport.get_extra_info("peername")
            tls = connection.transport.get_extra_info("ssl_object")
            self.peer = peer[0] if peer else None
            self.tls_version = tls.version() if tls is not None else None
        await super().start(connection)
        return self
