"""The doctor's checks of many rooms: their servers, their states, their limits, and the processes that serve them."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

import asyncpg

from postroom.cli import room_checks
from postroom.db.errors import DatabaseError
from postroom.db.pool import Session, connect
from postroom.db.queries import load
from postroom.db.shared_pool import enter_room
from postroom.embedded.server import running_url
from postroom.rooms import store
from postroom.rooms.model import Discovery, FoundRoom, RoomState
from postroom.rooms.service import Server, find_rooms, open_servers
from postroom.runtime.finding import Finding, Severity, fail, ok, warn
from postroom.settings import Settings

MOST_NAMED = 5  # rooms in one line; `postroom rooms list` shows all
PROCESS_SILENT = timedelta(minutes=3)  # a running process reports once a minute, a room that sleeps every 90 s
_QUERIES = load("postroom.cli", "doctor.sql")


@dataclass(slots=True)
class Inspection:
    """The facts of the rooms of all servers that responded."""

    interrupted: list[FoundRoom] = field(default_factory=list)  # no command runs their move
    limited: dict[str, str] = field(default_factory=dict)
    processes: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    unserved: list[str] = field(default_factory=list)


async def examine(settings: Settings, pattern: str) -> list[Finding]:
    """The findings about the rooms of POSTROOM_SERVERS that match; without it, about the one database."""
    is_embedded = not settings.servers and settings.database_url is None
    if is_embedded and await running_url(settings.data_dir.absolute()) is None:
        return []  # the row about the embedded server says so, and opening it would start it
    async with open_servers(settings) as servers:
        found = await find_rooms(servers, pattern, inspecting=True)
        inspection = Inspection()
        await asyncio.gather(*(_inspect(server, found, inspection) for server in servers))
        copied = [server for server in servers if settings.servers and server.settings.replica_url is not None]
        replicas = await asyncio.gather(*map(_replica, copied))
    return [
        *(_server(server, found) for server in servers),
        *(finding for finding in replicas if finding is not None),
        _migrations(found),
        _states(found),
        _moves(found, inspection),
        _limits(found, inspection),
        _processes(inspection),
    ]


# ── reading ───────────────────────────────────────────────────────────────────────────────────────────────────────


async def _inspect(server: Server, found: Discovery, inspection: Inspection) -> None:
    rooms = [room for room in found.rooms if room.server == server.name]
    if not rooms:
        return
    try:
        session = await connect(server.url, "pg_catalog")
    except DatabaseError:
        return  # it has responded before; the next run reports it
    try:
        for room in rooms:
            await enter_room(session, room.name)
            await _inspect_room(session, room, inspection)
    finally:
        await session.close()


async def _replica(server: Server) -> Finding | None:
    try:
        session = await connect(server.url, "pg_catalog")
    except DatabaseError:
        return None  # the row of the server reports it
    try:
        return await room_checks.examine_replica(session, server.settings, f"replica of {server.name}")
    finally:
        await session.close()


async def _inspect_room(session: Session, room: FoundRoom, inspection: Inspection) -> None:
    if room.move is not None and room.server == room.move.origin and await store.try_move_lock(session):
        await store.release_move_lock(session)
        inspection.interrupted.append(room)
    if room.state is not RoomState.READY:
        return
    try:
        limits = await room_checks.examine_room(session)
        rows = await _QUERIES["list_room_processes"].many(session, patience=PROCESS_SILENT)
    except (asyncpg.UndefinedTableError, asyncpg.InvalidSchemaNameError):
        return  # dropped meanwhile
    if limits.verdict is not Severity.OK:
        inspection.limited[room.name] = limits.found
    for row in rows:
        inspection.processes[f"{row['command']} {row['host']}/{row['pid']}"].append(room.name)
    if not any(row["command"] == "work" for row in rows):
        inspection.unserved.append(room.name)


# ── findings ──────────────────────────────────────────────────────────────────────────────────────────────────────


def _server(server: Server, found: Discovery) -> Finding:
    check = f"server {server.name}"
    for failure in found.failures:
        if failure.server == server.name:
            return fail(check, failure.reason, "check its URL in POSTROOM_SERVERS and that PostgreSQL runs")
    states = Counter(room.state.value for room in found.rooms if room.server == server.name)
    return ok(check, ", ".join(f"{count} rooms {state}" for state, count in sorted(states.items())) or "no room")


def _migrations(found: Discovery) -> Finding:
    newer = _names(found.rooms, RoomState.INCOMPATIBLE)
    if newer:
        return fail("room migrations", f"another version has migrated {_some(newer)}", "upgrade Postroom on this host")
    behind = _names(found.rooms, RoomState.PENDING)
    if behind:
        return fail("room migrations", f"not migrated: {_some(behind)}", "run `postroom rooms migrate '*'`")
    return ok("room migrations", "all rooms have the migrations of this version")


def _states(found: Discovery) -> Finding:
    """Rooms that no process serves because of their state."""
    duplicates = _names(found.rooms, RoomState.DUPLICATE)
    if duplicates:
        advice = "drop one with `postroom rooms drop NAME --server SERVER`; until then no process serves the room"
        return fail("room states", f"on several servers: {_some(duplicates)}", advice)
    restoring = _names(found.rooms, RoomState.RESTORING)
    if restoring:
        return warn("room states", f"half restored: {_some(restoring)}", "run `postroom restore` again")
    denied = _names(found.rooms, RoomState.DENIED)
    if denied:
        return warn("room states", f"not permitted: {_some(denied)}", "grant this role USAGE on the schemas")
    return ok("room states", "every room is on one server")


def _moves(found: Discovery, inspection: Inspection) -> Finding:
    if inspection.interrupted:
        room = inspection.interrupted[0]
        command = f"postroom rooms move {room.name}"
        if room.move is None or room.move.is_done:
            advice = f"finish it with `{command} --to {room.move.target if room.move else 'SERVER'}`"
        else:
            advice = f"finish it with `{command} --to {room.move.target}`, or undo it with `{command} --undo`"
        moves = _some([f"{each.name} ({each.move})" for each in inspection.interrupted])
        return fail("room moves", f"interrupted, and closed until a command ends them: {moves}", advice)
    running = _names(found.rooms, RoomState.MOVING)
    return ok("room moves", f"running: {_some(running)}" if running else "none")


def _limits(found: Discovery, inspection: Inspection) -> Finding:
    if not inspection.limited:
        return ok("limits of rooms", f"none of {len(found.ready)} rooms is closed or over its quota")
    shown = _some([f"{name}: {reason}" for name, reason in sorted(inspection.limited.items())])
    return warn("limits of rooms", shown, "change them with `postroom rooms limit NAME`")


def _processes(inspection: Inspection) -> Finding:
    shown = "; ".join(f"{name} serves {len(rooms)} rooms" for name, rooms in sorted(inspection.processes.items()))
    if inspection.unserved:
        found = f"no worker for {_some(sorted(inspection.unserved))}"
        return warn("room processes", f"{found}; {shown}" if shown else found, "start `postroom work --rooms '*'`")
    return ok("room processes", shown or "no room is ready")


def _names(rooms: Iterable[FoundRoom], state: RoomState) -> list[str]:
    return sorted({room.name for room in rooms if room.state is state})


def _some(names: Sequence[str]) -> str:
    rest = len(names) - MOST_NAMED
    return ", ".join(names[:MOST_NAMED]) + (f" and {rest} more" if rest > 0 else "")
