"""Both clients behind one interface, so that a test is written once; and a proxy that loses responses."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from typing import Any
from urllib.parse import urlsplit

import postroom
from postroom.client.calls import BlockingPages
from postroom.sync import Client as BlockingClient


class EitherClient:
    """A client. `await either(use)` awaits the result of `use(client)`; a listing or download becomes a list."""

    def __init__(self, client: Any) -> None:
        self.client = client

    async def __call__(self, use: Callable[[Any], Any]) -> Any:
        if isinstance(self.client, BlockingClient):
            return await asyncio.to_thread(lambda: _finished(use(self.client)))
        found = use(self.client)
        if hasattr(found, "__aiter__"):
            return [item async for item in found]
        return await found


def _finished(found: Any) -> Any:
    return list(found) if isinstance(found, BlockingPages | Iterator) else found


@asynccontextmanager
async def open_either(kind: str, url: str, key: str, **options: Any) -> AsyncIterator[EitherClient]:
    """The client for `async` or `sync` code; it repeats requests without a pause."""
    options = {"timeout_s": 60, "backoff_s": 0, **options}
    if kind == "sync":
        with BlockingClient(url, key, **options) as blocking:
            yield EitherClient(blocking)
    else:
        async with postroom.Client(url, key, **options) as client:
            yield EitherClient(client)


@asynccontextmanager
async def losing_responses(url: str, count: int) -> AsyncIterator[str]:
    """A proxy that closes the first `count` connections when the server has responded, without the response."""
    target = urlsplit(url)
    lost = 0

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal lost
        is_lost = lost < count
        lost += 1
        upstream_reader, upstream_writer = await asyncio.open_connection(target.hostname, target.port)
        sending = asyncio.create_task(_pipe(reader, upstream_writer))
        if is_lost:
            await upstream_reader.read(1)
            writer.transport.abort()
        else:
            await _pipe(upstream_reader, writer)
        sending.cancel()
        upstream_writer.transport.abort()

    async with await asyncio.start_server(forward, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def _pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while piece := await reader.read(65536):
            writer.write(piece)
            await writer.drain()
        writer.close()
