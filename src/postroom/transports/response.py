"""An HTTP answer that remembers who gave it, for the ledger; shared by every transport that speaks HTTP."""

from typing import Self

import aiohttp
from aiohttp.connector import Connection


class KnownResponse(aiohttp.ClientResponse):
    """Keeps the peer and the TLS version: by the time the answer can be read, the connection may be gone."""

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
