"""Crashes, expired leases and deleted people: no event is lost, sent twice or sent after deletion."""

import asyncio
from uuid import uuid4

import pytest
from tests.support.schedule import NINE, POSTING, born, counted, scheduler, statuses, utc

from postroom.db.pool import Pool
from postroom.delivery.errors import ClaimLost
from postroom.schedule import engine, service, store
from postroom.schedule.model import Claimed


async def test_crash_during_handover_rolls_back(pool: Pool) -> None:
    """Claim, delivery and next year's event are one transaction, which a crash rolls back."""
    user = await born(pool, "1990-11-15", now="2026-11-01T00:00")

    def crash(step: str) -> None:
        if step == "claimed":
            raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        await engine.hand_over_due(pool, POSTING, now=NINE, signal=crash)
    assert await statuses(pool, user.id) == [("2026", "PENDING")]
    assert await scheduler(pool).run_once() == 1


async def claim(pool: Pool, at: str = "2026-11-15T09:00") -> list[Claimed]:
    """Commit a claim without its handover, which only a bug or direct SQL can do."""
    async with pool.acquire() as connection:
        return await store.claim_due(connection, claim_id=uuid4(), lease=engine.LEASE, now=utc(at))


async def test_expired_lease_returns_the_event_and_fences_the_claim(pool: Pool) -> None:
    """An event that was not handed over becomes PENDING again, and the expired claim cannot finish it."""
    user = await born(pool, "1990-11-15", now="2026-11-01T00:00")
    late = await claim(pool)
    assert await scheduler(pool, "2026-11-15T09:04").recover() == 0
    assert await scheduler(pool, "2026-11-15T09:05").recover() == 1
    assert await statuses(pool, user.id) == [("2026", "PENDING")]
    assert await scheduler(pool, "2026-11-15T09:05").run_once() == 1
    with pytest.raises(ClaimLost):
        async with pool.acquire() as connection, connection.transaction():
            await engine.hand_over(connection, late, POSTING, now=utc("2026-11-15T09:06"))
    assert await pool.fetchval("SELECT count(*) FROM deliveries") == 1


async def test_lease_of_an_open_delivery_is_renewed(pool: Pool) -> None:
    """An event whose delivery is in retry stays PROCESSING and is not sent twice."""
    user = await born(pool, "1990-11-15", now="2026-11-01T00:00")
    await scheduler(pool).run_once()
    assert await scheduler(pool, "2026-11-15T09:05").recover() == 1
    assert await scheduler(pool, "2026-11-15T09:06").recover() == 0
    assert await statuses(pool, user.id) == [("2026", "PROCESSING"), ("2027", "PENDING")]


@pytest.mark.parametrize(
    "statement, status, reason",
    [
        ("DELETE FROM deliveries", "FAILED", "delivery_lost: its delivery no longer exists"),
        (
            "UPDATE deliveries SET state = 'cancelled', reason = 'x', next_attempt_at = NULL, finished_at = now()",
            "FAILED",
            "x",
        ),
    ],
)
async def test_recovery_finds_an_ended_delivery(pool: Pool, statement: str, status: str, reason: str) -> None:
    """If the trigger did not run, recovery ends the event after its lease."""
    user = await born(pool, "1990-11-15", now="2026-11-01T00:00")
    await scheduler(pool).run_once()
    async with pool.acquire() as connection, connection.transaction():
        await connection.execute("ALTER TABLE deliveries DISABLE TRIGGER settle_scheduled_event")
        await connection.execute(statement)
        await connection.execute("ALTER TABLE deliveries ENABLE TRIGGER settle_scheduled_event")
    await scheduler(pool, "2026-11-15T09:05").recover()
    assert await statuses(pool, user.id) == [("2026", status), ("2027", "PENDING")]
    assert await pool.fetchval("SELECT failure_reason FROM scheduled_events WHERE status = 'FAILED'") == reason


async def test_a_recovered_event_finds_the_delivery_it_had(pool: Pool) -> None:
    """An occurrence whose key has a delivery is linked to it again, even after a change of name."""
    user = await born(pool, "1990-11-15", now="2026-11-01T00:00")
    await scheduler(pool).run_once()
    await pool.execute("DELETE FROM scheduled_events WHERE status = 'PENDING'")
    await pool.execute("UPDATE scheduled_events SET delivery_id = NULL")
    await scheduler(pool, "2026-11-15T09:05").recover()
    await service.update_user(
        pool, user.id, {"first_name": "Augusta"}, policy=POSTING, now=utc("2026-11-15T09:05"), actor="tests"
    )
    assert await scheduler(pool, "2026-11-15T09:05").run_once() == 1
    assert await pool.fetchval("SELECT count(*) FROM deliveries") == 1
    assert await pool.fetchval("SELECT delivery_id IS NOT NULL FROM scheduled_events WHERE status = 'PROCESSING'")


async def test_delete_waits_for_a_claim_and_removes_everything(pool: Pool) -> None:
    """A deletion waits for the claim, then removes person and events and cancels the queued greeting."""
    user = await born(pool, "1990-11-15", now="2026-11-01T00:00")
    async with pool.acquire() as connection:
        transaction = connection.transaction()
        await transaction.start()
        claimed = await store.claim_due(connection, claim_id=uuid4(), lease=engine.LEASE, now=NINE)
        deleting = asyncio.create_task(service.delete_user(pool, user.id, actor="tests"))
        await waiting_for_lock(pool)
        await engine.hand_over(connection, claimed, POSTING, now=NINE)
        await transaction.commit()
    await deleting
    assert await pool.fetchval("SELECT count(*) FROM scheduled_events") == 0
    assert await pool.fetchval("SELECT state::text FROM deliveries") == "cancelled"
    assert await scheduler(pool, "2028-01-01T00:00").run_once() == 0


async def test_claim_skips_locked_people(pool: Pool) -> None:
    """A claim does not wait for locks: it skips locked people and takes the events after them."""
    held, free = [await born(pool, "1990-11-15", now="2026-11-01T00:00") for _ in range(2)]
    for rollback in (True, False):
        async with (
            asyncio.timeout(60),
            pool.acquire() as connection,
        ):  # a claim that waits for the lock would never return
            transaction = connection.transaction()
            await transaction.start()
            if rollback:
                await store.lock_user(connection, user_id=held.id)
                assert await scheduler(pool).run_once() == 1
                await transaction.rollback()
            else:
                await store.delete_user(connection, user_id=held.id)
                assert await scheduler(pool).run_once() == 0
                await transaction.commit()
    assert await counted(pool) == {f"birthday:{free.id}:2026": 1}


async def waiting_for_lock(pool: Pool) -> None:
    """Wait until a session waits for a lock."""
    while not await pool.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted"):
        pass
