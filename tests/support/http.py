"""The real ASGI application in tests: called directly, or served by uvicorn on loopback."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlsplit

import msgspec
import uvicorn

from postroom.db.room import Room
from postroom.http import service
from postroom.http.asgi import build_app
from postroom.http.model import ApiKey
from postroom.runtime.endpoint import ASGIApp

Content = bytes | Iterator[bytes] | AsyncIterator[bytes]
"""A body, whole or in chunks."""


@dataclass(frozen=True, slots=True)
class Response:
    """A response."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.body)

    @property
    def fields(self) -> list[str]:
        """The fields a problem names."""
        return [error["field"] for error in self.json["errors"]]


@dataclass(slots=True)
class Browser:
    """Speaks ASGI to an application, as a server would."""

    app: ASGIApp
    key: str | None = None

    async def ask(
        self,
        method: str,
        target: str,
        *,
        json: Any = msgspec.UNSET,
        content: Content | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Response:
        """One request; `json` is encoded and announced, `content` goes as it is, an iterator in chunks."""
        given = {"authorization": f"Bearer {self.key}"} if self.key else {}
        body: Content = content or b""
        if json is not msgspec.UNSET:
            body = msgspec.json.encode(json)
            given["content-type"] = "application/json"
        return await call(self.app, method, target, body=body, headers={**given, **(headers or {})})

    async def get(self, target: str, **options: Any) -> Response:
        return await self.ask("GET", target, **options)

    async def post(self, target: str, **options: Any) -> Response:
        return await self.ask("POST", target, **options)


async def call(app: ASGIApp, method: str, target: str, *, body: Content, headers: Mapping[str, str]) -> Response:
    parts = urlsplit(target)
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": unquote(parts.path),
        "raw_path": parts.path.encode(),
        "query_string": parts.query.encode(),
        "root_path": "",
        "headers": [(name.lower().encode(), value.encode("latin-1")) for name, value in headers.items()],
    }
    messages = _messages_of(body)
    answer: dict[str, Any] = {}

    async def receive() -> dict[str, Any]:
        return await anext(messages, {"type": "http.disconnect"})

    async def send(message: Any) -> None:
        answer.update({"body": answer.get("body", b"") + message.get("body", b"")})
        if message["type"] == "http.response.start":
            answer["status"] = message["status"]
            answer["headers"] = {name.decode(): value.decode("latin-1") for name, value in message["headers"]}

    await app(scope, receive, send)
    return Response(answer["status"], answer["headers"], answer["body"])


async def _messages_of(body: Content) -> AsyncIterator[dict[str, Any]]:
    if isinstance(body, bytes):
        yield {"type": "http.request", "body": body, "more_body": False}
        return
    if isinstance(body, Iterator):
        for chunk in body:
            yield {"type": "http.request", "body": chunk, "more_body": True}
    else:
        async for chunk in body:
            yield {"type": "http.request", "body": chunk, "more_body": True}
    yield {"type": "http.request", "body": b"", "more_body": False}


async def a_key(room: Room, name: str, *scopes: str) -> tuple[str, ApiKey]:
    """A new key; where its name is taken, a number is added."""
    taken = await room.pool.fetchval("SELECT count(*) FROM api_keys WHERE name ~ ('^' || $1 || '(-[0-9]+)?$')", name)
    return await service.create_key(room.pool, f"{name}-{taken}" if taken else name, scopes=scopes, actor="tests")


async def open_browser(room: Room, *scopes: str, name: str = "tests", app: ASGIApp | None = None) -> Browser:
    """A browser with a new key of these scopes; all scopes if none is named."""
    key, _row = await a_key(room, name, *(scopes or ("*",)))
    return Browser(app or build_app(room), key)


@contextlib.asynccontextmanager
async def served(app: ASGIApp) -> AsyncIterator[str]:
    """The application behind a real server on a free port of loopback; yields its URL."""
    config = uvicorn.Config(
        app,
        host="127.0.0.1",
        port=0,
        log_level="error",
        access_log=False,
        lifespan="on",
        timeout_keep_alive=3600,  # a client that stalls finds its connection where it left it
    )
    server = uvicorn.Server(config)
    with contextlib.closing(config.bind_socket()) as socket:
        socket.listen()  # from here on connections wait until the server takes them
        task = asyncio.create_task(server._serve([socket]))
        try:
            yield f"http://127.0.0.1:{socket.getsockname()[1]}"
        finally:
            server.should_exit = True
            await task


@dataclass(frozen=True, slots=True)
class Letter:
    """A composed message of fixed bytes, for transports."""

    raw: bytes = b"Subject: Hello\r\nFrom: room@localhost\r\nTo: ann@example.org\r\n\r\nHello Ann\r\n"

    def encode(self, *, eight_bit: bool) -> bytes:
        return self.raw if eight_bit else self.raw.decode("ascii", "replace").encode("ascii", "replace")
