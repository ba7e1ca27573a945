"""Topics of facts about deliveries: followed in one order with events, from the log of steps."""

import asyncpg
import pytest
from tests.support.builders import a_checked_mail
from tests.support.outbox import settled

from postroom.db.pool import Pool
from postroom.delivery import service as deliveries
from postroom.events import Event, EventStore
from postroom.outbox import service
from postroom.outbox.model import Subscription

TOPICS = """
    INSERT INTO outbox_topics (name, types, required_keys, any_keys, exact_tags) VALUES
        ('all', '{}', '{}', '{}', '{}'),
        ('mail', '{DeliveryAccepted,DeliveryCancelled}', '{}', '{}', '{}'),
        ('rare', '{DeliveryCancelled}', '{postroom.delivery}', '{}', '{}'),
        ('keys', '{}', '{}', '{postroom.delivery,wallet}', '{}'),
        ('wallets', '{}', '{wallet}', '{}', '{}'),
        ('one', '{}', '{}', '{}', '{postroom.delivery=1}')
"""
PROGRESS = "INSERT INTO outbox_topic_progress (topic, publisher) SELECT name, 'log' FROM outbox_topics"
TOUCHED = """
    SELECT coalesce(sum(seq_scan + idx_scan), 0)::int FROM pg_stat_xact_user_tables
    WHERE relname LIKE 'delivery_steps%' OR relname = 'deliveries'
"""


@pytest.fixture
async def topics(pool: Pool) -> Pool:
    await pool.execute(TOPICS)
    await pool.execute(PROGRESS)
    for wallet in (1, 2):
        await EventStore(pool).append(Event.of("Opened", wallet=wallet))
        async with pool.acquire() as connection:
            accepted = await deliveries.accept(connection, a_checked_mail())
        await deliveries.cancel(pool, accepted.id, actor="tests")
    await settled(pool)
    return pool


async def followed(connection: asyncpg.Connection | Pool, topic: str, limit: int = 100) -> list[str]:
    rows = await connection.fetch("SELECT type FROM follow_topic($1, 'log', $2, 1000)", topic, limit)
    return [row["type"] for row in rows]


@pytest.mark.parametrize(
    "topic, expected",
    [
        ("all", ["Opened", "DeliveryAccepted", "DeliveryCancelled"] * 2),
        ("mail", ["DeliveryAccepted", "DeliveryCancelled"] * 2),
        ("rare", ["DeliveryCancelled"] * 2),
        ("keys", ["Opened", "DeliveryAccepted", "DeliveryCancelled"] * 2),
        ("wallets", ["Opened"] * 2),
        ("one", ["DeliveryAccepted", "DeliveryCancelled"]),
    ],
)
async def test_a_topic_contains_its_facts(topics: Pool, topic: str, expected: list[str]) -> None:
    """Follow, lag and the next event agree, by types, keys and exact tags."""
    assert await followed(topics, topic) == expected
    pages: list[str] = []
    while page := [kind for kind in await followed(topics, topic, 2) if kind is not None]:
        pages += page
        await topics.execute(
            "UPDATE outbox_topic_progress SET last_transaction_id = end_transaction_id, last_position = end_position"
            " FROM (SELECT * FROM follow_topic($1, 'log', 2, 1000) LIMIT 1) AS f WHERE topic = $1",
            topic,
        )
    assert pages == expected


async def test_lag_and_skip_count_facts(topics: Pool) -> None:
    """The lag includes facts, and a fact can be skipped by its position."""
    [lag] = [found.lag_events for found in await service.list_progress(topics) if found.topic == "mail"]
    assert lag == 4
    position = await topics.fetchval("SELECT min(position) FROM all_steps")
    skipped = await service.skip(topics, Subscription("mail", "log"), position=position, actor="tests")
    assert skipped.type == "DeliveryAccepted"
    assert (await followed(topics, "mail"))[0] == "DeliveryCancelled"


async def test_topics_of_applications_leave_the_steps_alone(topics: Pool) -> None:
    """A publisher of an application's events does not read steps."""
    async with topics.acquire() as connection, connection.transaction():
        before = await connection.fetchval(TOUCHED)  # includes earlier transactions of the connection
        await followed(connection, "wallets")
        assert await connection.fetchval(TOUCHED) == before
        await followed(connection, "all")
        assert await connection.fetchval(TOUCHED) > before
