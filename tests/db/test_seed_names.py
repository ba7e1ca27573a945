"""Statements that were written for other schemas run on the views of `postroom schema --seed-names`."""

from collections.abc import AsyncIterator
from datetime import timedelta

import asyncpg
import pytest
from tests.db.test_install import psql
from tests.support.builders import NOON, a_mail, accepted

from postroom.db.install import seed_names_script
from postroom.db.pool import Pool

CLAIM_OF_SCHEDULED_EVENTS = """
    SELECT * FROM events
    WHERE status = 'PENDING'
      AND target_timestamp_utc <= NOW()
    ORDER BY target_timestamp_utc ASC
    FOR UPDATE SKIP LOCKED
    LIMIT 100
"""
DUE_DELIVERIES = """
    SELECT delivery_id FROM deliveries WHERE next_attempt_at IS NOT NULL AND next_attempt_at <= $1
    ORDER BY next_attempt_at ASC LIMIT $2
"""
CLAIM_OF_A_DELIVERY = """
    SELECT * FROM deliveries WHERE delivery_id = $1 AND status IN ('queued','rendered')
        AND next_attempt_at IS NOT NULL AND next_attempt_at <= $2
    FOR UPDATE SKIP LOCKED
"""


@pytest.fixture
async def named(pool: Pool, database_url: str) -> AsyncIterator[asyncpg.Connection]:
    """A connection of an application that knows nothing of the room's schema."""
    await psql(database_url, seed_names_script("postroom"))
    connection = await asyncpg.connect(database_url)
    await connection.execute("SET search_path TO postroom_seed_names")
    yield connection
    await connection.close()


async def test_script_can_be_applied_twice(named: asyncpg.Connection, database_url: str) -> None:
    """A later release replaces the views."""
    await psql(database_url, seed_names_script("postroom"))
    assert await named.fetchval("SELECT count(*) FROM events") == 0


async def test_claim_of_scheduled_events_runs_as_written(named: asyncpg.Connection, database_url: str) -> None:
    """A claimed row is skipped by another claim, and the optimistic update counts one row, then none."""
    user = await named.fetchval(
        "INSERT INTO users (first_name, last_name, date_of_birth, timezone)"
        " VALUES ('Ada', 'Lovelace', '1990-12-10', 'UTC') RETURNING id"
    )
    await named.execute(
        "INSERT INTO events (user_id, event_type, status, target_timestamp_utc, target_timestamp_local,"
        " target_timezone, idempotency_key, delivery_payload)"
        " VALUES ($1, 'BIRTHDAY', 'PENDING', now() - interval '1 minute', now(), 'UTC', 'key-1', '{}')",
        user,
    )
    other = await asyncpg.connect(database_url)
    await other.execute("SET search_path TO postroom_seed_names")
    async with named.transaction(), other.transaction():
        taken = await named.fetch(CLAIM_OF_SCHEDULED_EVENTS)
        assert len(taken) == 1
        assert await other.fetch(CLAIM_OF_SCHEDULED_EVENTS) == []
    await other.close()
    move = (
        "UPDATE events SET status = 'COMPLETED', executed_at = now(), version = version + 1"
        " WHERE id = $1 AND version = $2"
    )
    row = taken[0]
    assert [await named.execute(move, row["id"], row["version"]) for _ in range(2)] == ["UPDATE 1", "UPDATE 0"]


async def test_due_query_and_claim_of_deliveries_run_as_written(named: asyncpg.Connection, pool: Pool) -> None:
    """Columns are called delivery_id and status, and the row is locked."""
    first, second = await accepted(pool, a_mail(), a_mail(), now=NOON)
    later = NOON + timedelta(minutes=1)
    assert [row["delivery_id"] for row in await named.fetch(DUE_DELIVERIES, later, 10)] == [first, second]
    async with named.transaction():
        claimed = await named.fetchrow(CLAIM_OF_A_DELIVERY, first, later)
        assert claimed is not None
        assert claimed["status"] == "queued"
        async with pool.acquire() as other, other.transaction():
            locked = "SELECT id FROM deliveries WHERE id = ANY($1::bigint[]) ORDER BY id FOR UPDATE SKIP LOCKED"
            assert await other.fetchval(locked, [first, second]) == second


async def test_every_name_of_the_documents_can_be_read(named: asyncpg.Connection) -> None:
    """All tables but those of the event store, which is in the room itself."""
    rows = await named.fetch("SELECT viewname FROM pg_views WHERE schemaname = 'postroom_seed_names'")
    for row in rows:
        await named.fetch(f"SELECT * FROM {row['viewname']} LIMIT 1")
    assert len(rows) == 18
