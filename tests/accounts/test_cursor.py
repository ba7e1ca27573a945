"""The cursor of the collector: order, filters, and no skipped token."""

import asyncio
import json

import pytest
from tests.support.accounts import collector, mailed_keys, run_once, settle, sign_up

from postroom.accounts import service, store
from postroom.accounts.model import DueToken
from postroom.db.pool import Pool
from postroom.rooms.lifecycle import settle_room
from postroom.settings import Settings


async def dequeue(pool: Pool, limit: int = 10) -> list[DueToken]:
    await settle(pool)
    return await dequeue_now(pool, limit)


async def dequeue_now(pool: Pool, limit: int = 10) -> list[DueToken]:
    """The logins of the tokens that can be read now."""
    async with pool.acquire() as connection, connection.transaction():
        return await store.dequeue(connection, batch_limit=limit, now=None)


async def logins(pool: Pool, limit: int = 10) -> list[str]:
    return [token.login for token in await dequeue(pool, limit)]


async def crowd(pool: Pool, count: int) -> None:
    await pool.execute(
        "INSERT INTO accounts (email, login) SELECT n || '@example.org', n FROM generate_series(1, $1::integer) n",
        count,
    )


async def test_tokens_come_oldest_first_in_batches(pool: Pool) -> None:
    """A batch has ten tokens by default, and each token is taken once."""
    await crowd(pool, 25)
    await settle(pool)
    batches = [await pool.fetch("SELECT login FROM dequeue_tokens()") for _ in range(4)]
    assert [len(batch) for batch in batches] == [10, 10, 5, 0]
    assert [row["login"] for batch in batches for row in batch] == [str(n) for n in range(1, 26)]


async def test_a_token_that_commits_late_is_not_skipped(pool: Pool) -> None:
    """While a transaction with a lower id is open, the cursor waits; then both tokens are taken once."""
    async with pool.acquire() as slow:
        transaction = slow.transaction()
        await transaction.start()
        await slow.execute("INSERT INTO accounts (email, login) VALUES ('low@example.org', 'low')")
        await sign_up(pool, "high")
        ids = await pool.fetch("SELECT max(id) FROM tokens")
        assert ids[0][0] > await slow.fetchval("SELECT min(id) FROM tokens")
        assert await dequeue_now(pool) == []
        await transaction.commit()
    assert await logins(pool) == ["low", "high"]
    assert await logins(pool) == []


async def test_a_low_id_of_a_late_transaction_is_not_skipped(pool: Pool) -> None:
    """A token is taken even if its id is below the cursor, because its transaction is later."""
    low = await pool.fetchval(
        "SELECT nextval('tokens_id_seq')"
    )  # on another connection: nextval may assign a transaction id
    async with pool.acquire() as slow:
        transaction = slow.transaction()
        await transaction.start()
        await sign_up(pool, "high")
        assert await logins(pool) == ["high"]
        await slow.execute(
            "INSERT INTO accounts (id, email, login, status) VALUES (99, 'low@example.org', 'low', 'active')"
        )
        await slow.execute("INSERT INTO tokens (id, account, action) VALUES ($1, 99, 'password_recovery')", low)
        await transaction.commit()
    assert low < await pool.fetchval("SELECT last_seq FROM jobs")
    assert await logins(pool) == ["low"]


async def test_cursor_does_not_wait_for_a_rolled_back_token(pool: Pool) -> None:
    """A rolled back token leaves a gap in the ids that does not stop the cursor."""
    async with pool.acquire() as slow:
        transaction = slow.transaction()
        await transaction.start()
        await slow.execute("INSERT INTO accounts (email, login) VALUES ('low@example.org', 'low')")
        await sign_up(pool, "high")
        await transaction.rollback()
    assert await logins(pool) == ["high"]


async def test_a_batch_that_is_rolled_back_is_taken_again(pool: Pool) -> None:
    """The cursor advances only when the transaction that took the batch commits."""
    await sign_up(pool, "ada")
    await settle(pool)
    async with pool.acquire() as connection:
        transaction = connection.transaction()
        await transaction.start()
        assert len(await store.dequeue(connection, batch_limit=10, now=None)) == 1
        await transaction.rollback()
    assert await logins(pool) == ["ada"]


