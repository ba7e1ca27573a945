"""`postroom serve --rooms`: HTTP for many rooms by one process."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

from postroom.cli.lifetime import Lifetime
from postroom.cli.listeners import http_limits, open_application
from postroom.http.asgi import HttpApplication, make_combiner
from postroom.http.auth import Authenticator
from postroom.http.open_rooms import OpenRooms
from postroom.http.rooms_app import RoomsApplication
from postroom.rooms.address import RoomAddress
from postroom.rooms.service import Discover, Server, find_rooms, open_servers
from postroom.rooms.sharing import RoomOn, connections_shared
from postroom.runtime import uvicorn_server
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
    with uvicorn_server.bind(settings.http_addr) as listener:
        async with open_servers(settings) as servers, connections_shared(servers) as room_on:
            discover = partial(find_rooms, servers, inspecting=True)
            open_app = partial(open_one, room_on=room_on, stop=life.stop, home=settings.schema, discover=discover)
            rooms = OpenRooms(servers, pattern, open_app)
            await rooms.refresh()
            life.running()
            following = asyncio.create_task(run_loops([rooms.loop()], stop=life.stop), name="rooms")

            def ready() -> None:
                at = uvicorn_server.url_of(listener)
                say(f"Postroom answers at {at} for {len(rooms.found.ready)} rooms: {address.url_of('<room>')}")

            try:
                await uvicorn_server.serve(
                    RoomsApplication(rooms, address, home=settings.schema),
                    listener,
                    life.stop,
                    grace=settings.work_grace,
                    on_ready=ready,
                    limits=http_limits(settings),
                )
            finally:
                life.stop.set()
                await following
                await rooms.close()


@asynccontextmanager
async def open_one(
    server: Server, name: str, *, room_on: RoomOn, stop: asyncio.Event, home: str, discover: Discover
) -> AsyncIterator[HttpApplication]:
    """The application of one room. Only the one of POSTROOM_SCHEMA lists the others: tenants do not see each other."""
    room = room_on(server, name)
    async with AsyncExitStack() as stack:
        accepting = make_combiner(room)
        stack.push_async_callback(accepting.close)
        opened = open_application(
            room,
            stop=stop,
            auth=Authenticator(room.pool),
            accepting=accepting,
            discover=discover if name == home else None,
        )
        yield await stack.enter_async_context(opened)
