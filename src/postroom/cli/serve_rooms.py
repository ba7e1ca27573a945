"""`postroom serve --rooms`: HTTP for many rooms by one process."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial

from postroom.cli.lifetime import Lifetime
from postroom.cli.listeners import http_limits, open_application
from postroom.db.room import open_room
from postroom.http.asgi import HttpApplication, make_combiner
from postroom.http.auth import Authenticator
from postroom.http.open_rooms import POOL_SIZE, OpenRooms
from postroom.http.rooms_app import RoomsApplication
from postroom.rooms.address import RoomAddress
from postroom.rooms.service import Discover, find_rooms, open_servers
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
        async with open_servers(settings) as servers:
            discover = partial(find_rooms, servers, inspecting=True)
            open_app = partial(open_one, stop=life.stop, home=settings.schema, discover=discover)
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
                    grace=settings.shutdown_grace,
                    on_ready=ready,
                    limits=http_limits(settings),
                )
            finally:
                life.stop.set()
                await following
                await rooms.close()


@asynccontextmanager
async def open_one(
    settings: Settings, *, stop: asyncio.Event, home: str, discover: Discover
) -> AsyncIterator[HttpApplication]:
    """The application of one room. Only the one of POSTROOM_SCHEMA lists the others: tenants do not see each other."""
    async with AsyncExitStack() as stack:
        small = replace(settings, pool_size=min(settings.pool_size, POOL_SIZE))
        room = await stack.enter_async_context(open_room(small))
        shown = discover if room.name == home else None
        accepting = make_combiner(room)
        stack.push_async_callback(accepting.close)
        auth = Authenticator(room.pool)
        opened = open_application(room, stop=stop, auth=auth, accepting=accepting, discover=shown)
        yield await stack.enter_async_context(opened)
