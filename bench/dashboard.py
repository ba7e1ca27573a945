"""The dashboard of a large room while mail flows: time, size and cost of its pages, and the delay of the live overview.

The room has as many finished deliveries as the size of the round, over thirty days and seventy domains. While mail is
accepted at 10,000 a minute and sent by a worker to the no-op transport, a viewer opens each page once a second, and
probes measure the time from the commit of a delivery until the stream of the overview counts it. The CPU of a request
is measured afterwards, without the flow.
"""

import asyncio
import contextlib
import re
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

from bench import letters
from bench.cost import Meter, cpu_of_tree
from bench.growth import ROOM, create_filled_database
from bench.http_load import HttpClient
from bench.load import percentile
from bench.postroom_process import MADE_UP_SECRET, free_port, postroom, running
from bench.rows import PAGES
from bench.server import Arena
from bench.statements import read_statements
from postroom.dashboard.session import Sessions
from postroom.db.pool import Pool, open_pool
from postroom.delivery.check import check_batch, check_request
from postroom.delivery.model import DeliveryRequest, Lane
from postroom.delivery.service import accept, accept_batch
from postroom.http.model import Role
from postroom.http.operators import add_operator
from postroom.post.address import Address

SQL = read_statements(Path(__file__).with_suffix(".sql"))
PER_MINUTE = 10_000
BATCH = 50
ROUNDS = 40
COST_ROUNDS = 15
PACE_S = 1.0  # the overview is cached for 0.9 s
PROBE_PACE_S = 0.37
FOLDED = 20_000
PATIENCE_S = 30
WAITING = re.compile(rb'data-lane=\\"auth\\"><a href=\\"[^"]*\\">([\d,]+)')


async def measure_pages(arena: Arena, templates: Path, size: int) -> dict[str, float]:
    url = await create_filled_database(arena, templates, size)
    port = free_port()
    pool = await open_pool(url, ROOM, size=3)
    serve = postroom(url, templates, "serve", http_addr=f"127.0.0.1:{port}")
    work = postroom(url, templates, "work", transport="noop")
    try:
        await roll_up(pool)
        cookie = {"Cookie": f"postroom_session={await open_session(pool)}"}
        with running(serve, port=port) as server:
            viewer = await HttpClient.connect(port, cookie)
            with running(work):
                async with flowing(pool):
                    readings = await view_pages(viewer)
                    readings |= await measure_live(pool, await HttpClient.connect(port, cookie))
            readings |= await measure_costs(arena.meter, viewer, server.pid)
            await viewer.close()
    finally:
        await pool.close()
    return readings


async def roll_up(pool: Pool) -> None:
    while await pool.fetchval(SQL["roll_up"], FOLDED, timeout=600):
        pass
    await pool.execute(SQL["settle"])


async def open_session(pool: Pool) -> str:
    """The cookie of an operator who may see everything."""
    operator = await add_operator(pool, "bench@example.org", Role.ADMIN, actor="bench")
    sessions = Sessions(bytes.fromhex(MADE_UP_SECRET), ROOM)
    return sessions.seal(sessions.begin(operator))


@contextlib.asynccontextmanager
async def flowing(pool: Pool) -> AsyncIterator[None]:
    """Mail at `PER_MINUTE` for the length of the block."""
    flow = asyncio.create_task(_flow(pool))
    try:
        yield
        assert not flow.done(), flow.exception()
    finally:
        flow.cancel()
        await asyncio.wait([flow])


async def _flow(pool: Pool) -> None:
    loop = asyncio.get_running_loop()
    began, sent = loop.time(), 0
    async with pool.acquire() as connection:
        while True:
            await accept_batch(connection, check_batch([a_mail(sent + number) for number in range(BATCH)]))
            sent += BATCH
            await asyncio.sleep(max(0.0, began + sent * 60 / PER_MINUTE - loop.time()))


