"""Appends at REPEATABLE READ and SERIALIZABLE, where all statements use the first snapshot."""

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
async def test_append_without_a_condition_ignores_other_commits(
    opened: Opener, pool: Pool, store: EventStore, level: str
) -> None:
    """An event without a condition is appended although others committed events with the same tag meanwhile."""
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
async def test_overlapping_transactions_all_append(opened: Opener, pool: Pool, level: str) -> None:
    """Ten open transactions, each with a snapshot from before the others' events, all commit."""
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
async def test_query_with_an_old_snapshot_must_be_retried(
    opened: Opener, store: EventStore, level: str, asked: str
) -> None:
    """An append with a query must be retried if anything was committed after its snapshot, alone or in a batch."""
    connection, items = await opened(), '[{"tags": ["wallet=1"]}]'
    question = {"condition": f'{{"condition": {{"query": {items}}}}}', "idempotency": f'{{"idempotency": {items}}}'}
    transaction = connection.transaction(isolation=level)
    await transaction.start()
    await connection.fetchval("SELECT 1 FROM event_clock")
    await store.append(Event.of("X", wallet=1))
    assert await outcome(connection.fetchval(EACH, question[asked])) == RETRY
    await transaction.rollback()


@pytest.mark.parametrize("level", STRICT)
async def test_append_in_an_ended_epoch_must_be_retried(
    opened: Opener, pool: Pool, store: EventStore, level: str
) -> None:
    """An append with a snapshot of the old epoch must be retried, because followers may have read beyond it."""
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
async def test_new_epoch_waits_for_open_appends(opened: Opener, pool: Pool, store: EventStore, level: str) -> None:
    """Appends of the old epoch are committed before the new one begins."""
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
