"""Create, migrate, limit and drop rooms.

A new room is created only if every server responds: another one may have a room of that name. Migrations of many rooms
run one after the other on each server, on all servers at the same time; the failure of one room stops no other.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import asyncpg
import structlog

from postroom.accounts.service import renumber_restored_tokens
from postroom.backup.errors import BackupFailed
from postroom.backup.stores import back_up_before_migrating
from postroom.db.connection import Url
from postroom.db.errors import DatabaseError
from postroom.db.migrate import MigrationPlan, migrate
from postroom.db.pool import Pool, connect, open_pool
from postroom.delivery.maintenance import Maintenance
from postroom.delivery.service import choose_facts
from postroom.errors import PostroomError
from postroom.events.audit import record_audit
from postroom.events.service import adopt_restored_events
from postroom.limits.model import ROOM, SENT, MailLimits, Use
from postroom.limits.service import get_room_limits, read_use, set_room_limits
from postroom.mail.publishing import load_catalog, publish
from postroom.rooms import store
from postroom.rooms.dropping import drop_schema
from postroom.rooms.errors import DeliveriesWaiting, RoomExists, RoomNotFound, ServerUnreachable
from postroom.rooms.model import Discovery, FoundRoom, RoomState
from postroom.rooms.service import Server, check_name, find_rooms, server_named
from postroom.settings import Settings
from postroom.tracking.maintenance import TrackingPartitions

MIGRATED = frozenset({RoomState.READY, RoomState.PENDING, RoomState.DUPLICATE})
_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class RoomMigration:
    """The result of one room: the applied files and the backup made before, or the error."""

    room: FoundRoom
    plan: MigrationPlan | None = None
    backup: str | None = None
    error: str | None = None


async def create_room(servers: Sequence[Server], name: str, *, on: str, actor: str) -> None:
    """Create and migrate a room on one server; no server may have a room of this name."""
    server = server_named(servers, on)
    check_name(name)
    found = await find_everywhere(servers, name)
    if found.rooms:
        raise RoomExists(f"The room {name!r} exists on server {found.rooms[0].server!r}.")
    await migrate_room(server.url, server.settings_of(name), actor=actor)
    session = await connect(server.url, name)
    try:
        await record_audit(session, actor, "room.create", f"room:{name}", after={"server": server.name})
    finally:
        await session.close()


async def migrate_rooms(
    servers: Sequence[Server],
    pattern: str,
    *,
    actor: str,
    backup: bool = True,
    after: bool = False,
    report: Callable[[RoomMigration], None],
) -> Discovery:
    """Migrate every matching room on every server, and report each when it is done."""
    found = await find_rooms(servers, pattern)

    async def on_server(server: Server) -> None:
        for room in found.rooms:
            if room.server == server.name and room.state in MIGRATED:
                report(await _migrated(server, room, actor=actor, backup=backup, after=after))

    await asyncio.gather(*(on_server(server) for server in servers))
    return found


async def drop_room(
    servers: Sequence[Server], name: str, *, actor: str, server: str | None = None, force: bool = False
) -> FoundRoom:
    """Drop a room and everything in it; it must have no waiting deliveries unless `force` is set."""
    found = await find_room(servers, name, server=server)
    place = server_named(servers, found.server)
    session = await connect(place.url, name)
    try:
        waiting = 0 if found.state in (RoomState.RESTORING, RoomState.MOVED) else await store.count_waiting(session)
        if waiting and not force:
            raise DeliveriesWaiting(f"The room {name!r} has {waiting} waiting deliveries; drop it with --force.")
    finally:
        await session.close()
    await drop_schema(place, name)
    _log.warning("room_dropped", room=name, server=place.name, actor=actor, waiting=waiting)
    await _audit_at_home(servers, actor, found, waiting=waiting)
    return found


async def migrate_room(
    url: Url, settings: Settings, *, actor: str, backup: bool = True, dry_run: bool = False, after: bool = False
) -> tuple[MigrationPlan, str | None]:
    """The files that were applied, or would be, and where the room was backed up before."""
    plan, saved = await migrate(url, settings.schema, dry_run=True, after=after), None
    if dry_run:
        return plan, None
    if plan.migrations and backup:
        try:
            saved = await back_up_before_migrating(url, settings)
        except (BackupFailed, DatabaseError) as error:
            raise BackupFailed(
                f"The room {settings.schema!r} was not migrated, because it could not be backed up: {error.message} "
                "With a backup or snapshot of your own, run `postroom migrate --no-backup`."
            ) from error
    plan = await migrate(url, settings.schema, after=after)
    await settle_room(url, settings, actor=actor)
    return plan, saved


async def settle_room(url: Url, settings: Settings, *, actor: str) -> None:
    """Finish a migration: make partitions, publish the templates, adopt a restored database, configure facts."""
    catalog = load_catalog(settings)
    async with await open_pool(url, settings.schema, size=1) as pool:
        await _make_partitions(pool)
        await publish(pool, catalog, actor=actor)
        await adopt_restored_events(pool)
        await renumber_restored_tokens(pool)
        if settings.facts is not None:
            await choose_facts(pool, settings.facts)


async def _make_partitions(pool: Pool) -> None:
    """Make the first partitions before the first mail: a month with rows in the default partition gets none."""
    try:
        await Maintenance(pool).make_partitions()
        await TrackingPartitions(pool).run_once()
    except asyncpg.LockNotAvailableError:
        _log.warning("partitions_postponed")  # a long transaction writes; the workers try again


async def find_everywhere(servers: Sequence[Server], name: str) -> Discovery:
    """A room on all servers; raises `ServerUnreachable` if one does not respond, because it may have the room."""
    found = await find_rooms(servers, name)
    if found.failures:
        failure = found.failures[0]
        raise ServerUnreachable(
            f"Server {failure.server!r} may have a room {name!r}, but does not respond: {failure.reason}"
        )
    return found


async def find_room(servers: Sequence[Server], name: str, *, server: str | None = None) -> FoundRoom:
    """The room of this name, on this server if several have one."""
    check_name(name)
    if server is not None:
        server_named(servers, server)
    found = await find_rooms(servers, name)
    rooms = [room for room in found.rooms if server in (None, room.server)]
    if not rooms:
        silent = "".join(f" Server {failure.server!r} does not respond." for failure in found.failures)
        raise RoomNotFound(f"There is no room {name!r}.{silent}")
    if len(rooms) > 1:
        places = ", ".join(room.server for room in rooms)
        raise RoomExists(f"The room {name!r} is on several servers: {places}. Choose one with --server.")
    return rooms[0]


async def _migrated(server: Server, room: FoundRoom, *, actor: str, backup: bool, after: bool) -> RoomMigration:
    settings = server.settings_of(room.name)
    try:
        plan, saved = await migrate_room(server.url, settings, actor=actor, backup=backup, after=after)
    except (PostroomError, OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        return RoomMigration(room, error=str(error) or type(error).__name__)
    return RoomMigration(room, plan=plan, backup=saved)


async def _audit_at_home(servers: Sequence[Server], actor: str, dropped: FoundRoom, *, waiting: int) -> None:
    """Record a drop in the room of POSTROOM_SCHEMA, if there is one: the room's own audit log is gone."""
    home = servers[0].settings.schema
    for room in (await find_rooms(servers, home, inspecting=True)).ready:
        session = await connect(server_named(servers, room.server).url, home)
        try:
            before = {"server": dropped.server, "waiting": waiting}
            await record_audit(session, actor, "room.drop", f"room:{dropped.name}", before=before)
        finally:
            await session.close()


async def limit_room(
    servers: Sequence[Server], name: str, changes: Mapping[str, Any], *, server: str | None, actor: str
) -> tuple[MailLimits, list[Use]]:
    """Change limits of a room, if there are changes; returns all of them, and their use today."""
    room = await find_room(servers, name, server=server)
    async with await open_pool(server_named(servers, room.server).url, name, size=1) as pool:
        limits = await (set_room_limits(pool, changes, actor=actor) if changes else get_room_limits(pool))
        return limits, list((await read_use(pool, [ROOM, SENT])).values())
