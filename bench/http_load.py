"""A keep-alive HTTP/1.1 client that costs the machine almost nothing: it shares two cores with what it measures."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from typing import Any

CONTENT_LENGTH = re.compile(rb"^content-length:\s*(\d+)", re.IGNORECASE | re.MULTILINE)


class HttpClient:
    """One connection to one server on loopback."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, headers: dict[str, str]) -> None:
        self._reader = reader
        self._writer = writer
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        self._headers = f"Host: 127.0.0.1\r\nContent-Type: application/json\r\n{lines}"

    @classmethod
    async def connect(cls, port: int, headers: dict[str, str]) -> "HttpClient":
        return cls(*await asyncio.open_connection("127.0.0.1", port), headers)

    async def post(self, path: str, document: dict[str, Any], *, idempotency_key: str) -> int:
        """The status of the answer; its body is read and dropped."""
        body = json.dumps(document).encode()
        head = f"POST {path} HTTP/1.1\r\n{self._headers}Idempotency-Key: {idempotency_key}\r\n"
        self._writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        answer = await self._reader.readuntil(b"\r\n\r\n")
        length = CONTENT_LENGTH.search(answer)
        if length:
            await self._reader.readexactly(int(length[1]))
        return int(answer[9:12])

    async def get(self, path: str) -> tuple[int, bytes]:
        """Status and body of the answer."""
        status, length = await self._begin(path)
        return status, await self._reader.readexactly(length)

    async def lines(self, path: str) -> AsyncIterator[bytes]:
        """The lines of an answer that goes on, such as a stream of events."""
        await self._begin(path)
        while line := await self._reader.readline():
            yield line

    async def _begin(self, path: str) -> tuple[int, int]:
        """Send the request and read the head of its answer; returns status and length."""
        self._writer.write(f"GET {path} HTTP/1.1\r\n{self._headers}\r\n".encode())
        answer = await self._reader.readuntil(b"\r\n\r\n")
        length = CONTENT_LENGTH.search(answer)
        return int(answer[9:12]), int(length[1]) if length else 0

    async def close(self) -> None:
        self._writer.close()
        await self._writer.wait_closed()
