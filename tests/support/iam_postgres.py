"""PostgreSQL as Amazon RDS offers it: TLS, a token in clear text as the password, verified by botocore's own signer.

The front terminates TLS and checks the token. Then it forwards the session to the test server's Unix socket, which
accepts every role.
"""

import asyncio
import ssl
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from unittest.mock import patch
from urllib.parse import parse_qs

import boto3
from tests.support.tls_postgres import SSL_REQUEST

_CLEARTEXT = b"R" + struct.pack("!ii", 8, 3)
_REFUSED = b"SFATAL\0VFATAL\0C28P01\0MPAM authentication failed\0\0"


@dataclass
class IamFront:
    """The server, the credentials that it accepts, and the tokens that it received."""

    socket: str
    tls: ssl.SSLContext
    host: str
    region: str
    user: str
    secret: str
    port: int = 0
    tokens: list[str] = field(default_factory=list)

    def is_valid(self, token: str) -> bool:
        """True if botocore makes the same token at the time that the token names."""
        given = {name: values[0] for name, values in parse_qs(token.partition("?")[2]).items()}
        key_id, day, region, *_ = given["X-Amz-Credential"].split("/")
        at = datetime.strptime(given["X-Amz-Date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
        keys = {"aws_access_key_id": key_id, "aws_secret_access_key": self.secret}
        session_token = given.get("X-Amz-Security-Token")
        client = boto3.client("rds", region_name=region, aws_session_token=session_token, **keys)
        with patch("botocore.auth.get_current_datetime", lambda *_, **__: at.replace(tzinfo=None)):
            made = client.generate_db_auth_token(self.host, self.port, self.user, region)
        wanted = {name: values[0] for name, values in parse_qs(made.partition("?")[2]).items()}
        return (region, day) == (self.region, at.strftime("%Y%m%d")) and given == wanted

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError, ssl.SSLError):
            if await reader.readexactly(8) != SSL_REQUEST:
                return
            writer.write(b"S")
            await writer.drain()
            await writer.start_tls(self.tls)
            size = await reader.readexactly(4)
            startup = size + await reader.readexactly(int.from_bytes(size, "big") - 4)
            writer.write(_CLEARTEXT)
            _kind, length = struct.unpack("!ci", await reader.readexactly(5))
            self.tokens.append((await reader.readexactly(length - 4)).rstrip(b"\0").decode())
            if not self.is_valid(self.tokens[-1]):
                writer.write(b"E" + struct.pack("!i", 4 + len(_REFUSED)) + _REFUSED)
                await writer.drain()
                return
            server_reader, server_writer = await asyncio.open_unix_connection(self.socket)
            server_writer.write(startup)
            await asyncio.gather(_pump(reader, server_writer), _pump(server_reader, writer))
        writer.close()


async def _pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError, ssl.SSLError):
        while data := await source.read(65536):
            sink.write(data)
            await sink.drain()
    sink.close()


@asynccontextmanager
async def iam_postgres(front: IamFront) -> AsyncIterator[IamFront]:
    tasks: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(asyncio.get_running_loop().create_task(front.serve(reader, writer)))

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    front.port = server.sockets[0].getsockname()[1]
    try:
        yield front
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
