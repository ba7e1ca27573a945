"""One request to a provider: the reached stage is known, whatever the other side does."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

import pytest
from tests.support.silence import settle, wait_out
from tests.support.webhook_server import Receiver, receiving

from postroom.post.reply import Reply, Stage
from postroom.transports.base import SendProgress
from postroom.transports.exchange import ANSWER_LIMIT, Answered, Exchange, excerpt, is_private_channel

LARGE = b"x" * (32 << 20)
"""More than the kernel buffers for a peer that does not read."""

Talk = Callable[[asyncio.Transport, bytes], None]


class Server(asyncio.Protocol):
    """One connection with scripted actions on connect and on received data."""

    def __init__(self, talk: Talk, transports: list[asyncio.Transport]) -> None:
        self._talk, self._transports = talk, transports

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transports.append(transport)
        self._talk(transport, b"")

    def data_received(self, data: bytes) -> None:
        self._talk(self._transports[-1], data)


@contextlib.asynccontextmanager
async def talking(talk: Talk) -> AsyncIterator[str]:
    """A server that runs the given action for each connection; yields its URL."""
    transports: list[asyncio.Transport] = []
    server = await asyncio.get_running_loop().create_server(lambda: Server(talk, transports), "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    finally:
        for transport in transports:
            transport.abort()
        server.close()
        await server.wait_closed()


@contextlib.asynccontextmanager
async def exchanging() -> AsyncIterator[Exchange]:
    exchange = Exchange(timeout_s=60, max_connections=2)
    try:
        yield exchange
    finally:
        await exchange.close()


def hang_up(transport: asyncio.Transport, _data: bytes) -> None:
    transport.abort()


def speak_nonsense(transport: asyncio.Transport, data: bytes) -> None:
    if data.endswith(b"x"):
        transport.write(b"SMTP says hello\r\n\r\n")
        transport.close()


async def ask(url: str, content: bytes) -> Answered | Reply:
    async with exchanging() as exchange:
        return await exchange.ask("POST", url, headers={}, content=content)


async def test_an_answer_is_whole() -> None:
    """Status, headers, body and peer are returned."""
    receiver = Receiver(status=418, headers={"X-Tea": "pot"}, body=b'{"a": 1}')
    async with receiving(receiver):
        answer = await ask(receiver.url, LARGE[:1000])
    assert isinstance(answer, Answered)
    assert (answer.status, answer.headers["X-Tea"], answer.json) == (418, "pot", {"a": 1})
    assert (answer.remote_host, answer.tls, answer.is_success) == ("127.0.0.1 [127.0.0.1]", None, False)
    assert receiver.requests[0].body == LARGE[:1000]


async def test_a_long_answer_is_cut() -> None:
    """A hostile server cannot fill our memory, and the next request works."""
    receiver = Receiver(body=b"x" * (ANSWER_LIMIT * 4))
    async with receiving(receiver), exchanging() as exchange:
        first, second = [await exchange.ask("GET", receiver.url, headers={}) for _ in range(2)]
    assert isinstance(first, Answered)
    assert isinstance(second, Answered)
    assert len(first.body) == len(second.body) == ANSWER_LIMIT
    assert first.json == {}


async def test_a_redirect_is_an_answer() -> None:
    """A redirect is not followed."""
    receiver = Receiver(status=307, headers={"Location": "http://127.0.0.1:1/"})
    async with receiving(receiver):
        answer = await ask(receiver.url, b"x")
    assert isinstance(answer, Answered)
    assert answer.status == 307


async def test_silence_after_the_whole_body_is_in_doubt() -> None:
    """A timeout after the whole body is ambiguous."""
    receiver = Receiver(silent=True)
    async with receiving(receiver):
        reply = await ask(receiver.url, b"x")
    assert isinstance(reply, Reply)
    assert (reply.stage, reply.code, reply.text) == (Stage.FINAL, None, "no answer within 60 s")


async def test_silence_within_the_body_is_not() -> None:
    """A server that stops reading has not received the message."""
    stopped = asyncio.Event()

    def stop_reading(transport: asyncio.Transport, _data: bytes) -> None:
        transport.pause_reading()
        stopped.set()

    async with talking(stop_reading) as url:
        asking = asyncio.create_task(ask(url, LARGE))
        await stopped.wait()
        await wait_out()
        reply = await asking
    assert isinstance(reply, Reply)
    assert (reply.stage, reply.code) == (Stage.CONTENT, None)


async def test_a_line_cut_within_the_body_is_not() -> None:
    """A server that hangs up early has not received the message."""
    async with talking(hang_up) as url:
        reply = await ask(url, LARGE)
    assert isinstance(reply, Reply)
    assert reply.stage in (Stage.CONNECT, Stage.CONTENT)
    assert reply.code is None


async def test_a_message_may_have_arrived_only_when_all_of_it_has_left() -> None:
    """A request cancelled within its body was not sent; after it, it may have been."""

    async def cancelled(content: bytes) -> bool:
        passages: list[SendProgress] = []
        heard = asyncio.Event()

        async def send(exchange: Exchange, url: str) -> None:
            passages.append(SendProgress())
            async with exchange.turn():
                await exchange.hand_over(url, headers={}, content=content)

        def listen(transport: asyncio.Transport, data: bytes) -> None:
            if data:
                heard.set()
                if len(content) > len(data):
                    transport.pause_reading()

        async with talking(listen) as url, exchanging() as exchange:
            sending = asyncio.create_task(send(exchange, url))
            await asyncio.wait_for(heard.wait(), 60)
            await settle()
            sending.cancel()
            await asyncio.wait([sending])
        return passages[0].may_have_arrived

    assert not await cancelled(LARGE)
    assert await cancelled(b"small")


async def test_an_expired_message_is_not_sent() -> None:
    """The request that carries it is not made."""
    async with receiving(Receiver()) as receiver, exchanging() as exchange:
        passage = SendProgress(lambda: True)
        await exchange.hand_over(receiver.url, headers={}, content=b"late")
        assert passage.is_late
        assert not receiver.requests


async def test_nonsense_for_an_answer_is_no_answer() -> None:
    """An answer that is not HTTP is ambiguous, because the message had left."""
    async with talking(speak_nonsense) as url:
        reply = await ask(url, b"x")
    assert isinstance(reply, Reply)
    assert (reply.stage, reply.code) == (Stage.FINAL, None)


async def test_server_without_tls_fails_at_stage_tls() -> None:
    """A server without TLS behind https fails at stage TLS."""
    receiver = Receiver()
    async with receiving(receiver):
        reply = await ask(receiver.url.replace("http:", "https:"), b"x")
    assert isinstance(reply, Reply)
    assert (reply.stage, reply.code) == (Stage.TLS, None)


async def test_refused_connection_is_not_ambiguous() -> None:
    """A refused connection is not ambiguous."""
    reply = await ask("http://127.0.0.1:1/", b"x")
    assert isinstance(reply, Reply)
    assert (reply.stage, reply.code) == (Stage.CONNECT, None)


@pytest.mark.parametrize("timeout_s, max_connections", [(0, 1), (1, 0)])
def test_impossible_limits_are_refused(timeout_s: float, max_connections: int) -> None:
    """A timeout or a connection limit of zero is rejected."""
    with pytest.raises(ValueError, match="at least one connection"):
        Exchange(timeout_s=timeout_s, max_connections=max_connections)


@pytest.mark.parametrize(
    "url, is_private",
    [
        ("https://example.org", True),
        ("http://127.0.0.1:8080/x", True),
        ("http://[::1]:8080", True),
        ("http://localhost", True),
        ("http://example.org", False),
        ("http://127.0.0.1.example.org", False),
        ("https://", False),
        ("file:///etc/passwd", False),
    ],
)
def test_a_private_channel_is_https_or_loopback(url: str, *, is_private: bool) -> None:
    """Tokens travel only over https or loopback."""
    assert is_private_channel(url) is is_private


def test_foreign_text_is_made_harmless() -> None:
    """Control characters and line ends do not reach a log or a page."""
    assert excerpt("HTTP 400 \x1b[31mred\r\nnext:  ") == "HTTP 400 [31mred next"
