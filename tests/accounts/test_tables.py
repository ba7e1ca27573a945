"""The tables of accounts in SQL: statements of applications, and their triggers."""

import asyncio
import re
import time

import asyncpg
import pytest
from tests.conftest import SCHEMA
from tests.support.accounts import account, sign_up, token

from postroom.db.pool import Pool, connect

CONSUME = "UPDATE tokens SET consumed_at = extract(epoch FROM now()) WHERE account = $1"


async def test_new_account_gets_an_activation_token(pool: Pool) -> None:
    """Inserting an account creates one activation token that expires in fifteen minutes."""
    before = int(time.time())
    found = await token(pool, await sign_up(pool))
    assert (found["action"], found["consumed_at"]) == ("activation", None)
    assert found["expires_at"] - found["created_at"] == 900
    assert before <= found["created_at"] <= time.time()


async def test_rolled_back_sign_up_leaves_no_token(pool: Pool) -> None:
    """A rolled back sign-up leaves neither an account nor a token."""
    async with pool.acquire() as connection:
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute("INSERT INTO accounts (email, login) VALUES ('ada@example.org', 'ada')")
        assert await connection.fetchval("SELECT count(*) FROM tokens") == 1
        await transaction.rollback()
    assert await pool.fetchval("SELECT (SELECT count(*) FROM tokens) + (SELECT count(*) FROM accounts)") == 0


async def test_failed_token_rolls_back_its_account(pool: Pool) -> None:
    """The INSERT of an account fails if its token cannot be created."""
    await pool.execute("ALTER TABLE tokens ADD CONSTRAINT never CHECK (account < 0)")
    with pytest.raises(asyncpg.CheckViolationError):
        await sign_up(pool)
    assert await pool.fetchval("SELECT count(*) FROM accounts") == 0


@pytest.mark.parametrize("status", ["active", "suspended"])
async def test_an_account_that_is_not_provisioned_gets_no_token(pool: Pool, status: str) -> None:
    """Accounts that are imported as active or suspended get no activation token."""
    await sign_up(pool, status=status)
    assert await pool.fetchval("SELECT count(*) FROM tokens") == 0


async def test_on_conflict_do_nothing_creates_no_extra_token(pool: Pool) -> None:
    """After an INSERT with a conflict only the new account has a token."""
    await sign_up(pool, "ada")
    inserted = await pool.execute(
        "INSERT INTO accounts (email, login) VALUES ('ada@example.org', 'ada'), ('bob@example.org', 'bob')"
        " ON CONFLICT DO NOTHING"
    )
    assert inserted == "INSERT 0 1"
    assert await pool.fetchval("SELECT count(*) FROM tokens") == 2
    assert await pool.fetchval("SELECT count(DISTINCT account) FROM tokens") == 2


async def test_on_conflict_by_email_works(pool: Pool) -> None:
    """ON CONFLICT (email) DO UPDATE finds the documented constraint."""
    first = await sign_up(pool, "ada")
    sql = (
        "INSERT INTO accounts (email, login) VALUES ('ada@example.org', 'countess')"
        " ON CONFLICT (email) DO UPDATE SET login = excluded.login RETURNING id"
    )
    assert await pool.fetchval(sql) == first
    assert await pool.fetchval("SELECT count(*) FROM tokens") == 1


@pytest.mark.parametrize("taken", [{"email": "ADA@Example.ORG"}, {"login": "Ada"}])
async def test_addresses_and_logins_ignore_case(pool: Pool, taken: dict[str, str]) -> None:
    """Addresses and logins that differ only in case conflict."""
    await sign_up(pool, "ada")
    with pytest.raises(asyncpg.UniqueViolationError):
        await sign_up(pool, **({"name": "bob"} | taken))


async def test_names_hold_254_characters(pool: Pool) -> None:
    """Addresses and logins have at most 254 characters."""
    await sign_up(pool, email=f"{'a' * 242}@example.org", login="l" * 254)
    with pytest.raises(asyncpg.StringDataRightTruncationError):
        await sign_up(pool, login="m" * 255)
    with pytest.raises(asyncpg.StringDataRightTruncationError):
        await sign_up(pool, email=f"{'b' * 243}@example.org")


@pytest.mark.parametrize(
    "columns",
    [
        {"email": "nobody"},
        {"email": "a@b\nc"},
        {"email": "a@b@c.org"},
        {"email": "a,b@x.org"},
        {"email": "<a@x.org>"},
        {"email": "a@x..org"},
        {"email": "a@.org"},
        {"email": "a@x.org."},
        {"login": ""},
        {"login": "a\nb"},
        {"locale": ""},
        {"locale": "f"},
    ],
)
async def test_invalid_address_fails_the_insert(pool: Pool, columns: dict[str, str]) -> None:
    """The table rejects an invalid address or login, so that the application sees the error."""
    with pytest.raises(asyncpg.CheckViolationError):
        await sign_up(pool, **columns)


