"""Retention of Postroom's own facts in the event store: in bounded steps, never events of applications."""

from datetime import timedelta

from tests.support.outbox import settled

from postroom.db.pool import Pool
from postroom.events import Event, EventStore, Query, store

AGE = "UPDATE events SET occurred_at = occurred_at - interval '91 days'"
NINETY_DAYS = timedelta(days=90)


async def bounces(pool: Pool, count: int) -> None:
    await pool.execute(
        "SELECT append_facts('postroom.bounce', array_agg('RecipientBounced'::text), array_agg(n),"
        " array_agg('{}'::jsonb)) FROM generate_series(1, $1::bigint) AS n",
        count,
    )


async def swept(pool: Pool, limit: int = 1000) -> int:
    async with pool.acquire() as connection:
        return await store.delete_old_facts(connection, retention=NINETY_DAYS, batch_limit=limit, now=None)


async def test_old_facts_are_deleted_in_steps_with_their_tags(pool: Pool) -> None:
    """Each step is bounded; younger facts stay."""
    await bounces(pool, 5)
    await pool.execute(AGE)
    await bounces(pool, 2)
    assert [await swept(pool, 2) for _ in range(4)] == [2, 2, 1, 0]
    assert await pool.fetchval("SELECT count(*) FROM events") == 2
    assert await pool.fetchval("SELECT count(*) FROM event_tags") == 2


async def test_events_of_applications_are_never_deleted(pool: Pool) -> None:
    """An event of the same type, or with the same tag, stays, and does not hide older facts behind it."""
    events = EventStore(pool)
    for event in (
        Event.of("RecipientBounced", order=1),
        Event("RecipientBounced", {}, ("postroom.delivery=5", "order=1")),
        Event("OrderBounced", {}, ("postroom.delivery=5",)),
    ):
        await events.append(event)
    await bounces(pool, 1)
    await pool.execute(AGE)
    assert [await swept(pool, 1), await swept(pool, 1)] == [1, 0]
    assert len((await events.read(Query.all())).events) == 3


async def test_facts_that_are_not_published_yet_stay(pool: Pool) -> None:
    """A publisher that has not reached a fact of its topic keeps it; other topics do not."""
    await pool.execute("INSERT INTO outbox_topics (name, types) VALUES ('bounced', '{RecipientBounced}'), ('x', '{X}')")
    await pool.execute("INSERT INTO outbox_topic_progress (topic, publisher) VALUES ('bounced', 'log'), ('x', 'log')")
    await bounces(pool, 1)
    await pool.execute(AGE)
    await settled(pool)
    assert await swept(pool) == 0
    await pool.execute(
        "UPDATE outbox_topic_progress SET last_transaction_id = end_transaction_id, last_position = end_position"
        " FROM (SELECT * FROM follow_topic('bounced', 'log', 10, 100)) AS f WHERE topic = 'bounced'"
    )
    assert await swept(pool) == 1
