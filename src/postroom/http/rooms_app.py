"""The ASGI application of a process that serves many rooms.

    /rooms/<name>/…     the application of a room, as if it were alone; by host instead if the public URL says so
    /healthz            the process answers
    /readyz             how many rooms are served, and which servers do not respond; 503 if none does
    /metrics            the metrics of the process
    /rooms              to the list of rooms in the dashboard of POSTROOM_SCHEMA

Everything else is 404. A room's application gets paths without the prefix, and writes it in links, redirects and
cookies itself: it is the path of the room's public URL.
"""

from collections.abc import Callable
from http import HTTPStatus

import msgspec
from prometheus_client import generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from postroom.http.asgi import body_of, lifespan, send_body, send_head
from postroom.http.health import Alive
from postroom.http.open_rooms import OpenRooms
from postroom.http.problems import answer_to, our_fault
from postroom.rooms.address import RoomAddress
from postroom.runtime.endpoint import Answer, ProtocolError, Receive, Scope, Send, redirect
from postroom.runtime.metrics import REGISTRY


class RoomsReady(msgspec.Struct, frozen=True):
    """The rooms that can be served, and the servers that do not respond."""

    status: str
    rooms: int
    open_rooms: int
    silent_servers: list[str]


class RoomsApplication:
    """Hands each request to the application of its room."""

    def __init__(self, rooms: OpenRooms, address: RoomAddress, *, home: str) -> None:
        self._rooms, self._address, self._home = rooms, address, home

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await lifespan(receive, send)
        elif scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1000})
        else:
            await self._http(scope, receive, send)

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        host = next((value.decode("latin-1") for name, value in scope["headers"] if name == b"host"), "")
        found = self._address.find(host, scope["path"])
        if found is None:
            await self._own(scope, receive, send)
            return
        name, path = found
        has_begun = False

        async def begin(message: Scope) -> None:
            nonlocal has_begun
            has_begun = True
            await send(message)

        try:
            async with self._rooms.use(name) as served:
                await served.app({**scope, "path": path}, receive, begin)
        except Exception as error:
            if has_begun:
                raise
            await _answer(answer_to(error) or our_fault(), scope, receive, send)

    async def _own(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The paths of the process itself."""
        answers: dict[str, Callable[[], Answer]] = {
            "/healthz": lambda: Answer(Alive("ok")),
            "/readyz": self._readyz,
            "/metrics": lambda: Answer(generate_latest(REGISTRY), media_type=CONTENT_TYPE_PLAIN_0_0_4),
            # The dashboard of the room that lists all rooms asks for a session.
            "/rooms": lambda: redirect(f"{self._address.url_of(self._home)}/storage/rooms"),
        }
        made = answers.get(scope["path"]) if scope["method"] in ("GET", "HEAD") else None
        if made is not None:
            await _answer(made(), scope, receive, send)
            return
        unknown = ProtocolError(HTTPStatus.NOT_FOUND, "There is no room at this address.")
        await _answer(answer_to(unknown) or our_fault(), scope, receive, send)

    def _readyz(self) -> Answer:
        found = self._rooms.found
        silent = [failure.server for failure in found.failures]
        is_ready = bool(found.rooms) or not silent
        ready = RoomsReady("ok" if is_ready else "failed", len(found.ready), len(self._rooms.names), silent)
        return Answer(ready, int(HTTPStatus.OK if is_ready else HTTPStatus.SERVICE_UNAVAILABLE))


async def _answer(answer: Answer, scope: Scope, receive: Receive, send: Send) -> None:
    body = body_of(answer)
    await send_head(send, answer, body, ())
    await send_body(send, receive, b"" if scope["method"] == "HEAD" else body)
