"""Move a room to another server.

    fence   the origin gets the mark `moving`: workers claim nothing more, sends continue
    drain   running attempts end, or their leases expire and are recovered
    close   triggers refuse every write to the origin, with an error that clients retry
    copy    a dump of the closed room is restored on the target and compared; the copy has the same mark and triggers
    commit  the origin's mark becomes `moved`
    open    the copy's triggers and mark are removed
    drop    the origin is dropped

At every moment at most one of the two accepts writes. Before the commit the origin is the room, and the move can be
undone; after it, the copy is. A command that was killed is continued by the same command: it repeats the copy, or
finishes what comes after the commit.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import asyncpg
import structlog

from postroom.backup.model import BackupManifest
from postroom.backup.service import restore_backup, write_backup
from postroom.db.connection import Url, current
from postroom.db.pool import Session, connect, open_pool
from postroom.db.url import parameters_of, with_parameter
from postroom.delivery.maintenance import Maintenance
from postroom.errors import PostroomError
from postroom.events.audit import record_audit
from postroom.mail.compose import maintenance_options
from postroom.rooms import store
from postroom.rooms.dropping import drop_schema, insist
from postroom.rooms.errors import MoveUnfinished, RoomExists, RoomNotFound, ServerUnreachable
from postroom.rooms.model import Discovery, FoundRoom, Move, RoomState
from postroom.rooms.service import Server, check_name, find_rooms, server_named
from postroom.runtime.loop import Signal, unheard

DRAIN_POLL_S = 0.5  # mail in flight needs about this long; a poll is one small query
_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Moving:
    """One move: the room, and the servers it moves between."""

    name: str
    origin: Server
    target: Server
    actor: str
    signal: Signal = unheard

    @property
    def mark(self) -> Move:
        return Move(self.origin.name, self.target.name)


@dataclass(frozen=True, slots=True)
class MoveResult:
    """A finished move, and the roles that could use the room on the old server."""

    origin: str
    target: str
    roles: tuple[str, ...] = ()


async def move_room(
    servers: Sequence[Server], name: str, *, to: str, actor: str, keep: bool = False, signal: Signal = unheard
) -> MoveResult | None:
    """Move a room, or continue a move that was interrupted. None: it is already there.

    With `keep`, the closed room stays on the old server in the state `moved`.
    """
    check_name(name)
    target = server_named(servers, to)
    origin = _origin(await _both(servers, name, target), name, to)
    if origin is None:
        return None
    async with _alone(server_named(servers, origin.server), name) as session:
        origin = _origin(await _both(servers, name, target), name, to)  # another command may have finished it
        if origin is None:
            return None
        moving = Moving(name, server_named(servers, origin.server), target, actor, signal)
        roles = await store.list_roles(session)
        if origin.state is not RoomState.MOVED:
            await _move_rows(moving, session)
            await store.mark_move(session, mark=str(replace(moving.mark, is_done=True)))
            signal("moved")
        await _open_copy(moving)
        signal("opened")
        if not keep:
            await drop_schema(moving.origin, name)
    return MoveResult(moving.origin.name, to, tuple(roles))


async def undo_move(servers: Sequence[Server], name: str, *, actor: str) -> str:
    """Undo a move that was interrupted before its commit; returns the server that has the room."""
    check_name(name)
    found = await find_rooms(servers, name)
    origin = next((room for room in found.rooms if room.move and room.server == room.move.origin), None)
    if origin is None or origin.move is None:
        raise RoomNotFound(f"There is no unfinished move of a room {name!r}.")
    if origin.move.is_done:
        raise MoveUnfinished(f"The room {name!r} is on {origin.move.target!r} already; run the same move again.")
    moving = Moving(name, server_named(servers, origin.server), server_named(servers, origin.move.target), actor)
    async with _alone(moving.origin, name) as session:
        await _undo(moving, session)
    return origin.server


# ── where the room is ─────────────────────────────────────────────────────────────────────────────────────────────


async def _both(servers: Sequence[Server], name: str, target: Server) -> Discovery:
    """The places of a room; the server that it moves to must respond."""
    found = await find_rooms(servers, name, inspecting=True)
    for failure in found.failures:
        if failure.server == target.name:
            raise ServerUnreachable(f"Server {failure.server!r} does not respond: {failure.reason}")
    return found


def _origin(found: Discovery, name: str, to: str) -> FoundRoom | None:
    """The place that the room leaves; None if it is on the server `to` and nowhere else."""
    marked = [room for room in found.rooms if room.move is not None and room.server == room.move.origin]
    for room in marked:
        if room.move is not None and room.move.target != to:
            raise MoveUnfinished(
                f"The room {name!r} is {room.move}; finish that move with --to {room.move.target}, or use --undo."
            )
        return room
    if [room.server for room in found.ready] == [to] and len(found.rooms) == 1:
        return None
    if not found.rooms:
        raise RoomNotFound(f"There is no room {name!r}.")
    if len(found.rooms) > 1 or found.rooms[0].state is not RoomState.READY:
        places = ", ".join(f"{room.state} on {room.server}" for room in found.rooms)
        raise RoomExists(f"The room {name!r} is {places}; it must be ready on one server, and not exist on {to!r}.")
    return found.rooms[0]


@asynccontextmanager
async def _alone(server: Server, name: str) -> AsyncIterator[Session]:
    """A session in the room that holds the lock of its moves."""
    session = await connect(as_mover(server.url), name)
    try:
        if not await store.try_move_lock(session):
            raise MoveUnfinished(f"Another command is moving the room {name!r} now.")
        yield session
    finally:
        await session.close()


# ── the steps ─────────────────────────────────────────────────────────────────────────────────────────────────────


async def _move_rows(moving: Moving, session: Session) -> None:
    """Everything before the commit; a failure undoes it, so that the origin works again."""
    try:
        await insist(session, lambda: store.begin_move(session, mark=str(moving.mark)))
        moving.signal("fenced")
        await _drain(moving, session)
        moving.signal("drained")
        await insist(session, lambda: store.close_room(session))
        moving.signal("closed")
        await _copy(moving)
        moving.signal("copied")
    except BaseException:
        try:
            await asyncio.shield(_undo(moving, session))
        except (PostroomError, OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
            _log.warning("move_not_undone", room=moving.name, error=type(error).__name__)
        raise


async def _drain(moving: Moving, session: Session) -> None:
    """Wait until no worker has a claim. Expired leases are recovered here too: there may be no worker left."""
    settings = moving.origin.settings_of(moving.name)
    async with await open_pool(moving.origin.url, moving.name, size=1) as pool:
        recovery = Maintenance(pool, maintenance_options(settings))
        while claims := await store.count_claims(session):
            _log.info("move_waits", room=moving.name, claims=claims)
            await recovery.recover()
            await asyncio.sleep(DRAIN_POLL_S)


async def _copy(moving: Moving) -> BackupManifest:
    """Restore a dump of the closed room on the target; a copy that an interrupted move left there is dropped."""
    await _drop_copy(moving)
    with TemporaryDirectory(prefix="postroom-move-") as directory:
        file = Path(directory) / f"{moving.name}.backup"
        await write_backup(moving.origin.url, moving.name, file, verify=False)
        moving.signal("dumped")
        url = as_mover(moving.target.url)
        return await restore_backup(url, file, actor=moving.actor, is_move=True, signal=moving.signal)


async def _open_copy(moving: Moving) -> None:
    """Let the copy accept writes; nothing is left to do if it does already."""
    if all(room.move is None for room in (await find_rooms([moving.target], moving.name)).rooms):
        return
    session = await connect(as_mover(moving.target.url), moving.name)
    try:
        async with session.transaction():
            await store.reopen_room(session)
            after = {"from": moving.origin.name, "to": moving.target.name}
            await record_audit(session, moving.actor, "room.move", f"room:{moving.name}", after=after)
    finally:
        await session.close()


async def _undo(moving: Moving, session: Session) -> None:
    """Drop the copy, then let the origin accept writes."""
    with suppress(RoomExists):  # not a copy, so it is not ours to drop
        await _drop_copy(moving)
    await insist(session, lambda: store.reopen_room(session))


async def _drop_copy(moving: Moving) -> None:
    """Drop the room on the target if it is the copy of this move, complete or not."""
    for room in (await find_rooms([moving.target], moving.name)).rooms:
        if room.move != moving.mark and room.state is not RoomState.RESTORING:
            raise RoomExists(f"The room {moving.name!r} exists on server {moving.target.name!r}.")
        await drop_schema(moving.target, moving.name)


def as_mover(url: Url) -> Url:
    """The URL for sessions that may write to a closed room."""

    def with_setting() -> str:
        options = f"{parameters_of(current(url)).get('options', '')} -c postroom.mover=on".strip()
        return with_parameter(current(url), "options", options)

    return with_setting
