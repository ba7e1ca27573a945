"""A proxy before PostgreSQL that can freeze: open connections stay open and silent, as when a host loses power."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

from postroom.db.url import hosts_of, joined


class FreezingProxy:
    """Forwards bytes to the server of a URL. `freeze` silences open connections; new ones work until `vanish`.

    After `hold` new connections are accepted and stay silent too, until `move` names the server that gets later ones.
    """

    def __init__(self, url: str) -> None:
        self._parts = urlsplit(url)
        first = hosts_of(url)[0]
        self._target = first.name, first.port
        self._is_held = False
        self._open: set[asyncio.Event] = set()  # one per connection, set when it is frozen
        self._tasks: set[asyncio.Task[None]] = set()
        self.made = 0
        self._is_made = asyncio.Event()

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
        login = self._parts.netloc.rpartition("@")[0]
        return joined(self._parts._replace(netloc=f"{login}@127.0.0.1:{port}"))

    def freeze(self) -> int:
        """Silence every open connection; returns their number."""
        for frozen in self._open:
            frozen.set()
        return len(self._open)

    def vanish(self) -> int:
        """Silence every open connection and refuse new ones; returns the number of silent ones."""
        self._server.close()
        return self.freeze()

    def hold(self) -> int:
        """Silence every open connection and every new one; returns the number of open ones."""
        self._is_held = True
        return self.freeze()

    def move(self, host: str, port: int) -> None:
        """Forward new connections to another server; the old ones stay silent."""
        self._is_held, self._target = False, (host, port)

    async def accepted(self, number: int) -> None:
        """Wait until so many connections were made."""
        while self.made < number:
            self._is_made.clear()
            await self._is_made.wait()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.made += 1
        self._is_made.set()
        if self._is_held:
            await _discard(reader)
            writer.close()
            return
        frozen = asyncio.Event()
        self._open.add(frozen)
        server_reader, server_writer = await asyncio.open_connection(*self._target)
        pumps = [
            asyncio.create_task(_pump(reader, server_writer, frozen, when_frozen=_discard)),
            asyncio.create_task(_pump(server_reader, writer, frozen, when_frozen=_hang)),
        ]
        self._tasks.update(pumps)
        await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        self._open.discard(frozen)
        for pump in pumps:
            pump.cancel()
        for end in (writer, server_writer):
            end.close()


async def _pump(
    source: asyncio.StreamReader,
    sink: asyncio.StreamWriter,
    frozen: asyncio.Event,
    *,
    when_frozen: Callable[[asyncio.StreamReader], Awaitable[None]],
) -> None:
    with suppress(ConnectionError):
        while (data := await source.read(65536)) and not frozen.is_set():
            sink.write(data)
            await sink.drain()
    if frozen.is_set():
        await when_frozen(source)


async def _hang(_server: asyncio.StreamReader) -> None:
    """The end of a server that has vanished is not heard."""
    await asyncio.Event().wait()


async def _discard(client: asyncio.StreamReader) -> None:
    """Read without an answer until the client gives up."""
    with suppress(ConnectionError):
        while await client.read(65536):
            pass
