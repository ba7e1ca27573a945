"""Helpers of account tests: accounts, tokens and a collector."""

import asyncio
from datetime import timedelta
from typing import Any

import asyncpg

from postroom.accounts.letter import AccountMailOptions
from postroom.accounts.model import Action
from postroom.accounts.signature import sign
from postroom.accounts.worker import Collector, CollectorOptions, Deliver
from postroom.db.pool import Pool

KEY = bytes(range(32))
LETTERHEAD = AccountMailOptions("https://mail.example.org", KEY)
TTL = timedelta(days=7)


def collector(pool: Pool, **options: Any) -> Collector:
    """A collector that enqueues mail, with the key of the tests."""
    return Collector(pool, Deliver(LETTERHEAD, idempotency_ttl=TTL), options=CollectorOptions(**options))


async def settle(pool: Pool) -> None:
    """Wait until every committed token can be read; other tests may have open transactions on the server."""
    held = "SELECT count(*) FROM tokens WHERE transaction_id >= pg_snapshot_xmin(pg_current_snapshot())"
    async with asyncio.timeout(60):
        while await pool.fetchval(held):
            pass


async def run_once(pool: Pool, worker: Collector | None = None) -> int:
    """Collect one batch of the committed tokens."""
    await settle(pool)
    return await (worker or collector(pool)).run_once()


async def sign_up(pool: Pool, name: str = "ada", **columns: Any) -> int:
    """Insert an account as an application does; returns its id."""
    given = {"email": f"{name}@example.org", "login": name} | columns
    names = ", ".join(given)
    places = ", ".join(f"${place}" for place in range(1, len(given) + 1))
    return int(await pool.fetchval(f"INSERT INTO accounts ({names}) VALUES ({places}) RETURNING id", *given.values()))


async def account(pool: Pool, account_id: int) -> asyncpg.Record:
    row = await pool.fetchrow("SELECT * FROM accounts WHERE id = $1", account_id)
    assert row is not None
    return row


async def token(pool: Pool, account_id: int) -> asyncpg.Record:
    """The newest token of an account."""
    row = await pool.fetchrow("SELECT * FROM tokens WHERE account = $1 ORDER BY id DESC LIMIT 1", account_id)
    assert row is not None
    return row


async def signed(pool: Pool, account_id: int) -> str:
    """The signed secret of an account's newest token."""
    found = await token(pool, account_id)
    return sign(KEY, Action(found["action"]), found["secret"])


async def mailed_keys(pool: Pool) -> list[str]:
    """The idempotency keys of all token mails in the ledger, in the order of acceptance."""
    rows = await pool.fetch("SELECT idempotency_key FROM deliveries WHERE source = 'accounts' ORDER BY id")
    return [row["idempotency_key"] for row in rows]


def wrong(code: str) -> str:
    """Another code."""
    return f"{(int(code) + 1) % 100_000:05d}"
