"""The rooms that a process serves: opened when first asked for, closed when they are idle or have moved.

Discovery runs every few seconds, and for an unknown name at most once a second. While a server does not respond, its
rooms are still known, so that their requests fail as temporary.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta

import structlog

from postroom.delivery.service import AcceptCombiner
from postroom.http.auth import Authenticator
from postroom.rooms.errors import RoomNotFound, RoomNotReady
from postroom.rooms.model import Discovery, FoundRoom
from postroom.rooms.service import Server, find_rooms, server_named
from postroom.runtime.endpoint import ASGIApp
from postroom.runtime.loop import Loop

IDLE = timedelta(minutes=5)  # opening a room takes some statements, an open one holds memory and caches
REFRESH = timedelta(seconds=10)  # a moved room is served at its new place after at most this long
LEAST_REFRESH_S = 1.0  # unknown names, which anybody can invent, cost one discovery a second


@dataclass(frozen=True, slots=True)
class ServedRoom:
    """An open room of a process: its HTTP application, and the parts that other listeners need too."""

    app: ASGIApp
    auth: Authenticator
    accepting: AcceptCombiner


OpenApp = Callable[[Server, str], AbstractAsyncContextManager[ServedRoom]]
_log = structlog.get_logger()


@dataclass(slots=True)
class OpenRoom:
    """A room that is open, or opening."""

    place: FoundRoom
    served: asyncio.Future[ServedRoom]
    used_at: float
    users: int = 0
    closing: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None


class OpenRooms:
    """Opens and closes the rooms that match a pattern."""

    def __init__(self, servers: Sequence[Server], pattern: str, open_app: OpenApp, *, idle: timedelta = IDLE) -> None:
        self._servers, self._pattern, self._open_app, self._idle_s = servers, pattern, open_app, idle.total_seconds()
        self._known: dict[str, FoundRoom] = {}
        self._open: dict[str, OpenRoom] = {}
        self._refreshed_at = float("-inf")
        self._refreshing = asyncio.Lock()  # two discoveries would overwrite each other's result
        self.found = Discovery(())

    @property
    def names(self) -> list[str]:
        """The names of the rooms that are open."""
        return sorted(self._open)

    @property
    def known(self) -> list[FoundRoom]:
        """The rooms that can be served, also rooms of servers that do not respond now."""
        return list(self._known.values())

    def loop(self) -> Loop:
        """Follow the rooms of all servers, and close idle ones."""
        return Loop("rooms", self.refresh, rest=REFRESH)

    async def refresh(self) -> None:
        """Find the rooms again; close those that are idle, or not ready any more where they were."""
        async with self._refreshing:
            self.found = await find_rooms(self._servers, self._pattern)
            silent = {failure.server for failure in self.found.failures}
            kept = {name: room for name, room in self._known.items() if room.server in silent}
            self._known = kept | {room.name: room for room in self.found.ready}
            self._refreshed_at = _now()
        for name, room in list(self._open.items()):
            is_there = name in self._known and self._known[name].server == room.place.server
            is_idle = not room.users and room.used_at + self._idle_s <= _now()
            if not is_there or is_idle:
                await self._close(name)

    @asynccontextmanager
    async def use(self, name: str) -> AsyncIterator[ServedRoom]:
        """The open room of this name; raises `RoomNotFound`, `RoomNotReady`, and errors of its database."""
        room = self._open.get(name) or self._begin(await self._find(name))
        room.users += 1
        try:
            yield await asyncio.shield(room.served)
        finally:
            room.users -= 1
            room.used_at = _now()

    async def close(self) -> None:
        for name in list(self._open):
            await self._close(name)

    async def _find(self, name: str) -> FoundRoom:
        if name not in self._known and _now() > self._refreshed_at + LEAST_REFRESH_S:
            await self.refresh()
        if name in self._known:
            return self._known[name]
        for room in self.found.rooms:
            if room.name == name:
                remedy = f" {room.move.remedy(name)}" if room.move else ""
                raise RoomNotReady(f"The room {name!r} is {room.move or room.state}; try again later.{remedy}")
        raise RoomNotFound(f"There is no room {name!r}.")

    def _begin(self, place: FoundRoom) -> OpenRoom:
        if place.name in self._open:  # opened by another request during the search
            return self._open[place.name]
        room = OpenRoom(place, asyncio.get_running_loop().create_future(), _now())
        self._open[place.name] = room
        room.task = asyncio.create_task(self._hold(room), name=f"room {place.name}")
        return room

    async def _hold(self, room: OpenRoom) -> None:
        """Keep the room open until it is closed: one task, because its resources end in the task that began them."""
        server = server_named(self._servers, room.place.server)
        try:
            async with self._open_app(server, room.place.name) as served:
                room.served.set_result(served)
                await room.closing.wait()
        except Exception as error:  # noqa: BLE001 - the requests that wait for the room get the error
            if not room.served.done():
                room.served.set_exception(error)
                room.served.exception()  # its waiters may have left
            else:
                _log.warning("room_lost", room=room.place.name, error=type(error).__name__)
        finally:
            if self._open.get(room.place.name) is room:
                del self._open[room.place.name]

    async def _close(self, name: str) -> None:
        room = self._open.pop(name, None)
        if room is not None and room.task is not None:
            room.closing.set()
            await asyncio.wait([room.task])


def _now() -> float:
    return asyncio.get_running_loop().time()
