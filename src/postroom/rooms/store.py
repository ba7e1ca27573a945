"""One function per statement of `queries.sql`, under the same name. Rows become models here and nowhere else."""

from collections.abc import Mapping
from typing import Any

from postroom.db.queries import Connection, load
from postroom.rooms.model import FoundRoom, Move, RoomState

QUERIES = load("postroom.rooms")


async def begin_move(connection: Connection, *, mark: str) -> int:
    return await QUERIES["begin_move"].exec(connection, mark=mark)


async def close_room(connection: Connection) -> int:
    return await QUERIES["close_room"].exec(connection)


async def count_claims(connection: Connection) -> int:
    return int((await QUERIES["count_claims"].one(connection))["claims"])


async def count_waiting(connection: Connection) -> int:
    return int((await QUERIES["count_waiting"].one(connection))["waiting"])


async def enter_room(connection: Connection, *, name: str) -> int:
    return await QUERIES["enter_room"].exec(connection, name=name)


async def inspect_room(connection: Connection) -> Mapping[str, Any]:
    return dict(await QUERIES["inspect_room"].one(connection))


async def limit_lock_wait(connection: Connection, *, milliseconds: int) -> int:
    return await QUERIES["limit_lock_wait"].exec(connection, milliseconds=milliseconds)


async def list_roles(connection: Connection) -> list[str]:
    return [row["role"] for row in await QUERIES["list_roles"].many(connection)]


async def list_rooms(connection: Connection, server: str) -> list[FoundRoom]:
    rows = await QUERIES["list_rooms"].many(connection)
    return [_found(row, server) for row in rows]


async def mark_move(connection: Connection, *, mark: str) -> int:
    return await QUERIES["mark_move"].exec(connection, mark=mark)


async def reopen_room(connection: Connection) -> int:
    return await QUERIES["reopen_room"].exec(connection)


async def try_move_lock(connection: Connection) -> bool:
    return bool((await QUERIES["try_move_lock"].one(connection))["is_locked"])


def _found(row: Mapping[str, Any], server: str) -> FoundRoom:
    move = None if row["moving"] is None else Move.parse(row["moving"])
    return FoundRoom(server=server, name=row["name"], state=_state(row, move), move=move)


def _state(row: Mapping[str, Any], move: Move | None) -> RoomState:
    if not row["is_permitted"]:
        return RoomState.DENIED
    if move is not None:
        return RoomState.MOVED if move.is_done else RoomState.MOVING
    return RoomState.RESTORING if row["is_restoring"] else RoomState.READY
