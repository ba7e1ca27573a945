"""A TLS proxy for PostgreSQL: it terminates TLS and forwards plain bytes to the test server.

The PostgreSQL of the tests is built without TLS.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit

SSL_REQUEST = b"\x00\x00\x00\x08\x04\xd2\x16\x2f"


@asynccontextmanager
async def tls_postgres(url: str, tls: ssl.SSLContext | None) -> AsyncIterator[int]:
    """The port of a server with this certificate; without one it rejects TLS, as PostgreSQL with ssl = off does."""
    parts, tasks = urlsplit(url), set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(asyncio.current_task())
        with suppress(ConnectionError, asyncio.IncompleteReadError, ssl.SSLError):
            assert await reader.readexactly(8) == SSL_REQUEST
            writer.write(b"N" if tls is None else b"S")
            await writer.drain()
            if tls is not None:
                await writer.start_tls(tls)
            server_reader, server_writer = await asyncio.open_connection(parts.hostname, parts.port)
            pumps = (_pump(reader, server_writer), _pump(server_reader, writer))
            await asyncio.gather(*pumps)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in tasks:
            if task is not None:
                task.cancel()
        await asyncio.gather(*(task for task in tasks if task is not None), return_exceptions=True)


async def _pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError, ssl.SSLError):
        while data := await source.read(65536):
            sink.write(data)
            await sink.drain()
    sink.close()
