"""A worker of many rooms: they sleep without work, wake for any, take turns, and come and go while it runs."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from tests.conftest import TestServer
from tests.support.builders import Steps
from tests.support.rooms import execute, fetch_value, servers_with

from postroom.db.room import Room
from postroom.rooms.fleet import Fleet
from postroom.rooms.model import Watcher
from postroom.rooms.server_rooms import FleetOptions
from postroom.rooms.service import open_servers
from postroom.settings import Settings

NEVER = timedelta(hours=1)
PATIENCE_S = 60
WATCHER = Watcher(pid=1, host="tests", collects_tokens=True, publishers=("log",))
SEND = "SELECT {}.send('{{ada@example.org}}', p_subject => 'Hi', p_text => 'Hi')"
DELIVERED = "DELETE FROM {0}.due_deliveries; DELETE FROM {0}.delivery_steps"


class Worked:
    """Stands for the loops of a worker: records the rooms that it serves, and ends when asked."""

    def __init__(self) -> None:
        self.began: asyncio.Queue[str] = asyncio.Queue()
        self.ended: asyncio.Queue[str] = asyncio.Queue()

    async def __call__(self, room: Room, *, stop: asyncio.Event, upkeep_in: timedelta) -> None:
        self.began.put_nowait(room.name)
        await stop.wait()
        self.ended.put_nowait(room.name)


@asynccontextmanager
async def running(
    settings: Settings, worked: Worked, *, steps: Steps | None = None, **options: Any
) -> AsyncIterator[Fleet]:
    """A fleet that looks at a room only after a notification, unless the options say otherwise."""
    chosen: dict[str, Any] = {"check": NEVER, "discovery": NEVER, "look": timedelta(milliseconds=1), **options}
    async with open_servers(settings) as servers:
        fleet = Fleet(
            servers,
            "tenant_*",
            run_room=worked,
            watcher=WATCHER,
            options=FleetOptions(**chosen),
            signal=steps or Steps(),
        )
        stop = asyncio.Event()
        task = asyncio.create_task(fleet.run(stop))
        try:
            async with asyncio.timeout(PATIENCE_S):
                yield fleet
        finally:
            stop.set()
            await task


async def test_a_mail_wakes_its_room_and_no_other(server: TestServer) -> None:
    """`send` notifies the process in which the room sleeps; the room sleeps again when nothing is left."""
    async with servers_with(server, "tenant_a", "tenant_b", working=True) as settings:
        worked, steps, url = Worked(), Steps(), dict(settings.servers)["a"]
        async with running(settings, worked, steps=steps):
            for name in ("tenant_a", "tenant_b"):
                await steps.reached(f"asleep {name}")
            await execute(url, SEND.format("tenant_a"))
            assert await worked.began.get() == "tenant_a"
            await execute(url, DELIVERED.format("tenant_a"))
            assert await worked.ended.get() == "tenant_a"
            assert worked.began.empty()
        assert await fetch_value(url, "SELECT count(*) FROM tenant_a.workers") == 0
