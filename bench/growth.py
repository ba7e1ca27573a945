"""The cost of listings, appends and ticks in a small room and in a very large one, measured by turns.

The smaller room has ten thousand finished deliveries, events or planned occasions, the larger one as many as the size
of the round: a million, or `python -m bench growth --size 10000000`. Two hundred deliveries in each room, spread
evenly, have the values that listings look for.
"""

import contextlib
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import asyncpg
import msgspec

from bench import letters
from bench.events import Postroom as Store
from bench.load import compare
from bench.postroom_process import ask, postroom
from bench.schedule import measure_ticks
from bench.server import Arena
from bench.statements import read_statements
from bench.workers import run_workers
from postroom.db.pool import Pool, open_pool
from postroom.db.room import open_room
from postroom.delivery import service
from postroom.delivery.check import check_request
from postroom.delivery.model import DeliveryFilter, DeliveryRequest, DeliveryState, Lane
from postroom.post.address import Address
from postroom.settings import Settings

SQL = read_statements(Path(__file__).with_suffix(".sql"))
ROOM = "postroom"
SMALL = 10_000
RARE = 200
APPEND_ROUNDS = 6
APPEND_SECONDS = 0.5
TICK_ROUNDS = 40
DAYS = 30

RARE_DATA = {"kind": "rare"}
LISTINGS: dict[str, Callable[[], DeliveryFilter]] = {
    "newest": DeliveryFilter,
    "recipient": lambda: DeliveryFilter(recipient="ada@rare.example"),
    "domain": lambda: DeliveryFilter(recipient_domain="rare.example"),
    "cancelled": lambda: DeliveryFilter(state=DeliveryState.CANCELLED),
    "sent": lambda: DeliveryFilter(state=DeliveryState.SENT),
    "template": lambda: DeliveryFilter(template_id="rare"),
    "source": lambda: DeliveryFilter(source="rare"),
    "campaign": lambda: DeliveryFilter(campaign_id=77),
    "tag": lambda: DeliveryFilter(tags=RARE_DATA),
    "custom-data": lambda: DeliveryFilter(custom_data=RARE_DATA),
    "part": lambda: DeliveryFilter(recipient_contains="da@rare"),
    "lane": lambda: DeliveryFilter(lane=Lane.AUTH),
    "sender": lambda: DeliveryFilter(sender_account_id=77),
    "message-id": lambda: DeliveryFilter(message_id="rare@example.org"),
    "reason": lambda: DeliveryFilter(reason="none"),
    "finished": lambda: DeliveryFilter(finished_before=datetime.now(UTC) - timedelta(days=DAYS / 2)),
    "key": lambda: DeliveryFilter(idempotency_key="key-5000"),
    "time": lambda: DeliveryFilter(created_before=datetime.now(UTC) - timedelta(days=DAYS / 2)),
    "combined": lambda: DeliveryFilter(source="rare", state=DeliveryState.CANCELLED, recipient_domain="rare.example"),
}
"""Filters that few deliveries match, all that any match, and several together."""

USUAL = DeliveryRequest(
    to=(Address("usual@example.org"),),
    template=letters.TEMPLATE_ID,
    variables=letters.variables(0),
    locale=letters.LOCALE,
    source="bench",
    idempotency_key="usual",
)
SELDOM = DeliveryRequest(
    to=(Address("ada@rare.example"),),
    subject="Rare",
    text="Rare.",
    source="rare",
    idempotency_key="rare",
    tags=RARE_DATA,
    custom_data=RARE_DATA,
)


def copied_values(count: int, word: str) -> dict[str, str]:
    """SQL for columns in which copies differ."""
    made_at = f"now() - interval '{DAYS} days' * (1 - n / {count}.0)"
    return {
        "idempotency_key": f"'{word}-' || n",
        "deliveries.created_at": made_at,
        "deliveries.finished_at": made_at,
        "delivery_steps.at": made_at,
        **dict.fromkeys(("deliveries.position", "delivery_steps.position"), "nextval('events_position_seq')"),
        "delivery_steps.domain": "CASE WHEN s.domain IS NOT NULL THEN 'domain-' || n % 70 || '.example' END",
    }


