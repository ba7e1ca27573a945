"""An unreadable row stops at most one topic: other topics and endpoints continue."""

import asyncpg
import pytest
from tests.outbox.conftest import MakeRelay, MakeTopic
from tests.support.outbox import Recorder, settled

from postroom.db.pool import Pool
from postroom.events import Event, EventStore
from postroom.outbox.relay import PublishStep


async def test_unreadable_event_stops_only_its_topic(
    pool: Pool, store: EventStore, make_topic: MakeTopic, make_relay: MakeRelay
) -> None:
    """The pair of the poison event fails and names its position; the other pair publishes."""
    await store.append(Event.of("Paid", po=1))
    await pool.execute(
        "INSERT INTO events (transaction_id, horizon, type, tags, data)"
        " VALUES (pg_current_xact_id(), pg_current_xact_id(), 'Paid', '{po=1}', to_jsonb('1e5000'::numeric))"
    )
    await store.append(Event.of("Refunded", po=1))
    await settled(pool)
    held, free = Recorder(), Recorder()
    holding = await make_relay(await make_topic("paid", types=("Paid",)), held)
    going = await make_relay(await make_topic("refunded", types=("Refunded",)), free)
    assert [await holding.run_once() for _ in range(2)] == [PublishStep.MOVED, PublishStep.FAILED]
    assert await going.run_once() is PublishStep.MOVED
    assert (len(held.messages), len(free.messages)) == (1, 1)
    row = await pool.fetchrow("SELECT failed_position FROM outbox_topic_progress WHERE topic = 'paid'")
    assert row is not None
    assert row["failed_position"] == 2


@pytest.mark.parametrize("until", ["10000-01-01Z", "infinity", "4000-01-01Z BC"])
async def test_no_endpoint_has_a_time_that_python_cannot_read(pool: Pool, until: str) -> None:
    """The table rejects such a time, because the driver would fail for all endpoints of a claim."""
    with pytest.raises(asyncpg.CheckViolationError, match="webhook_endpoints_until_readable"):
        await pool.execute(
            "INSERT INTO webhook_endpoints (url, topics, secret_key_id, secret, previous_secret, previous_key_id,"
            f" previous_until) VALUES ('https://example.org/', '{{a}}', 'k', 'x', 'x', 'k', '{until}')"
        )
