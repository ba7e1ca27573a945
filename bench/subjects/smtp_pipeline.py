"""The shortest way to push a finished mail down an SMTP connection: one round trip per mail.

The next mail's MAIL, RCPT and DATA travel with the closing dot of the one before (RFC 2920), so that a connection
waits once per mail. It is the wire's limit for a Python client and handles no refusal: only for measuring.
"""

import asyncio
from collections.abc import Sequence
from typing import cast


class PipelinedConnection(asyncio.Protocol):
    """One persistent connection that sends the same body to one recipient after another."""

    def __init__(self, sender: str, body: bytes) -> None:
        self._sender = sender.encode()
        self._body = body + b"\r\n.\r\n"
        self._unread = b""
        self._awaited = [b"220"]  # the greeting may be here before anybody waits for it
        self._answered = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        lines = (self._unread + data).split(b"\r\n")
        self._unread = lines.pop()
        for line in lines:
            if line[3:4] != b"-":  # the last line of a reply
                assert line.startswith(self._awaited[0]), line
                del self._awaited[0]
        if not self._awaited:
            self._answered.set()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's name
        self._answered.set()

    async def greet(self) -> None:
        await self._answered.wait()
        await self._say(b"EHLO bench.invalid\r\n", [b"250"])

    async def send_all(self, recipients: Sequence[str]) -> None:
        """Hand the body over once for each recipient."""
        if not recipients:
            return
        await self._say(self._opening(recipients[0]), [b"250", b"250", b"354"])
        for recipient in recipients[1:]:
            await self._say(self._body + self._opening(recipient), [b"250", b"250", b"250", b"354"])
        await self._say(self._body, [b"250"])

    def close(self) -> None:
        self._transport.close()

    def _opening(self, recipient: str) -> bytes:
        return b"MAIL FROM:<%s>\r\nRCPT TO:<%s>\r\nDATA\r\n" % (self._sender, recipient.encode())

    async def _say(self, words: bytes, awaited: list[bytes]) -> None:
        self._answered.clear()
        self._awaited += awaited
        self._transport.write(words)
        await self._answered.wait()
        if self._awaited:
            raise ConnectionError("the server hung up")


async def connect_all(port: int, count: int, sender: str, body: bytes) -> list[PipelinedConnection]:
    """That many greeted connections to a sink on loopback."""
    loop = asyncio.get_running_loop()
    connections = []
    for _ in range(count):
        _, connection = await loop.create_connection(lambda: PipelinedConnection(sender, body), "127.0.0.1", port)
        await connection.greet()
        connections.append(connection)
    return connections


async def send_over(connections: Sequence[PipelinedConnection], recipients: Sequence[str]) -> None:
    """Share the recipients among the connections and wait until every mail is accepted."""
    step = len(connections)
    await asyncio.gather(
        *(connection.send_all(recipients[offset::step]) for offset, connection in enumerate(connections))
    )