async def test_only_live_tokens_are_taken(pool: Pool) -> None:
    """Only live activations of provisioned accounts and live recoveries of active accounts are taken."""
    for name in ("expired", "consumed", "suspended", "fresh"):
        await sign_up(pool, name)
    await sign_up(pool, "active", status="active")
    await pool.execute("INSERT INTO tokens (account, action) SELECT id, 'password_recovery' FROM accounts ORDER BY id")
    await pool.execute(
        "INSERT INTO tokens (account, action) SELECT id, 'activation' FROM accounts WHERE login = 'active'"
    )
    await pool.execute("UPDATE accounts SET status = 'suspended' WHERE login = 'suspended'")
    of = "FROM accounts a WHERE a.id = t.account AND a.login ="
    await pool.execute(f"UPDATE tokens t SET expires_at = floor(extract(epoch FROM now())) {of} 'expired'")
    await pool.execute(f"UPDATE tokens t SET consumed_at = 1 {of} 'consumed' AND t.action = 'activation'")
    await pool.execute("UPDATE accounts SET status = 'suspended' WHERE login = 'consumed'")
    taken = await dequeue(pool)
    assert [(token.login, token.action.value) for token in taken] == [
        ("fresh", "activation"),
        ("active", "password_recovery"),
    ]


async def test_expired_tokens_are_skipped_at_once(pool: Pool) -> None:
    """The cursor passes a thousand expired tokens in one step and does not read them again."""
    await crowd(pool, 1000)
    await pool.execute("UPDATE tokens SET expires_at = 0")
    await sign_up(pool, "fresh")
    assert await logins(pool) == ["fresh"]
    assert await pool.fetchval("SELECT last_seq = (SELECT max(id) FROM tokens) FROM jobs")


async def test_a_job_of_another_kind_is_left_alone(pool: Pool) -> None:
    """Only the cursor of the job `mailroom` advances."""
    await pool.execute("ALTER TYPE job_type ADD VALUE 'other'")
    await pool.execute("INSERT INTO jobs (job_type, last_seq) VALUES ('other', 3)")
    await sign_up(pool, "ada")
    assert await logins(pool) == ["ada"]
    assert await pool.fetchval("SELECT last_seq FROM jobs WHERE job_type = 'other'") == 3


async def test_cursor_of_a_restored_dump_is_reset(pool: Pool) -> None:
    """A cursor with a transaction id of another cluster does not hide new tokens."""
    await pool.execute("UPDATE jobs SET last_transaction_id = '999999999999', last_seq = 5")
    await sign_up(pool, "ada")
    async with pool.acquire() as connection:
        assert await store.count_waiting(connection, bound=10) == 1
    assert await logins(pool) == []  # the first call renumbers the tokens
    assert await logins(pool) == ["ada"]
    assert await logins(pool) == []


@pytest.mark.parametrize("is_settled", [True, False])
async def test_tokens_of_a_raw_restore_are_mailed_once(pool: Pool, database_url: str, *, is_settled: bool) -> None:
    """Waiting and new tokens are mailed after a restore from another cluster; mailed ones are not mailed again."""
    for name in ("mailed", "expired", "waiting"):
        await sign_up(pool, name)
    await run_once(pool, collector(pool, batch_limit=1))
    await pool.execute(
        "UPDATE tokens SET transaction_id = (transaction_id::text::bigint + 1000000000)::text::xid8, "
        "expires_at = expires_at - CASE WHEN id = 2 THEN 1000 ELSE 0 END"
    )
    await pool.execute(
        "UPDATE jobs SET last_transaction_id = (last_transaction_id::text::bigint + 1000000000)::text::xid8"
    )
    await sign_up(pool, "since")
    if is_settled:
        await settle_room(database_url, Settings(database_url=database_url), actor="cli:tests")
        assert await pool.fetchval("SELECT has_restored_tokens()") is False
    async with asyncio.timeout(60):
        await collector(pool).run_until_empty()
    assert sorted(await mailed_keys(pool)) == ["token:1", "token:3", "token:4"]
    await settle(pool)
    assert not (await service.measure_stall(pool)).is_stalled


async def test_times_beyond_the_calendar_do_not_stop_the_collector(pool: Pool) -> None:
    """The collector clamps an expires_at that no datetime can represent."""
    await sign_up(pool, "ada")
    await pool.execute("UPDATE tokens SET expires_at = 9223372036854775807")
    [token] = await dequeue(pool)
    assert token.expires_at.year == 9998


async def test_batch_does_not_scan_the_table(pool: Pool) -> None:
    """With twenty thousand waiting tokens, a batch reads a few dozen pages of the cursor's index."""
    await crowd(pool, 20_000)
    await settle(pool)
    async with pool.acquire() as connection, connection.transaction():
        await connection.execute("SET LOCAL plan_cache_mode = force_generic_plan")
        plan = await connection.fetchval("EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) SELECT * FROM dequeue_tokens(10)")
        warm = await connection.fetchval("EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) SELECT * FROM dequeue_tokens(10)")
    assert json.loads(plan)[0]["Plan"]["Actual Rows"] == 10
    read = json.loads(warm)[0]["Plan"]
    assert read["Shared Hit Blocks"] + read["Shared Read Blocks"] < 200