@pytest.mark.parametrize(
    "email", ["a+b/c=d'e@x-y.org", "a.b@localhost", "ää@exämple.org", "a..b@x_y.org", "{`~!#$%^&*}@x.y.z"]
)
async def test_unusual_valid_addresses_are_stored(pool: Pool, email: str) -> None:
    """The table accepts unusual characters and internationalized addresses."""
    assert (await account(pool, await sign_up(pool, email=email)))["email"] == email


async def make_tokens(pool: Pool, action: str, count: int) -> None:
    """Create activations by sign-ups, or recoveries of one account by INSERT."""
    if action == "activation":
        await pool.execute(
            "INSERT INTO accounts (email, login) SELECT n || '@example.org', n FROM generate_series(1, $1::integer) n",
            count,
        )
        return
    ada = await sign_up(pool, status="active")
    await pool.execute(
        "INSERT INTO tokens (account, action) SELECT $1, 'password_recovery' FROM generate_series(1, $2::integer)",
        ada,
        count,
    )


@pytest.mark.parametrize("action", ["activation", "password_recovery"])
async def test_secrets_are_32_bytes_and_differ(pool: Pool, action: str) -> None:
    """A thousand secrets are all different, and every bit is 1 in about half of them."""
    await make_tokens(pool, action, 1000)
    secrets = [row["secret"] for row in await pool.fetch("SELECT secret FROM tokens")]
    assert len(set(secrets)) == 1000
    assert {len(secret) for secret in secrets} == {32}
    for bit in range(256):
        ones = sum(secret[bit // 8] >> (bit % 8) & 1 for secret in secrets)
        assert 380 < ones < 620  # seven standard deviations: outside, a bit is fixed or skewed


@pytest.mark.parametrize("action", ["activation", "password_recovery"])
async def test_codes_are_five_uniform_digits(pool: Pool, action: str) -> None:
    """Ten thousand codes have five digits each, and first digits are uniform."""
    await make_tokens(pool, action, 10_000)
    codes = [row["code"] for row in await pool.fetch("SELECT code FROM tokens")]
    assert all(re.fullmatch("[0-9]{5}", code) for code in codes)
    for place in (0, 4):
        counts = [sum(code[place] == digit for code in codes) for digit in "0123456789"]
        assert all(800 < count < 1200 for count in counts)


async def test_consuming_an_activation_token_activates(pool: Pool) -> None:
    """An UPDATE of consumed_at activates a provisioned account and sets activated_at."""
    ada = await sign_up(pool)
    await pool.execute(CONSUME, ada)
    found = await account(pool, ada)
    assert found["status"] == "active"
    assert found["activated_at"] == found["status_changed_at"] is not None


async def test_consuming_leaves_a_suspended_account_suspended(pool: Pool) -> None:
    """An old link does not activate a suspended account."""
    ada = await sign_up(pool)
    await pool.execute("UPDATE accounts SET status = 'suspended' WHERE id = $1", ada)
    await pool.execute(CONSUME, ada)
    assert (await account(pool, ada))["status"] == "suspended"


async def test_consuming_a_recovery_token_changes_no_status(pool: Pool) -> None:
    """Consuming a recovery does not change the status of the account."""
    ada = await sign_up(pool)
    await pool.execute("DELETE FROM tokens")
    await pool.execute("INSERT INTO tokens (account, action) VALUES ($1, 'password_recovery')", ada)
    await pool.execute(CONSUME, ada)
    assert dict(await account(pool, ada)) | {"status_changed_at": None} == dict(await account(pool, ada))
    assert (await account(pool, ada))["status"] == "provisioned"


async def test_used_recovery_expires_the_others(pool: Pool) -> None:
    """Using a recovery expires the other recoveries of the account, and no other token."""
    ada, bob = [await sign_up(pool, name) for name in ("ada", "bob")]
    insert = "INSERT INTO tokens (account, action) VALUES ($1, 'password_recovery') RETURNING id"
    first, second, other = [await pool.fetchval(insert, owner) for owner in (ada, ada, bob)]
    await pool.execute("UPDATE tokens SET consumed_at = extract(epoch FROM now()) WHERE id = $1", first)
    live = await pool.fetch("SELECT id, action::text FROM tokens WHERE expires_at > extract(epoch FROM now())")
    assert {row["id"] for row in live if row["action"] == "password_recovery"} == {first, other}
    assert second not in {row["id"] for row in live}
    assert [row["action"] for row in live].count("activation") == 2


async def test_two_concurrent_recoveries_do_not_deadlock(pool: Pool) -> None:
    """Each transaction skips the token that the other has locked."""
    ada = await sign_up(pool, status="active")
    insert = "INSERT INTO tokens (account, action) VALUES ($1, 'password_recovery') RETURNING id"
    first, second = [await pool.fetchval(insert, ada) for _ in range(2)]
    use = "UPDATE tokens SET consumed_at = 1 WHERE id = $1"
    async with asyncio.timeout(60), pool.acquire() as one, one.transaction():
        await one.execute("SELECT FROM tokens WHERE id = $1 FOR UPDATE", first)
        async with pool.acquire() as other, other.transaction():
            await other.execute(use, second)
            await one.execute(use, first)
    assert await pool.fetchval("SELECT count(*) FROM tokens WHERE consumed_at = 1") == 2


async def test_new_address_expires_tokens_of_the_old_one(pool: Pool) -> None:
    """A change of address expires open tokens and creates an activation for the new address."""
    ada = await sign_up(pool)
    await pool.execute("INSERT INTO tokens (account, action) VALUES ($1, 'password_recovery')", ada)
    before = await pool.fetchval("SELECT max(id) FROM tokens")
    await pool.execute("UPDATE accounts SET email = 'countess@example.org' WHERE id = $1", ada)
    live = await pool.fetch(
        "SELECT id, action::text FROM tokens WHERE expires_at > extract(epoch FROM now()) AND consumed_at IS NULL"
    )
    assert [(row["id"] > before, row["action"]) for row in live] == [(True, "activation")]


async def test_new_address_of_an_active_account_sends_no_mail(pool: Pool) -> None:
    """Its recoveries expire, and it stays active."""
    ada = await sign_up(pool, status="active")
    await pool.execute("INSERT INTO tokens (account, action) VALUES ($1, 'password_recovery')", ada)
    await pool.execute("UPDATE accounts SET email = 'countess@example.org' WHERE id = $1", ada)
    assert await pool.fetchval("SELECT count(*) FROM tokens") == 1
    assert await pool.fetchval("SELECT expires_at <= extract(epoch FROM now()) FROM tokens")


@pytest.mark.parametrize("change", ["email = 'ADA@example.org'", "email = email", "login = 'countess'"])
async def test_the_same_address_keeps_its_tokens(pool: Pool, change: str) -> None:
    """A change of case does not expire tokens."""
    ada = await sign_up(pool)
    before = await token(pool, ada)
    await pool.execute(f"UPDATE accounts SET {change}")
    assert await token(pool, ada) == before


async def test_a_token_consumed_twice_activates_once(pool: Pool) -> None:
    """A second UPDATE of consumed_at does not change the account."""
    ada = await sign_up(pool)
    await pool.execute(CONSUME, ada)
    await pool.execute("UPDATE accounts SET activated_at = 7 WHERE id = $1", ada)
    await pool.execute(CONSUME, ada)
    assert (await account(pool, ada))["activated_at"] == 7


async def test_suspending_and_unsuspending_set_times(pool: Pool) -> None:
    """Suspending clears unsuspended_at, unsuspending clears suspended_at and restores active."""
    ada = await sign_up(pool)
    await pool.execute(CONSUME, ada)
    await pool.execute("UPDATE accounts SET status = 'suspended' WHERE id = $1", ada)
    suspended = await account(pool, ada)
    assert (suspended["suspended_at"] is not None, suspended["unsuspended_at"]) == (True, None)
    await pool.execute("UPDATE accounts SET status = 'active', activated_at = 7 WHERE id = $1", ada)
    back = await account(pool, ada)
    assert (back["status"], back["suspended_at"], back["activated_at"]) == ("active", None, 7)
    assert back["unsuspended_at"] is not None
    await pool.execute("UPDATE accounts SET status = 'suspended' WHERE id = $1", ada)
    assert (await account(pool, ada))["unsuspended_at"] is None


async def test_unsuspending_a_never_active_account_is_provisioned(pool: Pool) -> None:
    """An account does not become active without a proven address."""
    ada = await sign_up(pool)
    await pool.execute("UPDATE accounts SET status = 'suspended' WHERE id = $1", ada)
    await pool.execute("UPDATE accounts SET status = 'active' WHERE id = $1", ada)
    found = await account(pool, ada)
    assert (found["status"], found["activated_at"], found["suspended_at"]) == ("provisioned", None, None)


async def test_account_imported_as_active_is_unsuspended_to_active(pool: Pool) -> None:
    """An account that is inserted as active counts as activated."""
    ada = await sign_up(pool, status="active")
    await pool.execute("UPDATE accounts SET status = 'suspended' WHERE id = $1", ada)
    await pool.execute("UPDATE accounts SET status = 'active' WHERE id = $1", ada)
    assert (await account(pool, ada))["status"] == "active"


async def test_an_imported_account_keeps_its_times(pool: Pool) -> None:
    """An imported suspended_at is kept; without one the current time is set."""
    known = await account(pool, await sign_up(pool, "ada", status="suspended", suspended_at=7, activated_at=5))
    assert (known["suspended_at"], known["activated_at"]) == (7, 5)
    assert (await account(pool, await sign_up(pool, "bob", status="suspended")))["suspended_at"] > 7


async def test_account_reset_to_provisioned_must_activate_again(pool: Pool) -> None:
    """Suspending and unsuspending an account that was reset to provisioned does not make it active."""
    ada = await sign_up(pool, status="active")
    for status in ("provisioned", "suspended", "active"):
        await pool.execute("UPDATE accounts SET status = $2::account_status WHERE id = $1", ada, status)
    assert (await account(pool, ada))["status"] == "provisioned"


async def test_update_without_a_status_change_sets_no_time(pool: Pool) -> None:
    """Setting the same status does not change status_changed_at."""
    ada = await sign_up(pool)
    await pool.execute("UPDATE accounts SET status = 'provisioned', login = 'countess' WHERE id = $1", ada)
    assert (await account(pool, ada))["status_changed_at"] is None


async def test_times_reach_beyond_2038(pool: Pool) -> None:
    """Epoch seconds are stored as bigint."""
    ada = await sign_up(pool, created_at=2**31 + 5)
    await pool.execute("UPDATE tokens SET expires_at = 99999999999 WHERE account = $1", ada)
    assert (await account(pool, ada))["created_at"] == 2147483653


async def test_deleting_an_account_deletes_its_tokens(pool: Pool) -> None:
    """The foreign key cascades."""
    ada = await sign_up(pool)
    await pool.execute("DELETE FROM accounts WHERE id = $1", ada)
    assert await pool.fetchval("SELECT count(*) FROM tokens") == 0


async def test_a_token_may_be_written_before_its_account(pool: Pool) -> None:
    """The foreign key of tokens is checked at commit."""
    async with pool.acquire() as connection, connection.transaction():
        await connection.execute("INSERT INTO tokens (account, action) VALUES (77, 'password_recovery')")
        await connection.execute("INSERT INTO accounts (id, email, login) VALUES (77, 'ada@example.org', 'ada')")
    assert await pool.fetchval("SELECT count(*) FROM tokens WHERE account = 77") == 2


async def test_a_statement_notifies_once(pool: Pool, database_url: str) -> None:
    """A statement with a hundred sign-ups sends one notification with an empty payload; a failed one sends none."""
    heard: asyncio.Queue[str] = asyncio.Queue()
    listener = await connect(database_url, SCHEMA)
    await listener.add_listener("token_insert", lambda *event: heard.put_nowait(event[3]))
    many = (
        "INSERT INTO accounts (email, login) SELECT $1 || n || '@example.org', $1 || n FROM generate_series(1, 100) n"
    )
    await pool.execute(many, "one")
    await pool.execute("INSERT INTO accounts (email, login) VALUES ('one1@example.org', 'x') ON CONFLICT DO NOTHING")
    await pool.execute("INSERT INTO tokens (account, action) SELECT min(id), 'password_recovery' FROM accounts")
    await pool.execute("NOTIFY token_insert, 'the end'")
    assert [await asyncio.wait_for(heard.get(), 60) for _ in range(3)] == ["", "", "the end"]
    await listener.close()


async def test_a_busy_collector_is_not_notified(pool: Pool, database_url: str) -> None:
    """While a collector takes full batches, sign-ups send no notifications."""
    heard: asyncio.Queue[str] = asyncio.Queue()
    listener = await connect(database_url, SCHEMA)
    await listener.add_listener("token_insert", lambda *event: heard.put_nowait(event[3]))
    await pool.execute("UPDATE busy_jobs SET until = now() + interval '1 hour'")
    await sign_up(pool)
    await pool.execute("NOTIFY token_insert, 'the end'")
    assert await asyncio.wait_for(heard.get(), 60) == "the end"
    await listener.close()


async def test_sign_up_works_from_any_search_path(pool: Pool, database_url: str) -> None:
    """An application with its own search path needs only the qualified table name."""
    connection = await asyncpg.connect(database_url)
    await connection.execute(f"INSERT INTO {SCHEMA}.accounts (email, login) VALUES ('ada@example.org', 'ada')")
    await connection.execute(f"UPDATE {SCHEMA}.tokens SET consumed_at = 1")
    await connection.close()
    assert await pool.fetchval("SELECT status::text FROM accounts") == "active"


async def test_new_room_has_one_job_at_zero(pool: Pool) -> None:
    """A new room has one job, `mailroom`, with its cursor at zero."""
    rows = await pool.fetch("SELECT job_type::text, last_seq FROM jobs")
    assert [tuple(row) for row in rows] == [("mailroom", 0)]
