"""Another program may dequeue tokens by jobs.last_seq; each token is handed over once, to it or to the collector."""

from tests.accounts.test_cursor import crowd, dequeue, dequeue_now, logins
from tests.support.accounts import settle, sign_up

from postroom.db.pool import Pool, Session

OUTSIDE = """
    WITH token_data AS (
        SELECT t.account, t.secret, t.code, t.expires_at, t.id, t.action, a.email, a.login
        FROM jobs
            JOIN tokens t ON t.id > jobs.last_seq
                AND t.expires_at > EXTRACT(EPOCH FROM NOW())
                AND t.consumed_at IS NULL
                AND t.action IN ('activation', 'password_recovery')
            JOIN accounts a ON a.id = t.account
                AND ((t.action = 'activation' AND a.status = 'provisioned')
                    OR (t.action = 'password_recovery' AND a.status = 'active'))
        WHERE jobs.job_type = 'mailroom'
        ORDER BY id ASC
        LIMIT 10
    ),
    updated_jobs AS (
        UPDATE jobs SET last_seq = (SELECT MAX(id) FROM token_data)
        WHERE EXISTS (SELECT 1 FROM token_data)
        RETURNING last_seq
    )
    SELECT td.login FROM token_data td ORDER BY td.id
"""


async def outside(session: Pool | Session) -> list[str]:
    return [row["login"] for row in await session.fetch(OUTSIDE)]


async def test_tokens_dequeued_outside_are_not_mailed_again(pool: Pool) -> None:
    """The collector continues behind them, and the other program behind the collector."""
    await crowd(pool, 25)
    assert await outside(pool) == [str(n) for n in range(1, 11)]
    assert await logins(pool) == [str(n) for n in range(11, 21)]
    assert await outside(pool) == [str(n) for n in range(21, 26)]
    assert await logins(pool) == []
    assert await outside(pool) == []


async def test_token_that_the_outside_dequeue_could_not_see_is_mailed(pool: Pool) -> None:
    """A transaction with a lower id commits after the dequeue: the other program never reads it, the collector does."""
    async with pool.acquire() as slow:
        transaction = slow.transaction()
        await transaction.start()
        await slow.execute("INSERT INTO accounts (email, login) VALUES ('low@example.org', 'low')")
        await sign_up(pool, "high")
        assert await outside(pool) == ["high"]
        await transaction.commit()
    assert await outside(pool) == []
    assert await logins(pool) == ["low"]


async def test_token_that_the_collector_took_is_not_dequeued_outside(pool: Pool) -> None:
    """The transaction with the higher token id commits first in the order of the collector."""
    async with pool.acquire() as early, pool.acquire() as late:
        first, second = early.transaction(), late.transaction()
        await first.start()
        await early.execute("SELECT pg_current_xact_id()")  # the lower transaction id, and later the higher token id
        await second.start()
        await late.execute("INSERT INTO accounts (email, login) VALUES ('late@example.org', 'late')")
        await early.execute("INSERT INTO accounts (email, login) VALUES ('early@example.org', 'early')")
        await first.commit()
        await second.commit()
    assert await logins(pool) == ["early", "late"]
    assert await outside(pool) == []


async def test_dequeue_outside_that_is_rolled_back_leaves_its_tokens(pool: Pool) -> None:
    """The range of the dequeue is part of its transaction."""
    await crowd(pool, 3)
    async with pool.acquire() as session:
        transaction = session.transaction()
        await transaction.start()
        assert await outside(session) == ["1", "2", "3"]
        await transaction.rollback()
    assert await logins(pool) == ["1", "2", "3"]


async def test_passed_ranges_are_forgotten(pool: Pool) -> None:
    """The row of the job keeps a dequeue until the collector's cursor has passed all that it saw."""
    await crowd(pool, 5)
    await outside(pool)
    assert await pool.fetchval("SELECT cardinality(outside) FROM jobs") == 1
    await sign_up(pool, "next")
    assert await logins(pool) == ["next"]
    assert await pool.fetchval("SELECT cardinality(outside) FROM jobs") == 0


async def test_rewound_cursor_reads_tokens_again(pool: Pool) -> None:
    """An operator who sets last_seq back repeats the tokens behind it, as the document describes."""
    await crowd(pool, 3)
    assert len(await dequeue(pool)) == 3
    await pool.execute("UPDATE jobs SET last_seq = 0, last_transaction_id = '0'")
    await settle(pool)
    assert [token.login for token in await dequeue_now(pool)] == ["1", "2", "3"]
