"""The table of waiting deliveries: a claim trusts the record, and waits for no other transaction."""

import asyncio
from datetime import timedelta

import pytest
from tests.support.builders import LEASE, NOON, a_mail, accepted, claimed, finished, state_of

from postroom.db.pool import Pool, connect
from postroom.delivery import store
from postroom.delivery.decision import complete_columns
from postroom.delivery.model import DeliveryState, Lane

WRITTEN = """
    SELECT coalesce(inhparent::regclass::text, relname), n_tup_ins, n_tup_upd, n_tup_hot_upd, n_tup_del
    FROM pg_stat_xact_user_tables
    LEFT JOIN pg_inherits ON inhrelid = relid
    WHERE n_tup_ins + n_tup_upd + n_tup_del > 0
    ORDER BY 1
"""
"""Rows that a transaction has inserted, updated (how many in place), and deleted, by table."""


async def test_a_waiting_row_whose_delivery_has_ended_is_dropped(pool: Pool) -> None:
    """A record changed behind the trigger's back is not sent, and its row no longer stands in the queue."""
    stale, good = await accepted(pool, a_mail(), a_mail(), now=NOON)
    async with pool.acquire() as connection, connection.transaction():
        await connection.execute("ALTER TABLE deliveries DISABLE TRIGGER deliveries_due")
        await store.cancel(connection, delivery_ids=[stale], reason="test", now=NOON)
        await connection.execute("ALTER TABLE deliveries ENABLE TRIGGER deliveries_due")
    assert [outgoing.id for outgoing in await claimed(pool, now=NOON)] == [good]
    assert await state_of(pool, stale) is DeliveryState.CANCELLED
    assert await pool.fetchval("SELECT count(*) FROM due_deliveries") == 0


@pytest.mark.parametrize(
    "stop",
    [
        "SELECT withdraw_deliveries(ARRAY[$1::bigint], 'test')",
        "SELECT erase_deliveries('ada@example.org', 'gone@erased.invalid') WHERE $1 > 0",
        "DELETE FROM deliveries WHERE id = $1",
    ],
)
async def test_a_delivery_that_is_stopped_leaves_the_queue(pool: Pool, stop: str) -> None:
    """Withdrawn, erased and deleted mail is not claimed; other mail stays in the queue."""
    stopped, other = await accepted(pool, a_mail(), a_mail("bob@example.org"), now=NOON)
    await pool.execute(stop, stopped)
    assert [row["id"] for row in await pool.fetch("SELECT id FROM due_deliveries")] == [other]


async def test_a_claim_does_not_wait_for_a_transaction_that_cancels(pool: Pool) -> None:
    """An application may cancel a mail in a long transaction: claims leave out this mail and take the others."""
    cancelled, free = await accepted(pool, a_mail(), a_mail(), now=NOON)
    async with pool.acquire() as connection:
        transaction = connection.transaction()
        await transaction.start()
        await store.cancel(connection, delivery_ids=[cancelled], reason="test", now=NOON)
        async with asyncio.timeout(30):
            assert [outgoing.id for outgoing in await claimed(pool, now=NOON)] == [free]
        await transaction.rollback()
    assert [outgoing.id for outgoing in await claimed(pool, now=NOON)] == [cancelled]


async def test_cancelling_beside_claims_never_deadlocks(pool: Pool) -> None:
    """Claims and mass changes meet in the same rows in any order; PostgreSQL has to abort none of them."""
    await accepted(pool, *(a_mail(lane=Lane.BULK) for _ in range(200)), now=NOON)
    ids = [row["id"] for row in await pool.fetch("SELECT id FROM deliveries ORDER BY id DESC")]

    async def claim() -> int:
        total = 0
        while batch := await claimed(pool, Lane.BULK, now=NOON, limit=7):
            total += len(batch)
        return total

    async def cancel() -> int:
        rows = [
            await pool.fetch("SELECT cancel_deliveries($1::bigint[], 'test')", ids[n : n + 40])
            for n in range(0, 200, 40)
        ]
        return sum(map(len, rows))

    moved = await asyncio.gather(claim(), cancel(), claim(), cancel())
    await claim()
    assert await pool.fetchval("SELECT count(*) FROM due_deliveries") == 0
    assert sum(moved) <= 200


async def test_mail_that_waits_for_its_trial_expires_after_it(pool: Pool) -> None:
    """One column has both: first the template is tried, then the expiry is watched."""
    later = NOON + timedelta(hours=1)
    request = a_mail(template="welcome", send_at=later, expires_at=later + timedelta(hours=1))
    [delivery] = await accepted(pool, request, now=NOON)
    assert await pool.fetchval("SELECT watch_at = '-infinity' FROM due_deliveries WHERE id = $1", delivery)
    await pool.execute("UPDATE deliveries SET state = 'rendered', template_version_id = 1 WHERE id = $1", delivery)
    assert await pool.fetchval("SELECT watch_at FROM due_deliveries WHERE id = $1", delivery) == request.expires_at
    async with pool.acquire() as connection:
        assert await store.expire_waiting(connection, batch_limit=10, now=later) == []
        expired = await store.expire_waiting(connection, batch_limit=10, now=later + timedelta(hours=1))
    assert expired == [delivery]
    assert await state_of(pool, delivery) is DeliveryState.CANCELLED


async def test_claim_and_result_write_the_record_twice_in_place(pool: Pool, database_url: str) -> None:
    """Both updates of a delivery are heap-only: no index has a column that they change.

    The waiting row is deleted; an attempt and a step are added. The claim is one row for all of its mail.
    """
    await accepted(pool)
    connection = await connect(database_url, "postroom")  # a new one: the figures include its earlier transactions
    try:
        async with connection.transaction():
            [outgoing] = await store.claim_due(
                connection, lane=Lane.TRANSACTIONAL, batch_limit=1, worker_id=1, lease=LEASE, now=None
            )
            await store.mark_started(
                connection,
                worker_id=1,
                claim_id=outgoing.claim_id,
                started_through=1,
                lease=LEASE,
                now=None,
                delivery_ids=[outgoing.id],
            )
            await store.complete(connection, worker_id=1, now=None, **complete_columns(finished([outgoing])))
            assert [tuple(row) for row in await connection.fetch(WRITTEN)] == [
                ("attempts", 1, 0, 0, 0),
                ("claims", 1, 1, 0, 0),
                ("deliveries", 0, 2, 2, 0),
                ("delivery_steps", 1, 0, 0, 0),
                ("due_deliveries", 0, 0, 0, 1),
            ]
    finally:
        await connection.close()