def a_mail(number: int) -> DeliveryRequest:
    return DeliveryRequest(
        to=(Address(letters.recipient(number)),),
        template=letters.TEMPLATE_ID,
        variables=letters.variables(number),
        locale=letters.LOCALE,
        source="bench",
        tags={"kind": f"kind-{number % 10}"},
    )


async def view_pages(viewer: HttpClient) -> dict[str, float]:
    """Milliseconds and size of each page, once a second; the first rounds fill caches."""
    taken: dict[str, list[float]] = {name: [] for name in PAGES}
    sizes: dict[str, int] = {}
    for _ in range(ROUNDS):
        next_round = asyncio.get_running_loop().time() + PACE_S
        for name, path in PAGES.items():
            began = time.perf_counter()
            status, body = await viewer.get(path)
            taken[name].append((time.perf_counter() - began) * 1_000)
            assert status == 200, (path, status)
            sizes[name] = len(body)
        await asyncio.sleep(max(0.0, next_round - asyncio.get_running_loop().time()))
    readings = {f"page-{name}-bytes": float(size) for name, size in sizes.items()}
    for name, milliseconds in taken.items():
        counted = milliseconds[ROUNDS // 8 :]
        readings |= {f"page-{name}-p50": percentile(counted, 50), f"page-{name}-p95": percentile(counted, 95)}
    return readings


class WaitingCount:
    """The number of waiting deliveries in lane auth, as the overview's stream reports it."""

    def __init__(self) -> None:
        self._count = -1
        self._changed = asyncio.Condition()

    async def follow(self, stream: HttpClient) -> None:
        async for line in stream.lines("/live"):
            if found := WAITING.search(line):
                async with self._changed:
                    self._count = int(found[1].replace(b",", b""))
                    self._changed.notify_all()

    async def reach(self, count: int) -> None:
        async with asyncio.timeout(PATIENCE_S), self._changed:
            await self._changed.wait_for(lambda: self._count >= count)


async def measure_live(pool: Pool, stream: HttpClient) -> dict[str, float]:
    """Milliseconds from the commit of a delivery, due much later, until the overview's stream counts it as waiting."""
    delays, waiting = [], WaitingCount()
    following = asyncio.create_task(waiting.follow(stream))
    try:
        await waiting.reach(0)
        for number in range(1, ROUNDS + 1):
            await accept_probe(pool, number)
            began = time.perf_counter()
            await waiting.reach(number)
            delays.append((time.perf_counter() - began) * 1_000)
            await asyncio.sleep(number * PROBE_PACE_S % 1)  # probes fall on every moment of the stream's interval
    finally:
        following.cancel()
        await asyncio.wait([following])
        await stream.close()
    return {"live-p50": percentile(delays, 50), "live-p95": percentile(delays, 95)}


async def accept_probe(pool: Pool, number: int) -> None:
    later = datetime.now(UTC) + timedelta(days=1)
    mail = DeliveryRequest(
        to=(Address(letters.recipient(number)),), subject="Probe", text="Probe.", lane=Lane.AUTH, send_at=later
    )
    async with pool.acquire() as connection:
        await accept(connection, check_request(mail))


async def measure_costs(meter: Meter, viewer: HttpClient, server: int) -> dict[str, float]:
    """CPU of one request: of PostgreSQL and of the server process, in microseconds."""
    readings: dict[str, float] = {}
    for name, path in PAGES.items():
        postgresql = python = 0.0
        for _ in range(COST_ROUNDS):
            await asyncio.sleep(PACE_S)
            before, began = await meter.read(), cpu_of_tree(server)
            await viewer.get(path)
            python += cpu_of_tree(server) - began
            postgresql += (await meter.read() - before).postgresql
        costs = {"postgresql": postgresql, "python": python}
        readings |= {f"page-{name}-{cost}": seconds / COST_ROUNDS * 1e6 for cost, seconds in costs.items()}
    return readings
