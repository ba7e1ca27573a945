"""Accounts that a claim holds: only the end of that claim frees them."""

import asyncio

import pytest
from tests.support.builders import NOON
from tests.support.senders import an_account
from tests.support.sessions import until_blocked

from postroom.db.pool import Pool

SLOW_ACCOUNTS = """
    ALTER TABLE sender_accounts RENAME TO all_accounts;
    CREATE SEQUENCE looks;
    CREATE FUNCTION look() RETURNS boolean LANGUAGE plpgsql AS $$
    BEGIN
        IF nextval('looks') = {slow_look} THEN
            PERFORM pg_advisory_xact_lock_shared(4711);
        END IF;
        RETURN true;
    END $$;
    CREATE VIEW sender_accounts WITH (security_barrier) AS SELECT * FROM all_accounts WHERE look();
"""
"""One look at an account takes long, as if the server were slow."""

TAKE = """
    UPDATE all_accounts SET held_by = 2
    WHERE id IN (SELECT id FROM all_accounts FOR UPDATE SKIP LOCKED)
    RETURNING id
"""


@pytest.mark.parametrize("slow_look", [1, 2])
async def test_account_taken_while_its_old_claim_is_examined_stays_held(pool: Pool, slow_look: int) -> None:
    """The statement that frees accounts has read the claims before the new one; the account has a new holder."""
    await an_account(pool, send_delay_ms=1000, held_by=1)
    await pool.execute(SLOW_ACCOUNTS.format(slow_look=slow_look))
    async with pool.acquire() as claiming, pool.acquire() as other:
        await claiming.execute("SELECT pg_advisory_lock(4711)")
        freeing = asyncio.create_task(other.execute("SELECT free_held_senders(now())"))
        await until_blocked(pool, unless=freeing)
        await claiming.execute(
            "INSERT INTO claims (id, lane, worker_id, claimed_at, expires_at, delivery_ids)"
            " VALUES (2, 'bulk', 2, now(), now() + interval '1 hour', '{}')"
        )
        taken = await claiming.fetchval(TAKE)
        await claiming.execute("SELECT pg_advisory_unlock(4711)")
        await freeing
    assert await pool.fetchval("SELECT held_by FROM all_accounts") == (None if taken is None else 2)


async def test_warm_up_that_a_person_changes_at_midnight_is_kept(pool: Pool) -> None:
    """The first claim of a day waits for the change, and starts the day of the changed warm-up."""
    await an_account(
        pool,
        status="warming_up",
        warmup_stage=1,
        warmup_limits=[10, 20, 40],
        warmup_current_limit=10,
        warmup_days=3,
        warmup_stage_sent=100,
        warmup_days_per_stage=3,
        counted_on=NOON.date(),
    )
    async with pool.acquire() as person, pool.acquire() as other:
        changing = person.transaction()
        await changing.start()
        await person.execute("UPDATE sender_accounts SET warmup_stage = 2, warmup_current_limit = 20")
        rolling = asyncio.create_task(
            other.execute("SELECT roll_sender_days($1::timestamptz + interval '1 day')", NOON)
        )
        await until_blocked(pool, unless=rolling)
        await changing.commit()
        await rolling
    assert await pool.fetchval("SELECT warmup_current_limit FROM sender_accounts") == 40
