"""Every listing with every filter in a small room and in a very large one, measured by turns, one table at a time.

A request is a call of the application in this process: routing, key, statements and JSON or HTML, without a socket.
"""

import contextlib
import statistics
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

import asyncpg

from bench.cost import Meter
from bench.listings import LISTINGS, Listing, empty, fill, offered_filters, page_filters, targets
from bench.postroom_process import MADE_UP_SECRET
from bench.server import Arena
from postroom.dashboard.endpoints import build_dashboard
from postroom.dashboard.session import Sessions
from postroom.db.room import Room, open_room
from postroom.http.asgi import HttpApplication, build_app
from postroom.http.auth import Authenticator
from postroom.http.model import Role
from postroom.http.operators import add_operator
from postroom.http.service import create_key
from postroom.settings import Settings

SMALL = 10_000
UNTIMED = 6  # plans are cached from the sixth execution on
TIMED = 15
FAST_FILL = {"fsync": "off", "full_page_writes": "off", "max_wal_size": "8GB"}


@dataclass(frozen=True)
class Visitor:
    """A room, its application, and the headers of a key and of a session."""

    room: Room
    app: HttpApplication
    headers: dict[str, str]
    filler: asyncpg.Connection

    async def get(self, target: str) -> bytes:
        """The body of a page; fails unless its status is 200."""
        parts, received = urlsplit(target), []
        name = "authorization" if parts.path.startswith("/v1/") else "cookie"
        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "GET", "scheme": "http",
            "path": unquote(parts.path), "raw_path": parts.path.encode(), "query_string": parts.query.encode(),
            "root_path": "", "headers": [(name.encode(), self.headers[name].encode())], "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 80),
        }  # fmt: skip

        async def receive() -> dict[str, object]:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: dict[str, object]) -> None:
            received.append(message)

        await self.app(scope, receive, send)  # type: ignore[arg-type]
        assert received[0]["status"] == 200, (target, received)
        return b"".join(message.get("body", b"") for message in received[1:])  # type: ignore[misc]

    async def timed(self, target: str) -> float:
        began = time.perf_counter()
        await self.get(target)
        return time.perf_counter() - began


@contextlib.asynccontextmanager
async def visited_room(arena: Arena, name: str) -> AsyncIterator[Visitor]:
    url = await arena.create_database(f"bench_listings_{name}_{time.monotonic_ns()}")
    async with open_room(Settings(database_url=url), migrating=True) as room:
        auth, secret = Authenticator(room.pool), bytes.fromhex(MADE_UP_SECRET)
        app = build_app(room, sites=[build_dashboard(room, secret=secret, auth=auth)], auth=auth)
        key, _row = await create_key(room.pool, "bench", scopes=["*"], actor="bench")
        operator = await add_operator(room.pool, "bench@example.org", Role.ADMIN, actor="bench")
        sessions = Sessions(secret, room.name)
        cookie = f"postroom_session={sessions.seal(sessions.begin(operator))}"
        filler = await asyncpg.connect(url, server_settings={"search_path": room.name})
        yield Visitor(room, app, {"authorization": f"Bearer {key}", "cookie": cookie}, filler)
        await filler.close()


@contextlib.asynccontextmanager
async def fast_fill(arena: Arena) -> AsyncIterator[None]:
    """Settings of the server under which ten million rows take a minute; nothing measured here writes."""
    connection = await asyncpg.connect(arena.admin_url)
    for name, value in FAST_FILL.items():
        await connection.execute(f"ALTER SYSTEM SET {name} = '{value}'")
    await connection.execute("SELECT pg_reload_conf()")
    yield
    for name in FAST_FILL:
        await connection.execute(f"ALTER SYSTEM RESET {name}")
    await connection.execute("SELECT pg_reload_conf()")
    await connection.close()


async def measure_every_listing(arena: Arena, size: int) -> dict[str, float]:
    """Milliseconds of each page in the larger room, their ratio to the smaller one, and the CPU of PostgreSQL."""
    readings: dict[str, float] = {}
    async with visited_room(arena, "few") as few, visited_room(arena, "many") as many, fast_fill(arena):
        for listing in LISTINGS:
            await fill(few.filler, listing, SMALL)
            await fill(many.filler, listing, size)
            for path in listing.paths:
                readings |= await _measure_path(arena.meter, listing, path, few, many)
            await empty(few.filler, listing)
            await empty(many.filler, listing)
    return readings


async def _measure_path(meter: Meter, listing: Listing, path: str, few: Visitor, many: Visitor) -> dict[str, float]:
    readings: dict[str, float] = {}
    is_page = not path.startswith("/v1/")
    filters = page_filters((await few.get(path)).decode()) if is_page else offered_filters(path)
    for target, row in targets(listing, path, filters):
        pairs = [(await few.timed(target), await many.timed(target)) for _ in range(UNTIMED + TIMED)][UNTIMED:]
        small, large = (statistics.median(each) * 1_000 for each in zip(*pairs, strict=True))
        readings |= {row: large, f"{row}-growth": large / small, **await _cost(meter, row, many, target)}
    return readings


async def _cost(meter: Meter, row: str, many: Visitor, target: str) -> dict[str, float]:
    """Microseconds of CPU for one request: they hardly change with other load on the machine."""
    before = await meter.read()
    for _ in range(TIMED):
        await many.get(target)
    spent = await meter.read() - before
    costs = {"postgresql": spent.postgresql, "python": spent.clients}
    return {f"{row}-{name}": seconds / TIMED * 1e6 for name, seconds in costs.items()}
