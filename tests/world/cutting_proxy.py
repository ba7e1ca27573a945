"""A TCP proxy on loopback that cuts a connection at a chosen byte of one direction, for both sides.

async with cutting_proxy(server.port, Cut(Way.UP, 1200)) as proxy:
...                       # connect to proxy.port
proxy.passed              # the bytes of each direction after every chunk: the points where it may cut next time
"""

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from enum import Enum

CHUNK = 65_536


class Way(Enum):
    """A direction."""

    UP = "to the server"
    DOWN = "to the client"


@dataclass(frozen=True)
class Cut:
    """Pass so many bytes in this direction and not one more."""

    way: Way
    after: int
    resets: bool = False  # the client sees a reset instead of the end of the stream


@dataclass
class CuttingProxy:
    """A running proxy."""

    target: int
    cut: Cut | None
    port: int = 0
    passed: list[tuple[Way, int]] = field(default_factory=list)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    async def visit(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry one connection until either side ends it, or the cut."""
        up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self.target)
        ways = [self._carry(Way.UP, reader, up_writer), self._carry(Way.DOWN, up_reader, writer)]
        tasks = [asyncio.create_task(way) for way in ways]
        self._tasks.update(tasks)
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self.cut is not None and self.cut.resets:
            linger = struct.pack("ii", 1, 0)
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        up_writer.close()  # after what was passed: the server reads it all
        writer.close()

    async def _carry(self, way: Way, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        total = 0
        last = self.cut.after if self.cut is not None and self.cut.way is way else None
        with contextlib.suppress(ConnectionError):
            while chunk := await reader.read(CHUNK):
                kept = chunk if last is None else chunk[: last - total]
                total += len(kept)
                self.passed.append((way, total))
                writer.write(kept)
                await writer.drain()
                if total == last:
                    return


@contextlib.asynccontextmanager
async def cutting_proxy(target: int, cut: Cut | None = None) -> AsyncIterator[CuttingProxy]:
    """A proxy to this port of loopback."""
    proxy = CuttingProxy(target, cut)
    listener = await asyncio.start_server(proxy.visit, "127.0.0.1", 0)
    proxy.port = listener.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        listener.close()
        await listener.wait_closed()
