"""One function per statement of `queries.sql`, under the same name. Rows become models here and nowhere else."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

from postroom.db.processes import RegisteredProcess
from postroom.db.queries import Connection, Statement, load
from postroom.rooms.model import FoundRoom, Move, RoomState, Watched

QUERIES = load("postroom.rooms")


async def begin_move(connection: Connection, *, mark: str) -> int:
    return await QUERIES["begin_move"].exec(connection, mark=mark)


async def close_room(connection: Connection) -> int:
    return await QUERIES["close_room"].exec(connection)


async def count_claims(connection: Connection) -> int:
    return int((await QUERIES["count_claims"].one(connection))["claims"])


async def count_waiting(connection: Connection) -> int:
    return int((await QUERIES["count_waiting"].one(connection))["waiting"])


async def count_writes(connection: Connection) -> dict[str, int]:
    """By room; empty if the server does not count writes."""
    return {row["room"]: row["writes"] for row in await QUERIES["count_writes"].many(connection)}


async def find_work(
    connection: Connection, *, collects_tokens: bool, publishers: Sequence[str], within: timedelta
) -> tuple[list[str], bool]:
    row = await QUERIES["find_work"].one(
        connection, collects_tokens=collects_tokens, publishers=publishers, within=within
    )
    return row["due"], row["has_claims"]


async def forget_sleeper(connection: Connection, rooms: Sequence[str], *, pid: int, host: str) -> None:
    """One statement for several rooms."""
    await _together("forget_sleeper", rooms).many(connection, pid=pid, host=host)


async def inspect_room(connection: Connection) -> Mapping[str, Any]:
    return dict(await QUERIES["inspect_room"].one(connection))


async def limit_lock_wait(connection: Connection, *, milliseconds: int) -> int:
    return await QUERIES["limit_lock_wait"].exec(connection, milliseconds=milliseconds)


async def list_roles(connection: Connection) -> list[str]:
    return [row["role"] for row in await QUERIES["list_roles"].many(connection)]


async def mark_move(connection: Connection, *, mark: str) -> int:
    return await QUERIES["mark_move"].exec(connection, mark=mark)


async def release_move_lock(connection: Connection) -> int:
    return await QUERIES["release_move_lock"].exec(connection)


async def renew_sleeper(connection: Connection, rooms: Sequence[str], *, pid: int, host: str) -> list[bool]:
    """One statement for several rooms."""
    return [row["is_new"] for row in await _together("renew_sleeper", rooms).many(connection, pid=pid, host=host)]


async def reopen_room(connection: Connection) -> int:
    return await QUERIES["reopen_room"].exec(connection)


async def try_move_lock(connection: Connection) -> bool:
    return bool((await QUERIES["try_move_lock"].one(connection))["is_locked"])


def found_room(row: Mapping[str, Any], server: str) -> FoundRoom:
    move = None if row["moving"] is None else Move.parse(row["moving"])
    return FoundRoom(server=server, name=row["name"], state=_state(row, move), move=move)


def _state(row: Mapping[str, Any], move: Move | None) -> RoomState:
    if not row["is_permitted"]:
        return RoomState.DENIED
    if move is not None:
        return RoomState.MOVED if move.is_done else RoomState.MOVING
    return RoomState.RESTORING if row["is_restoring"] else RoomState.READY


async def wake_room(connection: Connection, *, pid: int, host: str, release: int) -> tuple[int, RegisteredProcess]:
    row = await QUERIES["wake_room"].one(connection, pid=pid, host=host, release=release)
    return row["worker_id"], RegisteredProcess(row["process_id"], row["applied"])


async def watch_room(
    connection: Connection,
    rooms: Sequence[str],
    *,
    pid: int,
    host: str,
    collects_tokens: bool,
    publishers: Sequence[str],
) -> list[Watched]:
    """One statement for several rooms."""
    rows = await _together("watch_room", rooms).many(
        connection, pid=pid, host=host, collects_tokens=collects_tokens, publishers=publishers
    )
    return [Watched(**row) for row in rows]


def _together(name: str, rooms: Sequence[str]) -> Statement:
    """One statement that calls a function in each of these rooms; the arguments are the same for all."""
    statements = [QUERIES.in_room(name, room) for room in rooms]
    return replace(statements[0], kind="many", sql="\nUNION ALL\n".join(each.sql for each in statements))
