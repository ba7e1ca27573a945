"""Appends in transactions that see only what their first statement saw: REPEATABLE READ and SERIALIZABLE."""

import asyncio

import pytest
from tests.events.conftest import Opener
from tests.support.events import LEVELS, RETRY, WON, outcome, until_waiting

from postroom.db.pool import Pool
from postroom.events import CombiningWriter, Event, EventSession, EventStore, Query
from postroom.events.service import adopt_restored_events

STRICT = LEVELS[1:]
EACH = """
    SELECT answer ->> 'success' FROM append_events_each(
        jsonb_build_array($1::text::jsonb || '{"types": ["X"], "tags": ["{wallet=1}"], "data": [{}]}'), true) AS answer
"""


@pytest.mark.parametrize("level", STRICT)
async def test_a_fact_without_a_condition_does_not_mind_what_else_was_committed(
    opened: Opener, pool: Pool, store: EventStore, level: str
) -> None:
    """Rows and events of others, even under the same tag, committed after the snapshot: a fact is appended anyway."""
    connection = await opened()
    async with connection.transaction(isolation=level):
        await connection.fetchval("SELECT count(*) FROM event_followers")
        await pool.execute("CREATE TABLE business (number integer)")
        await store.append(Event.of("X", wallet=1))
        await EventSession(connection).append([Event.of("X", wallet=1), Event.of("Y", wallet=1)])
        assert await connection.fetchval(EACH, "{}") == "true"
        await store.append(Event.of("X", wallet=1))
        await connection.execute("SELECT append_events_batch('{X}', '{\"{wallet=1}\"}', ARRAY['{}'::jsonb])")
    assert await pool.fetchval("SELECT count(*) FROM events") == 6


@pytest.mark.parametrize("level", STRICT)
async def test_facts_of_transactions_that_overlap_are_all_appended(opened: Opener, pool: Pool, level: str) -> None:
    """Ten transactions are open at once, each with a snapshot from before the others' events; all commit."""
    connections = [await opened() for _ in range(10)]
    transactions = [connection.transaction(isolation=level) for connection in connections]
    for connection, transaction in zip(connections, transactions, strict=True):
        await transaction.start()
        await connection.fetchval("SELECT 1 FROM event_clock")
    for connection in connections:
        await EventSession(connection).append(Event.of("Deposited", wallet=1))
    for transaction in transactions:
        await transaction.commit()
    assert await pool.fetchval("SELECT count(*) FROM events") == 10


@pytest.mark.parametrize("asked", ["condition", "idempotency"])
@pytest.mark.parametrize("level", STRICT)
async def test_whoever_asks_is_told_that_the_snapshot_is_old(
    opened: Opener, store: EventStore, level: str, asked: str
) -> None:
    """One by one or many at once: a query cannot be answered by a snapshot that something was committed after."""
    connection, items = await opened(), '[{"tags": ["wallet=1"]}]'
    question = {"condition": f'{{"condition": {{"query": {items}}}}}', "idempotency": f'{{"idempotency": {items}}}'}
    transaction = connection.transaction(isolation=level)
    await transaction.start()
    await connection.fetchval("SELECT 1 FROM event_clock")
    await store.append(Event.of("X", wallet=1))
    assert await outcome(connection.fetchval(EACH, question[asked])) == RETRY
    await transaction.rollback()


@pytest.mark.parametrize("level", STRICT)
async def test_no_fact_is_written_in_an_epoch_that_is_over(
    opened: Opener, pool: Pool, store: EventStore, level: str
) -> None:
    """Followers may have read beyond it: whoever saw the old epoch is asked to try again, condition or not."""
    connection = await opened()
    transaction = connection.transaction(isolation=level)
    await transaction.start()
    await connection.fetchval("SELECT epoch FROM event_clock")
    assert await adopt_restored_events(pool, force=True)
    assert await outcome(EventSession(connection).append(Event.of("X", wallet=1))) == RETRY
    await transaction.rollback()
    async with connection.transaction(isolation=level):
        assert await outcome(EventSession(connection).append(Event.of("X", wallet=1))) == WON
    [event], _ = await store.read(Query.all())
    assert event.transaction_id >> 48 == 1


@pytest.mark.parametrize("level", STRICT)
async def test_a_new_epoch_waits_for_facts_in_flight(opened: Opener, pool: Pool, store: EventStore, level: str) -> None:
    """What was appended in the old epoch is committed before the new one begins."""
    connection = await opened()
    async with connection.transaction(isolation=level):
        await EventSession(connection).append(Event.of("Old"))
        adopting = asyncio.ensure_future(adopt_restored_events(pool, force=True))
        await until_waiting(await opened(), None)
    assert await adopting
    await CombiningWriter(pool).append(Event.of("New"))
    assert [(e.type, e.transaction_id >> 48) for e in (await store.read(Query.all())).events] == [
        ("Old", 0),
        ("New", 1),
    ]
