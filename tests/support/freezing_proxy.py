"""A proxy before PostgreSQL that can freeze: open connections stay open and silent, as when a host loses power."""

import asyncio
from contextlib import suppress
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

from postroom.db.url import joined


class FreezingProxy:
    """Forwards bytes to the server of a URL. `freeze` silences open connections; new ones work until `vanish`."""

    def __init__(self, url: str) -> None:
        self._parts = urlsplit(url)
        self._open: set[asyncio.Event] = set()  # one per connection, set when it is frozen
        self._tasks: set[asyncio.Task[None]] = set()
        self.made = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def url(self) -> str:
        port = self._server.sockets[0].getsockname()[1]
        return joined(self._parts._replace(netloc=f"{self._parts.netloc.rpartition(':')[0]}:{port}"))

    def freeze(self) -> int:
        """Silence every open connection; returns their number."""
        for frozen in self._open:
            frozen.set()
        return len(self._open)

    def vanish(self) -> int:
        """Silence every open connection and refuse new ones; returns the number of silent ones."""
        self._server.close()
        return self.freeze()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.made += 1
        frozen = asyncio.Event()
        self._open.add(frozen)
        server_reader, server_writer = await asyncio.open_connection(self._parts.hostname, self._parts.port)
        both = [(reader, server_writer), (server_reader, writer)]
        pumps = [asyncio.create_task(_pump(*pair, frozen)) for pair in both]
        self._tasks.update(pumps)
        await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        self._open.discard(frozen)
        for pump in pumps:
            pump.cancel()
        for end in (writer, server_writer):
            end.close()


async def _pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter, frozen: asyncio.Event) -> None:
    with suppress(ConnectionError):
        while data := await source.read(65536):
            if frozen.is_set():
                await asyncio.Event().wait()
            sink.write(data)
            await sink.drain()
