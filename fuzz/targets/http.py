"""Raw HTTP: heads, framing, chunks."""

import asyncio
from random import Random

from fuzz.arena import Arena
from fuzz.mutate import mutate
from fuzz.tally import Case
from fuzz.wire import as_json, connected, exchange, request

_MAIL = as_json({"to": "ann@example.org", "subject": "Hi", "text": "Hello."})
_PATHS = (
    "/healthz",
    "/v1/deliveries",
    "/metrics",
    "/",
    "/activate",
    "/v1/feedback/ses",
    "/t/o/x",
    "/openapi.json",
    "/login",
)
_FRAMING = (
    "transfer-encoding: chunked\r\ncontent-length: 5\r\n\r\n0\r\n\r\n",
    "transfer-encoding: chunked\r\n\r\nffffffffffffffff\r\nx",
    "transfer-encoding: chunked\r\n\r\n-1\r\nx\r\n0\r\n\r\n",
    'transfer-encoding: chunked\r\n\r\n5;ext="\0"\r\nhello\r\n0\r\nTrailer: x\r\n\r\n',
    "transfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "content-length: -1\r\n\r\n",
    "content-length: 5\r\ncontent-length: 6\r\n\r\nhello",
    "content-length: 99999999999999999999\r\n\r\n",
    "content-length: 0x5\r\n\r\nhello",
    "expect: 100-continue\r\ncontent-length: 2\r\n\r\n{}",
    "upgrade: websocket\r\nconnection: upgrade\r\nsec-websocket-key: x\r\n\r\n",
    "upgrade: h2c\r\nconnection: upgrade, http2-settings\r\n\r\n",
)
_WHOLE = (
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"GET /healthz\r\n\r\n",
    b"GET http://other.example/healthz HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n",
    b"OPTIONS * HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n",
    b"CONNECT a:1 HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n",
    b"GET /%00/%ff/..%2f HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    b"GET /healthz HTTP/1.1\r\n" + b"x: y\r\n" * 500 + b"\r\n",
    b"GET /healthz HTTP/1.1\r\nx: " + b"y" * 200_000 + b"\r\n\r\n",
    b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nhost: a\r\n\r\n",
)


async def attack(arena: Arena, random: Random, case: Case) -> None:
    """Send one stream of bytes; sometimes go away in the middle of it."""
    raw = _stream(arena, random)
    if random.random() < 0.15:
        await _abandon(arena, raw[: random.randint(0, len(raw))])
        case.tally.count("abandoned")
        return
    # A stream that ends in the middle of a head or a body waits for its time limit; the case does not.
    status, answer = await exchange(arena.http, raw, patience_s=0.5)
    case.http(status, answer[:100].decode(errors="replace"))


def _stream(arena: Arena, random: Random) -> bytes:
    auth = arena.auth if random.random() < 0.6 else {}
    path = random.choice(_PATHS)
    match random.randrange(5):
        case 0:
            return random.choice(_WHOLE)
        case 1:
            head = "".join(f"{name}: {value}\r\n" for name, value in auth.items())
            return f"POST {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n{head}{random.choice(_FRAMING)}".encode()
        case 2:
            pipelined = request("GET", path, headers={**auth, "connection": "keep-alive"})
            return pipelined * random.randint(1, 50) + request("GET", path, headers=auth)
        case 3:
            raw = request("POST", "/v1/deliveries", headers={**auth, "content-type": "application/json"}, body=_MAIL)
            return mutate(random, raw)
        case _:
            method = random.choice(("GET", "POST", "PUT", "HEAD", "DELETE", "TRACE", "FOO", "get"))
            return mutate(random, request(method, path, headers=auth), 3)


async def _abandon(arena: Arena, raw: bytes) -> None:
    try:
        async with connected(arena.http) as (_, writer):
            writer.write(raw)
            await asyncio.wait_for(writer.drain(), 1)
    except (OSError, TimeoutError):
        pass
