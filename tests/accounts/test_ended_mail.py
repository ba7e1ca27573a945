"""Queued mail of a token that is expired early is cancelled."""

import asyncio

import asyncpg
import pytest
from tests.support.accounts import KEY, account, run_once, sign_up, signed, token, wrong
from tests.support.retention import swept
from tests.support.sessions import until_blocked

from postroom.accounts import service
from postroom.accounts.model import Action
from postroom.accounts.worker import RETENTION
from postroom.db.pool import Pool
from postroom.errors import PostroomError

ADA = "ada@example.org"
MAILS = "SELECT state::text, reason FROM deliveries ORDER BY id"
MOVE = "UPDATE postroom.accounts SET email = 'countess@example.org' WHERE login = 'ada'"
REMOVE = "DELETE FROM postroom.accounts WHERE login = 'ada'"
END = "UPDATE postroom.tokens SET expires_at = 1 WHERE account = 1"
CANCELLED, QUEUED = ("cancelled", "token_ended"), ("queued", None)


@pytest.mark.parametrize("state", ["queued", "rendered"])
@pytest.mark.parametrize("ending", [MOVE, REMOVE, END])
async def test_mail_of_an_ended_token_is_cancelled(pool: Pool, database_url: str, ending: str, state: str) -> None:
    """A new address, a deletion or an UPDATE cancels the mail of that account only, from any search path."""
    for name in ("ada", "bob"):
        await sign_up(pool, name)
    await run_once(pool)
    if state == "rendered":
        await pool.execute("UPDATE deliveries SET state = 'rendered'")
    application = await asyncpg.connect(database_url, server_settings={"search_path": "public"})
    await application.execute(ending)
    await application.close()
    assert await pool.fetch(MAILS) == [CANCELLED, (state, None)]


async def test_activation_is_mailed_to_the_new_address(pool: Pool) -> None:
    """A change of address cancels the old mail and queues a new one."""
    await sign_up(pool)
    await run_once(pool)
    await pool.execute(MOVE)
    await run_once(pool)
    assert await pool.fetch(MAILS) == [CANCELLED, QUEUED]
    emails = await pool.fetch("SELECT email FROM delivery_recipients ORDER BY delivery_id")
    assert emails == [("ada@example.org",), ("countess@example.org",)]


async def test_used_recovery_cancels_the_mail_of_the_others(pool: Pool) -> None:
    """Using a recovery cancels the queued mail of the account's other recoveries."""
    ada = await sign_up(pool, status="active")
    for _ in range(2):
        await service.request_token(pool, ADA, action=Action.PASSWORD_RECOVERY)
    await run_once(pool)
    await service.consume_secret(pool, await signed(pool, ada), key=KEY)
    assert await pool.fetch(MAILS) == [CANCELLED, QUEUED]


async def test_five_wrong_codes_cancel_the_mail(pool: Pool) -> None:
    """Four wrong codes leave the mail queued, the fifth cancels it."""
    code = (await token(pool, await sign_up(pool)))["code"]
    await run_once(pool)
    mails = []
    for _ in range(5):
        with pytest.raises(PostroomError):
            await service.consume_code(pool, ADA, code=wrong(code), action=Action.ACTIVATION)
        mails += await pool.fetch(MAILS)
    assert mails == [QUEUED] * 4 + [CANCELLED]


@pytest.mark.parametrize("ending", [MOVE, REMOVE, END])
async def test_finished_mail_is_not_changed(pool: Pool, ending: str) -> None:
    """Ending a token does not change a delivery that has ended."""
    await sign_up(pool)
    await run_once(pool)
    await pool.execute(
        "UPDATE deliveries SET state = 'failed', next_attempt_at = NULL, finished_at = now(), reason = 'refused'"
    )
    await pool.execute(ending)
    assert await pool.fetch(MAILS) == [("failed", "refused")]


async def test_use_and_retention_do_not_call_the_function(pool: Pool) -> None:
    """Sign-up, use, a shorter lifetime and retention of tokens do not call `cancel_token_mail`."""
    await pool.execute(
        "CREATE OR REPLACE FUNCTION cancel_token_mail() RETURNS trigger LANGUAGE plpgsql"
        " AS $$ BEGIN RAISE EXCEPTION 'called'; END $$"
    )
    ada, _bob = [await sign_up(pool, name) for name in ("ada", "bob")]
    await run_once(pool)
    await pool.execute("UPDATE tokens SET expires_at = expires_at - 60")
    await service.consume_secret(pool, await signed(pool, ada), key=KEY)
    await pool.execute("ALTER TABLE tokens DISABLE TRIGGER cancel_token_mail; UPDATE tokens SET expires_at = 1")
    await pool.execute("ALTER TABLE tokens ENABLE TRIGGER cancel_token_mail; UPDATE tokens SET expires_at = 0")
    assert await swept(pool, RETENTION) == 2
    assert (await account(pool, ada))["status"] == "active"


@pytest.mark.parametrize("by", ["code", "link"])
async def test_change_of_address_and_use_do_not_deadlock(pool: Pool, by: str) -> None:
    """The second transaction waits for the account before it locks a token, and activates no unproven address."""
    ada = await sign_up(pool)
    code, link = (await token(pool, ada))["code"], await signed(pool, ada)
    async with asyncio.timeout(60), pool.acquire() as mover, mover.transaction():
        await mover.execute("SELECT FROM accounts WHERE id = $1 FOR UPDATE", ada)
        use = (
            service.consume_code(pool, ADA, code=code, action=Action.ACTIVATION)
            if by == "code"
            else service.consume_secret(pool, link, key=KEY)
        )
        using = asyncio.create_task(use)
        await until_blocked(pool)
        await mover.execute(MOVE)
    with pytest.raises(PostroomError):
        await using
    assert (await account(pool, ada))["status"] == "provisioned"
