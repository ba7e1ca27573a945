"""Limits of HTTP connections, over real sockets."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest
from tests.support.served import served
from tests.support.silence import let_pass, settle, wait_out

from postroom.http.problems import Problem
from postroom.runtime.endpoint import Receive, Scope, Send
from postroom.runtime.http_connection import HttpLimits

END = b"\r\n\r\n"
START = b"GET / HTTP/1.1\r\nhost: a\r\n"


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    """Reads the body of a POST, and answers with its size."""
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
    """One connection, byte by byte."""

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
        """A refusal as a problem document, after which the server sends nothing more."""
        status, body = await self.answer()
        document: dict[str, Any] = json.loads(body)
        assert set(document) == set(Problem.__struct_fields__)
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


async def test_a_header_of_64_kb_is_refused() -> None:
    """One header that does not end is 431 after 64 kB, although the head is not complete."""
    problem = await refused_head(START + b"x-long: " + b"x" * 65_536)
    assert problem["status"] == 431
    assert problem["code"] == "request_header_fields_too_large"


async def test_a_path_of_64_kb_is_refused() -> None:
    """The request line counts too."""
    assert (await refused_head(b"GET /" + b"x" * 65_536))["status"] == 431


async def test_more_than_100_headers_are_refused() -> None:
    """The number of headers is limited, also where their size is not reached."""
    assert (await refused_head(START + b"a: b\r\n" * 101))["status"] == 431
    async with served(app) as url, connected(url) as client:
        await client.say(START + b"a: b\r\n" * 99 + b"\r\n")
        assert (await client.answer())[0] == 200


async def test_trailers_of_64_kb_are_refused() -> None:
    """What follows the last chunk is limited as the head is."""
    async with served(app) as url, connected(url) as client:
        await client.say(b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n")
        await client.say(b"x-long: " + b"x" * 2 * 65_536)
        assert (await client.problem())["status"] == 431


async def test_a_head_that_is_cut_in_many_pieces_is_read() -> None:
    """A head just below the limit is accepted, however it arrives, and so is the next one."""
    head = START + b"x-long: " + b"x" * (65_536 - 200) + END
    async with served(app) as url, connected(url) as client:
        for _ in range(2):
            for at in range(0, len(head), 10_000):
                await client.say(head[at : at + 10_000])
            assert await client.answer() == (200, b"0")


async def test_garbage_is_a_problem_document() -> None:
    """A request that is not HTTP gets 400 in the form of all other refusals."""
    assert (await refused_head(b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n"))["status"] == 400


async def test_a_slow_head_times_out() -> None:
    """A head that is not complete in time is 408; bytes that trickle in do not extend the time."""
    async with served(app) as url, connected(url) as client:
        await client.say(START)
        await settle()
        let_pass(9)
        await client.say(b"a: b\r\n")
        await settle()
        let_pass(9)
        assert (await client.problem())["status"] == 408


async def test_a_second_head_on_a_kept_connection_times_out_too() -> None:
    """The time of every head counts, not only that of the first."""
    async with served(app) as url, connected(url) as client:
        await client.say(START + b"\r\n")
        await client.answer()
        await client.say(START)
        await settle()
        let_pass(11)
        assert (await client.problem())["status"] == 408


async def test_a_silent_connection_is_closed() -> None:
    """Nobody asked, so nothing is answered."""
    async with served(app) as url, connected(url) as client:
        await wait_out()
        assert await client.reader.read() == b""


async def test_a_slow_body_times_out() -> None:
    """A body that stops arriving is 408, and the handler sees the client disconnect."""
    async with served(app) as url, connected(url) as client:
        await client.say(b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 10\r\n\r\nabc")
        await settle()
        let_pass(31)
        assert (await client.problem())["status"] == 408


async def test_a_large_body_gets_more_time() -> None:
    """Each 8 kB that arrived give one second more."""
    async with served(app) as url, connected(url) as client:
        await client.say(b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 819201\r\n\r\n" + b"x" * 819_200)
        await settle()
        let_pass(100)
        await settle()
        await client.say(b"x")
        assert await client.answer() == (200, b"819201")


async def test_a_body_nobody_reads_ends_the_connection() -> None:
    """After the answer a client gets 30 s for the rest of its body."""
    async with served(app) as url, connected(url) as client:
        await client.say(b"GET / HTTP/1.1\r\nhost: a\r\ncontent-length: 999999\r\n\r\n")
        assert (await client.answer())[0] == 200
        await client.say(b"x" * 500_000)
        await settle()
        let_pass(31)
        assert await client.reader.read() == b""


async def test_a_bad_request_does_not_take_the_answer_of_the_one_before() -> None:
    """Two requests in one packet: the first is answered, the second ends the connection."""
    async with served(app) as url, connected(url) as client:
        await client.say(b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 3\r\n\r\nabc\x16\x03\r\n\r\n")
        assert await client.answer() == (200, b"3")
        assert await client.reader.read() == b""


async def test_connections_in_all_are_limited() -> None:
    """One more is 503; once another is closed, there is room again."""
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
    """An address that is not trusted gets its share; this host and trusted proxies get all."""
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


async def test_bytes_that_are_not_http_leave_no_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """A stranger cannot fill the disk; the refusal is counted and answered."""
    async with served(app) as url, connected(url) as client:
        await client.say(b"\x16\x03\x01 no request\r\n\r\n")
        assert (await client.problem())["status"] == 400
    assert caplog.records == []


async def test_a_client_that_leaves_pipelined_requests_leaves_no_traceback(caplog: pytest.LogCaptureFixture) -> None:
    """The first of several requests is being answered when the client goes away; its answer is dropped."""
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


async def test_a_broken_body_behind_a_request_leaves_that_one_its_answer() -> None:
    """The second request cannot be read; the first one is answered, and then the connection ends."""
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
