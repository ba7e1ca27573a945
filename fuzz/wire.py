"""Raw exchanges with a server on loopback."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

PATIENCE_S = 20.0


@asynccontextmanager
async def connected(port: int) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 22)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()  # closing would wait until the server has read what it refused


async def exchange(port: int, raw: bytes, *, patience_s: float = PATIENCE_S) -> tuple[int, bytes]:
    """Send bytes and read the answer: its status (0: none) and all of it."""
    try:
        async with connected(port) as (reader, writer):
            async with asyncio.timeout(patience_s):
                with suppress(OSError):
                    writer.write(raw)
                    await writer.drain()
                head = await reader.readline()
            answer = head + (await _rest(reader, patience_s) if head else b"")
    except (OSError, ValueError, TimeoutError):
        return 0, b""
    words = answer.split(None, 2)
    return (int(words[1]) if len(words) > 1 and words[1].isdigit() else 0), answer


async def _rest(reader: asyncio.StreamReader, patience_s: float) -> bytes:
    """Read until the connection ends or the timeout passes."""
    pieces: list[bytes] = []
    with suppress(OSError, TimeoutError):
        async with asyncio.timeout(patience_s):
            while piece := await reader.read(1 << 16):
                pieces.append(piece)
    return b"".join(pieces)


def request(method: str, target: str, *, headers: Mapping[str, str], body: bytes = b"") -> bytes:
    """A well-formed request that ends its connection."""
    given = {"host": "127.0.0.1", "connection": "close", "content-length": str(len(body)), **headers}
    head = "".join(f"{name}: {value}\r\n" for name, value in given.items())
    return f"{method} {target} HTTP/1.1\r\n{head}\r\n".encode() + body


def as_json(value: Any) -> bytes:
    return json.dumps(value).encode()


def json_of(answer: bytes) -> Any:
    """The JSON body of an answer; None if it has none."""
    with suppress(ValueError):
        return json.loads(answer.partition(b"\r\n\r\n")[2])
    return None
