"""The cost of listings, claims, appends and ticks in a small room and in a very large one, measured by turns.

The smaller room has ten thousand finished deliveries, events or planned occasions, the larger one as many as the size
of the round: a million, or `python -m bench growth --size 10000000`. Two hundred deliveries in each room, spread
evenly, have the values that listings look for. For claims, which come after the listings, each room gets as many
waiting mails as it has finished ones: by template, without bodies.
"""

import contextlib
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import asyncpg
import msgspec

from bench import letters
from bench.cost import Meter
from bench.events import Postroom as Store
from bench.load import PAIRS_TIMED, compare
from bench.postroom_process import ask, postroom
from bench.schedule import measure_ticks
from bench.server import Arena
from bench.statements import read_statements
from bench.workers import run_workers
from postroom.db.pool import Pool, open_pool
from postroom.db.room import open_room
from postroom.delivery import service, store
from postroom.delivery.check import check_request
from postroom.delivery.filter import DeliveryFilter, StateFilter
from postroom.delivery.model import DeliveryRequest, Lane
from postroom.post.address import Address
from postroom.settings import Settings

SQL = read_statements(Path(__file__).with_suffix(".sql"))
ROOM = "postroom"
SMALL = 10_000
RARE = 200
APPEND_ROUNDS = 6
APPEND_SECONDS = 0.5
TICK_ROUNDS = 40
CLAIMED_AT_ONCE = 100
DAYS = 30

