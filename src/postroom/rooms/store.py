"""One function per statement of `queries.sql`, under the same name. Rows become models here and nowhere else."""

from collections.abc import Mapping
from typing import Any

from postroom.db.queries import Connection, load
from postroom.rooms.model import FoundRoom, RoomState

QUERIES = load("postroom.rooms")
MOVED = "moved "  # the first word of the mark's comment when the room is open on its new server


async def count_waiting(connection: Connection) -> int:
    return int((await QUERIES["count_waiting"].one(connection))["waiting"])


async def enter_room(connection: Connection, *, name: str) -> int:
    return await QUERIES["enter_room"].exec(connection, name=name)


async def inspect_room(connection: Connection) -> Mapping[str, Any]:
    return dict(await QUERIES["inspect_room"].one(connection))


async def list_rooms(connection: Connection, server: str) -> list[FoundRoom]:
    rows = await QUERIES["list_rooms"].many(connection)
    return [FoundRoom(server=server, name=row["name"], state=_state(row)) for row in rows]


def _state(row: Mapping[str, Any]) -> RoomState:
    if not row["is_permitted"]:
        return RoomState.DENIED
    if row["moving"] is not None:
        return RoomState.MOVED if row["moving"].startswith(MOVED) else RoomState.MOVING
    return RoomState.RESTORING if row["is_restoring"] else RoomState.READY
