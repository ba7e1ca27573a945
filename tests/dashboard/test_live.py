"""The stream of figures over a real connection."""

import asyncio

import aiohttp
import msgspec
from tests.support.dashboard import dashboard_app, open_guest
from tests.support.http import served

from postroom.dashboard.overview import PARTS
from postroom.db.room import Room


async def test_the_stream_begins_with_everything_and_ends_with_the_process(room: Room) -> None:
    """The first event holds every part; when the process stops, the stream ends at once."""
    stop = asyncio.Event()
    app = dashboard_app(room, stop=stop)
    guest = await open_guest(room, app=app)
    async with (
        served(app) as url,
        aiohttp.ClientSession(headers={"cookie": guest.cookie or ""}) as client,
        asyncio.timeout(60),
        client.get(f"{url}/live") as response,
    ):
        assert response.headers["content-type"].startswith("text/event-stream")
        assert response.headers["cache-control"] == "no-store"
        lines = [await response.content.readline() for _ in range(4)]
        assert lines[:3] == [b"retry: 2000\n", b"\n", b"event: figures\n"]
        assert tuple(msgspec.json.decode(lines[3].removeprefix(b"data: "))) == tuple(PARTS)
        stop.set()
        await response.content.read()  # to its end