RARE_DATA = {"kind": "rare"}
LISTINGS: dict[str, Callable[[], DeliveryFilter]] = {
    "newest": DeliveryFilter,
    "recipient": lambda: DeliveryFilter(recipient="ada@rare.example"),
    "domain": lambda: DeliveryFilter(recipient_domain="rare.example"),
    "cancelled": lambda: DeliveryFilter(state=StateFilter.CANCELLED),
    "sent": lambda: DeliveryFilter(state=StateFilter.SENT),
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
    "combined": lambda: DeliveryFilter(source="rare", state=StateFilter.CANCELLED, recipient_domain="rare.example"),
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
WAITING = replace(USUAL, lane=Lane.BULK, idempotency_key="waiting")


def made_at(count: int) -> str:
    return f"now() - interval '{DAYS} days' * (1 - n / {count}.0)"


def copied_values(count: int, word: str) -> dict[str, str]:
    """SQL for columns in which copies differ."""
    return {
        "idempotency_key": f"'{word}-' || n",
        **dict.fromkeys(("deliveries.created_at", "deliveries.finished_at", "delivery_steps.at"), made_at(count)),
        **dict.fromkeys(("deliveries.position", "delivery_steps.position"), "nextval('events_position_seq')"),
        "delivery_steps.domain": "CASE WHEN s.domain IS NOT NULL THEN 'domain-' || n % 70 || '.example' END",
    }


USUAL_VALUES = {"deliveries.recipient_email": "'reader-' || n || '@domain-' || n % 500 || '.example'"}
SELDOM_VALUES = {
    "deliveries.template_id": "'rare'",
    **dict.fromkeys(("deliveries.campaign_id", "deliveries.endpoint_id", "deliveries.sender_account_id"), "77"),
}


@dataclass(frozen=True)
class Copies:
    """Copies of one delivery, with SQL for columns in which they differ beside those of `copied_values`."""

    source: int
    first: int
    """Their ids follow this one, in steps."""
    step: int
    count: int
    word: str
    values: Mapping[str, str]


@dataclass(frozen=True)
class FilledRoom:
    """A room with so many finished deliveries."""

    url: str
    pool: Pool
    size: int


@contextlib.asynccontextmanager
async def filled_room(arena: Arena, templates: Path, size: int) -> AsyncIterator[FilledRoom]:
    """A new filled room, until the end of the block."""
    url = await create_filled_database(arena, templates, size)
    pool = await open_pool(url, ROOM, size=2)
    try:
        yield FilledRoom(url, pool, size)
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
    await copy_deliveries(
        url,
        Copies(usual, 1_000, 2, size, "key", USUAL_VALUES),
        Copies(seldom, 1_001, 2 * (size // RARE), RARE, "rare", SELDOM_VALUES),
    )
    return url


async def add_waiting(room: FilledRoom) -> None:
    """As many waiting mails as the room has finished ones, and one."""
    async with room.pool.acquire() as connection:
        waiting = (await service.accept(connection, check_request(WAITING))).id
    due_at = dict.fromkeys(("deliveries.next_attempt_at", "due_deliveries.due_at"), made_at(room.size))
    values = {**USUAL_VALUES, **due_at, "deliveries.finished_at": "NULL"}
    await copy_deliveries(room.url, Copies(waiting, waiting, 1, room.size, "waiting", values))


async def copy_deliveries(url: str, *all_copies: Copies) -> None:
    connection = await asyncpg.connect(url, server_settings={"search_path": ROOM})
    await connection.execute(SQL["create_copier"])
    for each in all_copies:
        given = msgspec.json.encode({**copied_values(each.count, each.word), **each.values}).decode()
        await connection.execute(SQL["copy"], each.source, each.first, each.step, each.count, given, timeout=3600)
    await connection.execute(SQL["continue_ids"])
    await connection.execute(SQL["settle"], timeout=3600)
    await connection.close()


async def measure_deliveries(arena: Arena, templates: Path, size: int) -> dict[str, float]:
    """Pages and claims, in rooms that both use."""
    async with filled_room(arena, templates, SMALL) as small, filled_room(arena, templates, size) as large:
        listings = await measure_listings(arena.meter, small.pool, large.pool)
        return listings | await measure_claims(small, large)


async def measure_listings(meter: Meter, small: Pool, large: Pool) -> dict[str, float]:
    """Milliseconds of a page in the larger room, their ratio to the smaller one, and the CPU of a page."""
    readings: dict[str, float] = {}
    for name, chosen in LISTINGS.items():
        row, page = f"list-{name}", page_timer(large, chosen())
        readings |= growth_readings(row, *await compare(page_timer(small, chosen()), page))
        readings |= await page_costs(meter, row, page)
    return readings


async def page_costs(meter: Meter, row: str, page: Callable[[], Awaitable[float]]) -> dict[str, float]:
    """Microseconds of CPU, as `listing_pages` has them for every other listing."""

    async def pages() -> None:
        for _ in range(PAIRS_TIMED):
            await page()

    costs = (await meter.spend(PAIRS_TIMED, pages())).readings(row)
    return {name: costs[name] for name in (f"{row}-postgresql", f"{row}-python")}


def page_timer(pool: Pool, chosen: DeliveryFilter) -> Callable[[], Awaitable[float]]:
    async def page() -> float:
        began = time.perf_counter()
        await service.list_deliveries(pool, chosen)
        return time.perf_counter() - began

    return page


async def measure_claims(small: FilledRoom, large: FilledRoom) -> dict[str, float]:
    """Milliseconds of a claim of a hundred, with few and with many waiting mails."""
    for room in (small, large):
        await add_waiting(room)
    async with small.pool.acquire() as few, large.pool.acquire() as many:
        return growth_readings("grown-claim", *await compare(partial(claim, few), partial(claim, many)))


async def claim(connection: asyncpg.Connection) -> float:
    """The seconds a claim takes; rolled back, so that as many wait for the next."""
    transaction = connection.transaction()
    await transaction.start()
    began = time.perf_counter()
    claimed = await store.claim_due(
        connection,
        lane=Lane.BULK,
        batch_limit=CLAIMED_AT_ONCE,
        worker_id=1,
        lease=timedelta(minutes=5),
        now=None,
    )
    elapsed = time.perf_counter() - began
    await transaction.rollback()
    assert len(claimed) == CLAIMED_AT_ONCE
    return elapsed


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
