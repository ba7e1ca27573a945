"""Limits of HTTP connections, over real sockets."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest
from tests.support.served import served
from tests.support.silence import let_pass, settle, wait_out

from postroom.runtime.endpoint import Problem, Receive, Scope, Send
from postroom.runtime.http_connection import HttpLimits

END = b"\r\n\r\n"
START = b"GET / HTTP/1.1\r\nhost: a\r\n"


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    """Reads the body of a POST, and responds with its size."""
    if scope["type"] != "http":
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        return
    size, more = 0, scope["method"] == "POST"
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        size, more = size + len(message["body"]), message["more_body"]
    body = str(size).encode()
    headers = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


class Client:
    """One client connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def say(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def answer(self) -> tuple[int, bytes]:
        head = await self.reader.readuntil(END)
        length = next(line for line in head.split(b"\r\n") if line.startswith(b"content-length"))
        return int(head.split()[1]), await self.reader.readexactly(int(length.split()[1]))

    async def problem(self) -> dict[str, Any]:
        """A rejection as a problem document, after which the server sends nothing more."""
        status, body = await self.answer()
        document: dict[str, Any] = json.loads(body)
        assert set(document) == {field.encode_name for field in msgspec.structs.fields(Problem) if field.required}
        assert document["status"] == status
        assert await self.reader.read() == b""
        return document


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[Client]:
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    try:
        yield Client(reader, writer)
    finally:
        writer.close()


async def refused_head(data: bytes) -> dict[str, Any]:
    async with served(app) as url, connected(url) as client:
        await client.say(data)
        return await client.problem()


async def test_header_of_64_kb_is_rejected() -> None:
    """One header that does not end is 431 after 64 kB, although the head is not complete."""
    problem = await refused_head(START + b"x-long: " + b"x" * 65_536)
    assert problem["status"] == 431
    assert problem["code"] == "request_header_fields_too_large"


async def test_path_of_64_kb_is_rejected() -> None:
    """The request line counts too."""
    assert (await refused_head(b"GET /" + b"x" * 65_536))["status"] == 431


async def test_more_than_100_headers_are_rejected() -> None:
    """The number of headers is limited independent of their size."""
    assert (await refused_head(START + b"a: b\r\n" * 101))["status"] == 431
    async with served(app) as url, connected(url) as client:
        await client.say(START + b"a: b\r\n" * 99 + b"\r\n")
        assert (await client.answer())[0] == 200


async def test_trailers_of_64_kb_are_rejected() -> None:
    """Trailers have the limits of the head."""
    async with served(app) as url, connected(url) as client:
        await client.say(b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n")
        await client.say(b"x-long: " + b"x" * 2 * 65_536)
        assert (await client.problem())["status"] == 431


async def test_head_in_many_packets_is_read() -> None:
    """A head just below the limit is accepted in any packets, and so is the next one."""
    head = START + b"x-long: " + b"x" * (65_536 - 200) + END
    async with served(app) as url, connected(url) as client:
        for _ in range(2):
            for at in range(0, len(head), 10_000):
                await client.say(head[at : at + 10_000])
            assert await client.answer() == (200, b"0")


async def test_invalid_http_is_a_problem_document() -> None:
    """A request that is not HTTP gets 400 as a problem document."""
    assert (await refused_head(b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n"))["status"] == 400


async def test_a_slow_head_times_out() -> None:
    """A head that is incomplete after the timeout is 408; single bytes do not extend it."""
    async with served(app) as url, connected(url) as client:
        await client.say(START)
        await settle()
        let_pass(9)
        await client.say(b"a: b\r\n")
        await settle()
        let_pass(9)
        assert (await client.problem())["status"] == 408


async def test_second_head_on_a_kept_alive_connection_times_out() -> None:
    """The timeout applies to every head."""
    async with served(app) as url, connected(url) as client:
        await client.say(START + b"\r\n")
        await client.answer()
        await client.say(START)
        await settle()
        let_pass(11)
        assert (await client.problem())["status"] == 408


async def test_a_silent_connection_is_closed() -> None:
    """Without a request there is no response."""
    async with served(app) as url, connected(url) as client:
        await wait_out()
        assert await client.reader.read() == b""


async def test_a_slow_body_times_out() -> None:
    """A stalled body is 408, and the handler sees a disconnect."""
    async with served(app) as url, connected(url) as client:
        await client.say(b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 10\r\n\r\nabc")
        await settle()
        let_pass(31)
        assert (await client.problem())["status"] == 408


async def test_a_large_body_gets_more_time() -> None:
    """Each received 8 kB extend the timeout by one second."""
    async with served(app) as url, connected(url) as client:
        await client.say(b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 819201\r\n\r\n" + b"x" * 819_200)
        await settle()
        let_pass(100)
        await settle()
        await client.say(b"x")
        assert await client.answer() == (200, b"819201")


async def test_unread_body_ends_the_connection() -> None:
    """After the response a client has 30 s for the rest of its body."""
    async with served(app) as url, connected(url) as client:
        await client.say(b"GET / HTTP/1.1\r\nhost: a\r\ncontent-length: 999999\r\n\r\n")
        assert (await client.answer())[0] == 200
        await client.say(b"x" * 500_000)
        await settle()
        let_pass(31)
        assert await client.reader.read() == b""


async def test_invalid_request_does_not_replace_the_previous_response() -> None:
    """The first of two requests in one packet gets its response, the second ends the connection."""
    async with served(app) as url, connected(url) as client:
        await client.say(b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 3\r\n\r\nabc\x16\x03\r\n\r\n")
        assert await client.answer() == (200, b"3")
        assert await client.reader.read() == b""


async def test_total_connections_are_limited() -> None:
    """One more is 503; after another is closed, a new one is accepted."""
    async with served(app, limits=HttpLimits(connections=1)) as url:
        async with connected(url) as first:
            await first.say(START + b"\r\n")
            await first.answer()
            async with connected(url) as second:
                problem = await second.problem()
            assert (problem["status"], problem["code"]) == (503, "service_unavailable")
        await settle()
        async with connected(url) as third:
            await third.say(START + b"\r\n")
            assert (await third.answer())[0] == 200


async def test_connections_of_one_address_are_limited() -> None:
    """An untrusted address has a limit; this host and trusted proxies have none."""
    limits = HttpLimits(connections_per_peer=1, unlimited=())
    async with served(app, limits=limits) as url, connected(url) as first:
        await first.say(START + b"\r\n")
        await first.answer()
        async with connected(url) as second:
            assert (await second.problem())["status"] == 503
    local = HttpLimits(connections_per_peer=1)
    async with served(app, limits=local) as url, connected(url) as first, connected(url) as second:
        for client in (first, second):
            await client.say(START + b"\r\n")
            assert (await client.answer())[0] == 200


async def test_invalid_http_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Clients cannot fill the disk with log lines."""
    async with served(app) as url, connected(url) as client:
        await client.say(b"\x16\x03\x01 no request\r\n\r\n")
        assert (await client.problem())["status"] == 400
    assert caplog.records == []


async def test_disconnect_with_pipelined_requests_leaves_no_traceback(caplog: pytest.LogCaptureFixture) -> None:
    """The response to the first request is dropped."""
    started, gone, done = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            started.set()
            while (await receive())["type"] != "http.disconnect":
                pass
            gone.set()
        try:
            await app(scope, receive, send)
        finally:
            done.set()

    async with served(slow) as url:
        async with connected(url) as client:
            await client.say((START + b"\r\n") * 3)
            await started.wait()
        await gone.wait()
        await done.wait()
    assert "Traceback" not in caplog.text


async def test_broken_pipelined_body_keeps_the_previous_response() -> None:
    """The first request gets its response, and then the connection ends."""
    go_on = asyncio.Event()

    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await go_on.wait()
        await app(scope, receive, send)

    async with served(slow) as url, connected(url) as client:
        await client.say(START + b"\r\n")
        await client.say(b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\nnonsense\r\n")
        await settle()
        go_on.set()
        assert await client.answer() == (200, b"0")
        assert await client.reader.read() == b""
