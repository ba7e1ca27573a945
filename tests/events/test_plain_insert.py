"""An application may INSERT INTO events as into a table of its own; the store keeps its promises for such events."""

import asyncio

import asyncpg
import pytest
from tests.events.conftest import Opener

from postroom.db.pool import Pool
from postroom.events import AppendCondition, Event, EventStore, Query
from postroom.events.errors import AppendConditionFailed

INSERT = "INSERT INTO events (type, tags, data) VALUES ($1, $2, $3) RETURNING position"


async def test_inserted_event_is_read_by_its_tag_and_followed(pool: Pool, store: EventStore) -> None:
    """The row gets a transaction, a horizon and its tags; RETURNING has the position that is stored."""
    follower = (await store.follow(Query.all())).cursor
    position = await pool.fetchval(INSERT, "WalletOpened", ["wallet=1", "wallet=1"], '{"owner": "Ada"}')
    [event] = (await store.read(Query.of(tags=["wallet=1"]))).events
    assert (event.position, event.type, event.data) == (position, "WalletOpened", {"owner": "Ada"})
    assert [followed.position for followed in (await store.follow(Query.all(), after=follower)).events] == [position]


async def test_conditional_append_sees_an_inserted_event(pool: Pool, store: EventStore) -> None:
    """A condition read before the INSERT conflicts with it."""
    query = Query.of(tags=["wallet=1"])
    seen = (await store.read(query)).cursor
    await pool.execute(INSERT, "WalletOpened", ["wallet=1"], "{}")
    with pytest.raises(AppendConditionFailed):
        await store.append(Event.of("WalletOpened", wallet=1), AppendCondition(query, seen))


async def test_conditional_append_waits_for_an_open_insert(pool: Pool, store: EventStore, opened: Opener) -> None:
    """The INSERT holds the lock of its tag until its transaction ends."""
    query = Query.of(tags=["wallet=1"])
    seen = (await store.read(query)).cursor
    writer = await opened()
    transaction = writer.transaction()
    await transaction.start()
    await writer.execute(INSERT, "WalletOpened", ["wallet=1"], "{}")
    append = asyncio.create_task(store.append(Event.of("X", wallet=1), AppendCondition(query, seen)))
    while not await pool.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype = 'advisory'"):
        assert not append.done()
    await transaction.commit()
    with pytest.raises(AppendConditionFailed):
        await append


async def test_follower_does_not_skip_an_insert_that_commits_late(store: EventStore, opened: Opener) -> None:
    """A follower waits below the horizon of the open INSERT, as it does for an append."""
    writer = await opened()
    transaction = writer.transaction()
    await transaction.start()
    late = await writer.fetchval(INSERT, "Late", ["wallet=1"], "{}")
    await store.append(Event.of("Early", wallet=2))
    followed = await store.follow(Query.all())
    await transaction.commit()
    later = await store.follow(Query.all(), after=followed.cursor)
    assert late in [event.position for event in (*followed.events, *later.events)]


@pytest.mark.parametrize(
    "row, problem",
    [
        (("", ["a=1"], "{}"), "1 to 64 characters"),
        (("X", ["wallet:1"], "{}"), "key=value"),
    ],
)
async def test_invalid_event_is_refused_by_name(pool: Pool, row: tuple[str, list[str], str], problem: str) -> None:
    """The same checks and the same SQLSTATE as in the functions; nothing is stored."""
    with pytest.raises(asyncpg.PostgresError, match=problem) as caught:
        await pool.execute(INSERT, *row)
    assert (caught.value.sqlstate, caught.value.column_name) == ("PR001", "events[0]")
    assert await pool.fetchval("SELECT count(*) FROM events") == 0


async def test_containment_of_tags_uses_an_index(pool: Pool) -> None:
    """`tags @> …` in plain SQL reads the index, not the table."""
    async with pool.acquire() as connection, connection.transaction():
        await connection.execute("SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = on")
        plan = await connection.fetch("EXPLAIN SELECT * FROM events WHERE tags @> ARRAY['wallet=1']")
    assert "events_tags_idx" in "\n".join(row[0] for row in plan)
