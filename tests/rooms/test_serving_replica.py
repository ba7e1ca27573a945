"""`serve --rooms` reads listings from the replica of each server, which all rooms of the server share."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest
from tests.support.feedback import SECRET
from tests.support.http import Browser, a_key
from tests.support.outbox import until
from tests.support.streaming import StreamingReplica, replicated_room

from postroom.cli import fleet_checks
from postroom.cli.serve_rooms import open_one
from postroom.db.migrate import migrate
from postroom.db.room import open_room
from postroom.errors import SettingInvalid
from postroom.http.open_rooms import OpenRooms
from postroom.http.rooms_app import RoomsApplication
from postroom.rooms.address import RoomAddress
from postroom.rooms.service import find_rooms, open_servers
from postroom.rooms.sharing import connections_shared
from postroom.runtime.finding import Severity
from postroom.settings import Settings

LAG = "postroom-replica-lag"
MAIL = {"to": "ada@example.org", "subject": "s", "text": "t"}
ROOMS = ("tenant_a", "tenant_b")


@pytest.fixture(scope="module")
async def replicated(server_directory: Path) -> AsyncIterator[tuple[Settings, StreamingReplica]]:
    async with replicated_room(server_directory) as (url, replica):
        for room in ROOMS:
            await migrate(url, room)
        yield (
            Settings(
                servers=(("a", url),),
                server_replicas=(("a", replica.url),),
                replica_lag=timedelta(minutes=5),
                secret_key=SECRET,
                schema="tenant_a",
                public_url="https://mail.example.org",
            ),
            replica,
        )


@asynccontextmanager
async def serving(settings: Settings) -> AsyncIterator[dict[str, Browser]]:
    """A client of each room, of one process."""
    async with open_servers(settings) as servers, connections_shared(servers) as shared:
        open_app = partial(
            open_one, shared=shared, stop=asyncio.Event(), home="tenant_a", discover=partial(find_rooms, servers)
        )
        rooms = OpenRooms(servers, "tenant_*", open_app)
        app = RoomsApplication(rooms, RoomAddress(settings.base_url), home="tenant_a")
        browsers = {}
        for name in ROOMS:
            async with open_room(servers[0].settings_of(name)) as room:
                browsers[name] = Browser(app, (await a_key(room, f"tests{id(app)}", "*"))[0])
        try:
            yield browsers
        finally:
            await rooms.close()


async def listed(browser: Browser, room: str) -> tuple[list[int], bool]:
    """The deliveries that a listing shows, and whether it comes from the replica."""
    response = await browser.get(f"/rooms/{room}/v1/deliveries?limit=100")
    assert response.status == 200
    return [item["id"] for item in response.json["items"]], LAG in response.headers


async def test_rooms_read_the_replica_of_their_server(replicated: tuple[Settings, StreamingReplica]) -> None:
    """Each room finds its own mail there. When the replica is lost, the primary answers."""
    settings, replica = replicated
    async with serving(settings) as browsers:
        for count, (name, browser) in enumerate(browsers.items(), 1):
            for _ in range(count):
                assert (await browser.post(f"/rooms/{name}/v1/deliveries", json=MAIL)).status == 202
        for count, (name, browser) in enumerate(browsers.items(), 1):
            await until(partial(_shows, browser, name, count))
        assert (await fleet_checks.examine(settings, "tenant_*"))[1].verdict is Severity.OK
        replica.kill()
        for name, browser in browsers.items():
            assert (await listed(browser, name))[1] is False
        finding = (await fleet_checks.examine(settings, "tenant_*"))[1]
        assert (finding.check, finding.verdict) == ("replica of a", Severity.WARN)


async def _shows(browser: Browser, room: str, count: int) -> bool:
    """True if the replica has that many deliveries of this room."""
    shown, is_replica = await listed(browser, room)
    return is_replica and len(shown) == count


@pytest.mark.parametrize("servers", [(), (("a", "postgresql://x@127.0.0.1:1/none"),)])
async def test_a_replica_of_an_unknown_server_is_refused(servers: tuple[tuple[str, str], ...]) -> None:
    """A misspelt name would leave the replica unread without a word."""
    settings = Settings(servers=servers, server_replicas=(("b", "postgresql://x@127.0.0.1:1/none"),))
    with pytest.raises(SettingInvalid, match="names b"):
        async with open_servers(settings):
            pass
