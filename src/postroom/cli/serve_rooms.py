"""`postroom serve --rooms`: HTTP for many rooms by one process."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

from postroom.cli.lifetime import Lifetime
from postroom.cli.listeners import (
    http_limits,
    mail_doors,
    open_application,
    submitter,
    take_doors,
)
from postroom.db.errors import DatabaseUnreachable
from postroom.db.pool import Pool
from postroom.errors import Unauthenticated
from postroom.feedback.report_rooms import ReportRooms, report_rooms
from postroom.http.asgi import make_combiner
from postroom.http.auth import Authenticator
from postroom.http.open_rooms import OpenRooms, ServedRoom
from postroom.http.rooms_app import RoomsApplication
from postroom.intake.smtp.handler import RoomOf, SubmissionRoom
from postroom.intake.smtp.server import allows_any_login
from postroom.rooms.address import RoomAddress
from postroom.rooms.errors import RoomNotFound
from postroom.rooms.service import ROOMS_UNKNOWN, Discover, Server, find_rooms, open_servers
from postroom.rooms.sharing import SharedConnections, connections_shared
from postroom.runtime import uvicorn_server
from postroom.runtime.http_address import remembered
from postroom.runtime.loop import run_loops
from postroom.runtime.secret_key import with_secret_key
from postroom.runtime.terminal import say
from postroom.runtime.tracing import enable_tracing
from postroom.settings import Settings


async def serve_rooms(settings: Settings, pattern: str, life: Lifetime) -> None:
    """Serve the rooms that match on all servers, until the process is stopped."""
    settings = with_secret_key(settings, making=False)
    if settings.tracing:
        enable_tracing()
    address = RoomAddress(settings.base_url)
    with take_doors(settings) as doors, remembered(settings, doors.http.getsockname()[:2]):
        async with open_servers(settings) as servers, connections_shared(servers) as shared:
            discover = partial(find_rooms, servers, inspecting=True)
            open_app = partial(open_one, shared=shared, stop=life.stop, home=settings.schema, discover=discover)
            rooms = OpenRooms(servers, pattern, open_app)
            await rooms.refresh()
            life.running()
            following = asyncio.create_task(run_loops([rooms.loop()], stop=life.stop), name="rooms")

            room_of = submission_room(rooms, any_login=allows_any_login(settings))

            def ready() -> None:
                say(f"Postroom answers at {doors.url} for {len(rooms.found.ready)} rooms: {address.url_of('<room>')}")

            try:
                async with mail_doors(settings, doors, room_of, reported_rooms(settings, rooms, shared)):
                    await uvicorn_server.serve(
                        RoomsApplication(rooms, address, home=settings.schema),
                        doors.http,
                        life.stop,
                        grace=settings.work_grace,
                        on_ready=ready,
                        limits=http_limits(settings),
                    )
            finally:
                life.stop.set()
                await following
                await rooms.close()


def reported_rooms(settings: Settings, rooms: OpenRooms, shared: SharedConnections) -> ReportRooms:
    """The rooms that get reports; the home is POSTROOM_SCHEMA."""

    def pools() -> Iterator[tuple[str, Pool]]:
        for room in rooms.known:
            yield room.name, shared[room.server].pool.of(room.name)
        if rooms.found.failures or not rooms.known:
            raise DatabaseUnreachable(ROOMS_UNKNOWN)

    return report_rooms(pools, settings.secret_keys, home=settings.schema)


@asynccontextmanager
async def open_one(
    server: Server, name: str, *, shared: SharedConnections, stop: asyncio.Event, home: str, discover: Discover
) -> AsyncIterator[ServedRoom]:
    """One room, open. Only the one of POSTROOM_SCHEMA lists the others: tenants do not see each other."""
    connections = shared[server.name]
    room = connections.room(name)
    async with AsyncExitStack() as stack:
        auth, accepting = Authenticator(room.pool), make_combiner(room)
        stack.push_async_callback(accepting.close)
        opened = open_application(
            room,
            stop=stop,
            auth=auth,
            accepting=accepting,
            replica=connections.replica_of(room),
            discover=discover if name == home else None,
        )
        yield ServedRoom(await stack.enter_async_context(opened), auth, accepting)


def submission_room(rooms: OpenRooms, *, any_login: bool) -> RoomOf:
    """Find the room of an SMTP client: its user name is the name of the room, its password a key of that room."""

    @asynccontextmanager
    async def room_of(user: str) -> AsyncIterator[SubmissionRoom]:
        async with AsyncExitStack() as stack:
            try:
                served = await stack.enter_async_context(rooms.use(user))
            except RoomNotFound as error:
                raise Unauthenticated from error  # as for a wrong key: strangers learn no names
            yield SubmissionRoom(served.accepting, submitter(served.auth, any_login=any_login))

    return room_of
