"""A request is repeated if that is safe, and a mail is sent once, however often its request arrives."""

import asyncio
import socket
from collections.abc import Callable
from typing import Any

import pytest
from tests.support.clients import losing_responses, open_either
from tests.support.served import served

from postroom.db.room import Room
from postroom.delivery.errors import WrongState
from postroom.errors import ApiUnreachable, PostroomError
from postroom.http.asgi import build_app
from postroom.runtime.endpoint import ASGIApp

MAIL = {"to": "ada@example.org", "subject": "Hello", "text": "Hello, Ada."}


def refusing(app: ASGIApp, answers: list[tuple[int, bytes]]) -> tuple[ASGIApp, list[str]]:
    """The application behind one that responds with these statuses and Retry-After first; and the methods it saw."""
    seen = list[str]()

    async def refuse(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return await app(scope, receive, send)
        seen.append(scope["method"])
        if not answers:
            return await app(scope, receive, send)
        status, after = answers.pop(0)
        headers = [(b"retry-after", after)] if after else []
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": b""})
        return None

    return refuse, seen


async def count_deliveries(room: Room) -> int:
    found: int = await room.pool.fetchval("SELECT count(*) FROM deliveries")
    return found


async def test_a_lost_response_does_not_send_twice(room: Room, url: str, key: str, kind: str) -> None:
    """The server accepted the mail and the connection broke: the same key arrives again, and gets the same delivery."""
    async with losing_responses(url, 2) as proxy, open_either(kind, proxy, key) as client:
        sent = await client(lambda api: api.deliveries.send(**MAIL))
    assert sent.replayed
    assert await count_deliveries(room) == 1


async def test_an_unsafe_request_is_not_repeated(url: str, key: str, kind: str) -> None:
    """Without a key, the caller has to look: the first request has arrived."""
    async with open_either(kind, url, key) as client:
        sent = await client(lambda api: api.deliveries.send(**MAIL))
        async with losing_responses(url, 1) as proxy, open_either(kind, proxy, key) as unlucky:
            with pytest.raises(ApiUnreachable) as lost:
                await unlucky(lambda api: api.deliveries.cancel(sent.id))
        assert lost.value.url == proxy
        assert (await client(lambda api: api.deliveries.get(sent.id))).status == "cancelled"


async def test_a_client_without_retries_sends_once(url: str, key: str, kind: str) -> None:
    """`retries=0`: an error reaches the caller at once, and no key is made."""
    async with losing_responses(url, 1) as proxy, open_either(kind, proxy, key, retries=0) as client:
        with pytest.raises(ApiUnreachable):
            await client(lambda api: api.deliveries.send(**MAIL))
        [found] = await client(lambda api: api.deliveries.list())
        assert (await client(lambda api: api.deliveries.get(found.id))).idempotency_key is None


async def test_the_client_waits_as_long_as_the_server_asks(room: Room, key: str, kind: str) -> None:
    """500, 503 and 429 with Retry-After pass; a request without a key is repeated only after 429."""
    answers = [(503, b"0"), (500, b""), (429, b"0")]
    app, seen = refusing(build_app(room), answers)
    async with served(app) as url, open_either(kind, url, key) as client:
        sent = await client(lambda api: api.deliveries.send(**MAIL))
        assert seen == ["POST"] * 4
        answers += [(429, b"0"), (503, b"0")]
        with pytest.raises(PostroomError, match="503"):
            await client(lambda api: api.deliveries.cancel(sent.id))
        assert seen == ["POST"] * 6
        await client(lambda api: api.deliveries.cancel(sent.id))


@pytest.mark.parametrize("after", [b"", b"3600"])
async def test_a_limit_without_an_end_in_sight_is_an_error(room: Room, key: str, kind: str, after: bytes) -> None:
    """429 without Retry-After, or with a long one, is not waited for."""
    app, seen = refusing(build_app(room), [(429, after)])
    async with served(app) as url, open_either(kind, url, key) as client:
        with pytest.raises(PostroomError, match="429"):
            await client(lambda api: api.deliveries.list())
    assert seen == ["GET"]


async def test_attempts_are_limited(room: Room, key: str, kind: str) -> None:
    """After `retries` repetitions the last error is raised."""
    app, seen = refusing(build_app(room), [(502, b"")] * 4)
    async with served(app) as url, open_either(kind, url, key, retries=2) as client:
        with pytest.raises(PostroomError, match="502"):
            await client(lambda api: api.deliveries.list())
    assert seen == ["GET"] * 3


async def test_a_server_that_is_not_there(kind: str) -> None:
    """A connection that cannot be opened is tried again, also for a request without a key, and named at the end."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    async with open_either(kind, f"http://127.0.0.1:{port}", "pr_x", retries=2) as client:
        with pytest.raises(ApiUnreachable, match=f"127.0.0.1:{port}"):
            await client(lambda api: api.deliveries.cancel(1))


async def test_a_silent_server_ends_in_a_timeout(kind: str) -> None:
    """A server that accepts the connection and never responds."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        async with open_either(kind, url, "pr_x", retries=0, timeout_s=0.1) as client:
            with pytest.raises(ApiUnreachable):
                await client(lambda api: api.deliveries.get(1))


async def test_a_connection_is_kept_and_replaced(room: Room, key: str) -> None:
    """Requests share a connection; one that the server has closed meanwhile is not used again, not even once."""
    async with served(build_app(room)) as url, open_either("sync", url, key) as client:
        await client(lambda api: api.health.healthz())
        await client(lambda api: api.health.healthz())
        idle = client.client.session.transport._idle
        assert len(idle) == 1
        idle[0].sock.shutdown(socket.SHUT_RDWR)
        sent = await client(lambda api: api.deliveries.send(**MAIL))
        await client(lambda api: api.deliveries.cancel(sent.id))
        with pytest.raises(WrongState):
            await client(lambda api: api.deliveries.cancel(sent.id))


async def test_threads_share_a_client(room: Room, url: str, key: str) -> None:
    """Each thread uses its own connection."""
    async with open_either("sync", url, key) as client:
        sending: Callable[[Any], Any] = lambda api: api.deliveries.send(**MAIL)  # noqa: E731 - called many times
        sent = await asyncio.gather(*(client(sending) for _ in range(8)))
    assert len({each.id for each in sent}) == 8