USUAL_VALUES = {"deliveries.recipient_email": "'reader-' || n || '@domain-' || n % 500 || '.example'"}
SELDOM_VALUES = {
    "deliveries.template_id": "'rare'",
    **dict.fromkeys(("deliveries.campaign_id", "deliveries.endpoint_id", "deliveries.sender_account_id"), "77"),
}


@contextlib.asynccontextmanager
async def filled_room(arena: Arena, templates: Path, size: int) -> AsyncIterator[Pool]:
    """The pool of a filled database."""
    pool = await open_pool(await create_filled_database(arena, templates, size), ROOM, size=2)
    try:
        yield pool
    finally:
        await pool.close()


async def create_filled_database(arena: Arena, templates: Path, size: int) -> str:
    """The URL of a room with so many finished deliveries, all of them copies of two real ones."""
    url = await arena.create_database(f"bench_growth_{size}_{time.monotonic_ns()}")
    ask(postroom(url, templates, "migrate"))
    pool = await open_pool(url, ROOM, size=2)
    try:
        async with pool.acquire() as connection:
            usual = (await service.accept(connection, check_request(USUAL))).id
            seldom = (await service.accept(connection, check_request(SELDOM))).id
        await service.cancel(pool, seldom, actor="bench")
        await run_workers([postroom(url, templates, "work", "--until-empty", transport="noop")])
    finally:
        await pool.close()
    await copy_deliveries(url, size, usual=usual, seldom=seldom)
    return url


async def copy_deliveries(url: str, size: int, *, usual: int, seldom: int) -> None:
    connection = await asyncpg.connect(url, server_settings={"search_path": ROOM})
    await connection.execute(SQL["create_copier"])
    for source, first, step, count, word, values in (
        (usual, 1_000, 2, size, "key", USUAL_VALUES),
        (seldom, 1_001, 2 * (size // RARE), RARE, "rare", SELDOM_VALUES),
    ):
        given = msgspec.json.encode(copied_values(count, word) | values).decode()
        await connection.execute(SQL["copy"], source, first, step, count, given, timeout=3600)
    await connection.execute(SQL["continue_ids"])
    await connection.execute(SQL["settle"], timeout=3600)
    await connection.close()


async def measure_listings(arena: Arena, templates: Path, size: int) -> dict[str, float]:
    """Milliseconds of a page in the larger room, and its ratio to the smaller one."""
    readings: dict[str, float] = {}
    async with filled_room(arena, templates, SMALL) as small, filled_room(arena, templates, size) as large:
        for name, chosen in LISTINGS.items():
            few, many = await compare(page_timer(small, chosen()), page_timer(large, chosen()))
            readings |= growth_readings(f"list-{name}", few, many)
    return readings


def page_timer(pool: Pool, chosen: DeliveryFilter) -> Callable[[], Awaitable[float]]:
    async def page() -> float:
        began = time.perf_counter()
        await service.list_deliveries(pool, chosen)
        return time.perf_counter() - began

    return page


async def measure_appends(arena: Arena, size: int) -> dict[str, float]:
    """Milliseconds of a conditional append to a store with few and with many events."""
    costs: list[list[float]] = [[], []]
    urls = [await arena.create_database(f"bench_growth_events_{each}_{time.monotonic_ns()}") for each in (SMALL, size)]
    async with (
        open_room(Settings(database_url=urls[0]), migrating=True) as small,
        open_room(Settings(database_url=urls[1]), migrating=True) as large,
    ):
        stores = [Store(small), Store(large)]
        for store, events in zip(stores, (SMALL, size), strict=True):
            await store.load(events)
        for _ in range(APPEND_ROUNDS):
            for store, found in zip(stores, costs, strict=True):
                found.append(1_000 / await store.measure("conditional", 1, APPEND_SECONDS))
    few, many = map(statistics.median, costs)
    return growth_readings("grown-append", few, many)


async def measure_schedule(arena: Arena, size: int) -> dict[str, float]:
    """Milliseconds of a scheduler's tick that hands over a hundred events, with few and many in the future."""
    small, large = await measure_ticks(arena, (SMALL, size), TICK_ROUNDS)
    return growth_readings("grown-tick", statistics.median(small.full), statistics.median(large.full))


def growth_readings(row: str, few: float, many: float) -> dict[str, float]:
    return {row: many, f"{row}-growth": many / few}
