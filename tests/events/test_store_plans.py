"""The cost of a check is the same with a thousand and with twenty thousand events, with any cached plan."""

import asyncio
import json
from typing import Any

import asyncpg
import pytest
from tests.events.conftest import Opener
from tests.support.events import WALLET

from postroom.db.pool import Pool
from postroom.events import AppendCondition, Cursor, Event, EventSession, EventStore, Query

FILL = """
    SELECT append_events(
        array_agg(CASE WHEN n % 100 = 0 THEN 'Rare' ELSE 'Deposited' END),
        array_agg(format('{wallet=%s,bank=1,op=%s}', n % 200, n)), array_agg('{}'::jsonb))
    FROM generate_series($1::int, $2::int) AS n
"""
SCANS = "SELECT sum(seq_scan) FROM pg_stat_xact_user_tables WHERE relname IN ('events', 'event_tags')"
QUERIES = {
    "a tag": WALLET,
    "a type and a tag": Query.of("Deposited", tags=["wallet=1"]),
    "two tags, one on everything": Query.of(tags=["bank=1", "wallet=1"]),
    "a type": Query.of("Rare"),
    "everything": Query.all(),
    "an OR": Query.of(tags=["wallet=2"]) | WALLET | Query.of("Rare"),
}


async def cost(connection: asyncpg.Connection, query: Query, after: Cursor | int) -> int:
    """The number of pages that a conditional append reads; it must not scan a table."""
    condition = AppendCondition(query, after).json
    append = "SELECT append_events('{X}', ARRAY['{other=1}'], ARRAY['{}'::jsonb], $1::text::jsonb)"
    pages: list[int] = []
    for _ in range(2):  # the first run fills the caches of the connection
        transaction = connection.transaction()
        await transaction.start()
        plan = json.loads(await connection.fetchval(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {append}", condition))
        assert (await connection.fetchval(SCANS) or 0) == 0
        assert await connection.fetchval("SELECT count(*) FROM events WHERE type = 'X'") == 1
        await transaction.rollback()
        pages.append(_pages(plan[0]["Plan"]))
    return pages[-1]


def _pages(plan: dict[str, Any]) -> int:
    return int(plan["Shared Hit Blocks"]) + int(plan["Shared Read Blocks"])


@pytest.mark.parametrize("query", QUERIES.values(), ids=QUERIES)
async def test_the_cost_of_a_check_does_not_grow(opened: Opener, pool: Pool, query: Query) -> None:
    """With plans cached on empty tables and without statistics there is no scan, and at most a few more pages."""
    connection = await opened()
    await connection.execute("SET plan_cache_mode = force_generic_plan")
    session = EventSession(connection)
    await cost(connection, query, (await session.head()).cursor)
    costs = []
    for first, last in ((1, 1000), (1001, 20_000)):
        await pool.fetchval(FILL, first, last)
        costs.append(await cost(connection, query, (await session.read(query, backwards=True, limit=1)).cursor))
    assert costs[1] <= costs[0] + 25


async def test_the_cost_of_a_check_by_position_does_not_grow(opened: Opener, pool: Pool) -> None:
    """The search for a position begins at the horizon of that event, not at the first event of the tag."""
    connection, costs = await opened(), []
    for first, last in ((1, 1000), (1001, 20_000)):
        for start in range(first, last, 5000):
            await pool.fetchval(FILL, start, min(start + 4999, last))
        newest = await pool.fetchval("SELECT max(position) FROM events")
        costs.append(await cost(connection, Query.of(tags=["bank=1", "op=1"]), newest))
    assert costs[1] <= costs[0] + 25


async def test_an_idempotency_query_finds_its_rarest_tag(opened: Opener, pool: Pool) -> None:
    """A query for a tag of all events and a tag of one event costs as much as the rare tag alone."""
    await pool.fetchval(FILL, 1, 20_000)
    connection = await opened()
    append = """
        EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) SELECT append_events('{X}', ARRAY['{a=1}'], ARRAY['{}'::jsonb],
            p_idempotency => '[{"types": ["Deposited"], "tags": ["bank=1", "op=none"]}]')
    """
    for _ in range(2):
        pages = _pages(json.loads(await connection.fetchval(append))[0]["Plan"])
    assert pages < 250


async def test_late_page_of_a_stream_costs_the_same(opened: Opener, pool: Pool, store: EventStore) -> None:
    """A late page costs as much as an early one."""
    await pool.fetchval(FILL, 1, 20_000)
    connection = await opened()
    query = Query.of(tags=["bank=1"])
    early = (await store.read(query, limit=100)).cursor
    late = (await store.read(query, limit=19_000)).cursor
    read = "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) SELECT * FROM read_events($1::text::jsonb, $2, 100)"
    plans = [await connection.fetchval(read, query.json, str(cursor)) for cursor in (early, early, late)]
    _, warm, last = (_pages(json.loads(plan)[0]["Plan"]) for plan in plans)
    assert last <= warm + 100


async def test_bulk_import_beside_decisions(store: EventStore) -> None:
    """A bulk import holds one lock per batch: concurrent decisions all succeed."""

    async def load() -> None:
        for batch in range(5):
            await store.append([Event.of("Imported", import_=f"{batch}-{n}") for n in range(500)])

    async def decide(number: int) -> None:
        await store.decide(Query.of(tags=[f"seat={number}"]), 0, {}, lambda _: Event.of("Taken", seat=number))

    await asyncio.gather(load(), *(decide(number) for number in range(20)))
    assert (await store.head()).position >= 2520
