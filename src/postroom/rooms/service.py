"""Servers, and the rooms on them."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

import asyncpg

from postroom.db.connection import Url
from postroom.db.errors import DatabaseError, MigrationPending
from postroom.db.migrate import check_migrated, list_rooms
from postroom.db.pool import Session, connect
from postroom.db.room import Room, open_database
from postroom.db.settings import parse_schema
from postroom.db.shared_pool import enter_room
from postroom.errors import BadInput, SettingInvalid
from postroom.rooms import store
from postroom.rooms.address import RoomAddress
from postroom.rooms.errors import ServerUnknown
from postroom.rooms.model import Discovery, FoundRoom, RoomState, ServerFailure, matches, without_duplicates
from postroom.settings import Settings

DEFAULT_SERVER = "default"
ROOMS_UNKNOWN = "A server does not respond, so its rooms are not known."
RESPONSE_S = 20.0  # to connect and to list the rooms; a server that takes longer is reported as down


@dataclass(frozen=True, slots=True)
class Server:
    """One database with rooms: a row of POSTROOM_SERVERS, or the only database."""

    name: str
    url: Url = field(repr=False)  # direct, without a pooler
    settings: Settings = field(repr=False)  # the process's own, with the database's URL

    def settings_of(self, room: str) -> Settings:
        """The settings to open one room of this server, with its public URL and stream of commands among many rooms."""
        address = RoomAddress(self.settings.base_url)
        return replace(self.settings, schema=room, public_url=address.url_of(room), room_commands=True)


Discover = Callable[[], Awaitable[Discovery]]
"""Finds all rooms, for a page that lists them."""


def servers_of(room: Room) -> tuple[Server, ...]:
    """The servers of POSTROOM_SERVERS; without it, the one of an open room."""
    return _table(room.settings) or (Server(DEFAULT_SERVER, room.direct, room.settings),)


@asynccontextmanager
async def open_servers(settings: Settings, *, creating: bool = False) -> AsyncIterator[tuple[Server, ...]]:
    """The servers of POSTROOM_SERVERS; without it one, named `default`, whose embedded server is started if needed."""
    if settings.servers or settings.server_replicas:
        yield _table(settings)
        return
    async with open_database(settings, creating=creating) as (_, direct):
        yield (Server(DEFAULT_SERVER, direct, settings),)


def server_named(servers: Sequence[Server], name: str) -> Server:
    """Raises `ServerUnknown` for a name that POSTROOM_SERVERS does not have."""
    for server in servers:
        if server.name == name:
            return server
    known = ", ".join(server.name for server in servers)
    raise ServerUnknown(f"There is no server {name!r}; POSTROOM_SERVERS has {known}.")


def check_name(name: str) -> None:
    """Raise `BadInput` unless this can be the name of a room; a pattern cannot."""
    try:
        parse_schema(name)
    except ValueError as error:
        raise BadInput.of("name", str(error)) from error
    if name == "public":
        raise BadInput.of("name", "must not be public, which every database has")


async def find_rooms(servers: Sequence[Server], pattern: str = "*", *, inspecting: bool = False) -> Discovery:
    """The rooms of all servers whose names match the pattern; `inspecting` also reads version and size of each."""
    answers = await asyncio.gather(*(_rooms_of(server, pattern, inspecting=inspecting) for server in servers))
    rooms = [room for answer in answers if not isinstance(answer, ServerFailure) for room in answer]
    return Discovery(
        without_duplicates(rooms), tuple(answer for answer in answers if isinstance(answer, ServerFailure))
    )


def _table(settings: Settings) -> tuple[Server, ...]:
    replicas = dict(settings.server_replicas)
    if unknown := sorted(replicas.keys() - dict(settings.servers).keys()):
        raise SettingInvalid("POSTROOM_SERVER_REPLICAS", f"names {unknown[0]}, which POSTROOM_SERVERS does not have")
    return tuple(
        Server(name, url, replace(settings, database_url=url, database_direct_url=None, replica_url=replicas.get(name)))
        for name, url in settings.servers
    )


async def _rooms_of(server: Server, pattern: str, *, inspecting: bool) -> list[FoundRoom] | ServerFailure:
    try:
        async with asyncio.timeout(None if inspecting else RESPONSE_S):
            session = await connect(server.url, "pg_catalog")
            try:
                found = [store.found_room(row, server.name) for row in await list_rooms(session)]
                rooms = [room for room in found if matches(room.name, pattern)]
                return [await _inspected(session, room) for room in rooms] if inspecting else rooms
            finally:
                await session.close()
    except (DatabaseError, OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        return ServerFailure(server.name, str(error) or f"no response within {RESPONSE_S:g} s")


async def _inspected(session: Session, room: FoundRoom) -> FoundRoom:
    """The room with its version and size; a room that another process drops meanwhile stays as it was found."""
    if room.state not in (RoomState.READY, RoomState.MOVING, RoomState.MOVED):
        return room
    await enter_room(session, room.name)
    try:
        known = replace(room, **await store.inspect_room(session))
        if room.state is RoomState.READY:
            await check_migrated(session, room.name)
    except MigrationPending:
        return replace(known, state=RoomState.PENDING)
    except DatabaseError:
        return replace(known, state=RoomState.INCOMPATIBLE)
    except asyncpg.InsufficientPrivilegeError:
        return replace(room, state=RoomState.DENIED)
    except (asyncpg.UndefinedTableError, asyncpg.InvalidSchemaNameError):
        return room
    return known
