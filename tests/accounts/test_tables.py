"""The contract in plain SQL: what an application writes, and what the triggers make of it."""

import asyncio
import re
import time

import asyncpg
import pytest
from tests.conftest import SCHEMA
from tests.support.accounts import account, sign_up, token

from postroom.db.migrate import migration_files
from postroom.db.pool import Pool, connect

CONSUME = "UPDATE tokens SET consumed_at = extract(epoch FROM now()) WHERE account = $1"


async def test_a_provisioned_account_gets_its_activation_token(pool: Pool) -> None:
    """Inserting an account makes one activation token, unconsumed, good for fifteen minutes."""
    before = int(time.time())
    found = await token(pool, await sign_up(pool))
    assert (found["action"], found["consumed_at"]) == ("activation", None)
    assert found["expires_at"] - found["created_at"] == 900
    assert before <= found["created_at"] <= time.time()


async def test_account_and_token_stand_or_fall_together(pool: Pool) -> None:
    """A rolled back sign-up leaves neither."""
    async with pool.acquire() as connection:
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute("INSERT INTO accounts (email, login) VALUES ('ada@example.org', 'ada')")
        assert await connection.fetchval("SELECT count(*) FROM tokens") == 1
        await transaction.rollback()
    assert await pool.fetchval("SELECT (SELECT count(*) FROM tokens) + (SELECT count(*) FROM accounts)") == 0


async def test_a_token_that_cannot_be_made_takes_its_account_along(pool: Pool) -> None:
    """No account can exist whose token failed."""
    await pool.execute("ALTER TABLE tokens ADD CONSTRAINT never CHECK (account < 0)")
    with pytest.raises(asyncpg.CheckViolationError):
        await sign_up(pool)
    assert await pool.fetchval("SELECT count(*) FROM accounts") == 0


@pytest.mark.parametrize("status", ["active", "suspended"])
async def test_an_account_that_is_not_provisioned_gets_no_token(pool: Pool, status: str) -> None:
    """Imported accounts are not asked to activate."""
    await sign_up(pool, status=status)
    assert await pool.fetchval("SELECT count(*) FROM tokens") == 0


async def test_on_conflict_do_nothing_makes_no_token_for_nobody(pool: Pool) -> None:
    """A conflicting insert commits, and only the new account has a token."""
    await sign_up(pool, "ada")
    inserted = await pool.execute(
        "INSERT INTO accounts (email, login) VALUES ('ada@example.org', 'ada'), ('bob@example.org', 'bob')"
        " ON CONFLICT DO NOTHING"
    )
    assert inserted == "INSERT 0 1"
    assert await pool.fetchval("SELECT count(*) FROM tokens") == 2
    assert await pool.fetchval("SELECT count(DISTINCT account) FROM tokens") == 2


async def test_on_conflict_by_column_works_too(pool: Pool) -> None:
    """ON CONFLICT (email) DO UPDATE finds the constraint that the contract names."""
    first = await sign_up(pool, "ada")
    sql = (
        "INSERT INTO accounts (email, login) VALUES ('ada@example.org', 'countess')"
        " ON CONFLICT (email) DO UPDATE SET login = excluded.login RETURNING id"
    )
    assert await pool.fetchval(sql) == first
    assert await pool.fetchval("SELECT count(*) FROM tokens") == 1


@pytest.mark.parametrize("taken", [{"email": "ADA@Example.ORG"}, {"login": "Ada"}])
async def test_case_makes_no_second_account(pool: Pool, taken: dict[str, str]) -> None:
    """Addresses and logins that differ by case only are the same."""
    await sign_up(pool, "ada")
    with pytest.raises(asyncpg.UniqueViolationError):
        await sign_up(pool, **({"name": "bob"} | taken))


async def test_names_hold_254_characters(pool: Pool) -> None:
    """254 characters fit, 255 do not."""
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
async def test_what_cannot_be_mailed_is_refused(pool: Pool, columns: dict[str, str]) -> None:
    """A bad address fails the insert, where somebody reads it, and not the collector."""
    with pytest.raises(asyncpg.CheckViolationError):
        await sign_up(pool, **columns)


@pytest.mark.parametrize(
    "email", ["a+b/c=d'e@x-y.org", "a.b@localhost", "ää@exämple.org", "a..b@x_y.org", "{`~!#$%^&*}@x.y.z"]
)
async def test_what_can_be_mailed_is_kept(pool: Pool, email: str) -> None:
    """Addresses that servers somewhere accept, and those in other scripts, are no mistakes."""
    assert (await account(pool, await sign_up(pool, email=email)))["email"] == email


async def test_an_address_from_before_the_rule_does_not_stop_an_upgrade(pool: Pool) -> None:
    """The migration asks new rows only."""
    [file] = [file for file in migration_files() if file.name.endswith("_accounts_addresses.sql")]
    await pool.execute("ALTER TABLE accounts DROP CONSTRAINT accounts_email_form")
    await sign_up(pool, email="a@x..org")
    await pool.execute("ALTER TABLE accounts ADD CONSTRAINT accounts_email_form CHECK (email ~ '@')")
    await pool.execute(file.text.partition("-- forget_tokens")[0])
    with pytest.raises(asyncpg.CheckViolationError):
        await sign_up(pool, "bob", email="b@x..org")


async def make_tokens(pool: Pool, action: str, count: int) -> None:
    """Activations by the trigger of as many sign-ups, or recoveries for one account, as an application inserts them."""
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
    """A thousand secrets: all different, every bit of every byte seen as 0 and as 1 about as often."""
    await make_tokens(pool, action, 1000)
    secrets = [row["secret"] for row in await pool.fetch("SELECT secret FROM tokens")]
    assert len(set(secrets)) == 1000
    assert {len(secret) for secret in secrets} == {32}
    for bit in range(256):
        ones = sum(secret[bit // 8] >> (bit % 8) & 1 for secret in secrets)
        assert 380 < ones < 620  # more than seven standard deviations away would be a fixed or skewed bit


@pytest.mark.parametrize("action", ["activation", "password_recovery"])
async def test_codes_are_five_digits_and_even(pool: Pool, action: str) -> None:
    """Ten thousand codes are five digits each, and each first digit comes about as often."""
    await make_tokens(pool, action, 10_000)
    codes = [row["code"] for row in await pool.fetch("SELECT code FROM tokens")]
    assert all(re.fullmatch("[0-9]{5}", code) for code in codes)
    for place in (0, 4):
        counts = [sum(code[place] == digit for code in codes) for digit in "0123456789"]
        assert all(800 < count < 1200 for count in counts)


async def test_consuming_an_activation_token_activates(pool: Pool) -> None:
    """A plain UPDATE of consumed_at makes a provisioned account active and stamps it."""
    ada = await sign_up(pool)
    await pool.execute(CONSUME, ada)
    found = await account(pool, ada)
    assert found["status"] == "active"
    assert found["activated_at"] == found["status_changed_at"] is not None


async def test_consuming_leaves_a_suspended_account_suspended(pool: Pool) -> None:
    """Whoever was suspended does not come back by an old link."""
    ada = await sign_up(pool)
    await pool.execute("UPDATE accounts SET status = 'suspended' WHERE id = $1", ada)
    await pool.execute(CONSUME, ada)
    assert (await account(pool, ada))["status"] == "suspended"


async def test_consuming_a_recovery_token_changes_no_status(pool: Pool) -> None:
    """A recovery proves who somebody is, and nothing else."""
    ada = await sign_up(pool)
    await pool.execute("DELETE FROM tokens")
    await pool.execute("INSERT INTO tokens (account, action) VALUES ($1, 'password_recovery')", ada)
    await pool.execute(CONSUME, ada)
    assert dict(await account(pool, ada)) | {"status_changed_at": None} == dict(await account(pool, ada))
    assert (await account(pool, ada))["status"] == "provisioned"


async def test_a_recovery_that_is_used_ends_the_others(pool: Pool) -> None:
    """Of one account, and recoveries only."""
    ada, bob = [await sign_up(pool, name) for name in ("ada", "bob")]
    insert = "INSERT INTO tokens (account, action) VALUES ($1, 'password_recovery') RETURNING id"
    first, second, other = [await pool.fetchval(insert, owner) for owner in (ada, ada, bob)]
    await pool.execute("UPDATE tokens SET consumed_at = extract(epoch FROM now()) WHERE id = $1", first)
    live = await pool.fetch("SELECT id, action::text FROM tokens WHERE expires_at > extract(epoch FROM now())")
    assert {row["id"] for row in live if row["action"] == "password_recovery"} == {first, other}
    assert second not in {row["id"] for row in live}
    assert [row["action"] for row in live].count("activation") == 2


async def test_two_recoveries_used_at_once_do_not_wait_for_each_other(pool: Pool) -> None:
    """Each ends what nobody is using; neither stands in the other's way."""
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


async def test_a_new_address_ends_what_was_mailed_to_the_old_one(pool: Pool) -> None:
    """Nobody activates an address that was never proven; the activation goes to the new one instead."""
    ada = await sign_up(pool)
    await pool.execute("INSERT INTO tokens (account, action) VALUES ($1, 'password_recovery')", ada)
    before = await pool.fetchval("SELECT max(id) FROM tokens")
    await pool.execute("UPDATE accounts SET email = 'countess@example.org' WHERE id = $1", ada)
    live = await pool.fetch(
        "SELECT id, action::text FROM tokens WHERE expires_at > extract(epoch FROM now()) AND consumed_at IS NULL"
    )
    assert [(row["id"] > before, row["action"]) for row in live] == [(True, "activation")]


async def test_a_new_address_of_an_active_account_mails_nothing(pool: Pool) -> None:
    """Its recoveries end, and it stays as active as it was."""
    ada = await sign_up(pool, status="active")
    await pool.execute("INSERT INTO tokens (account, action) VALUES ($1, 'password_recovery')", ada)
    await pool.execute("UPDATE accounts SET email = 'countess@example.org' WHERE id = $1", ada)
    assert await pool.fetchval("SELECT count(*) FROM tokens") == 1
    assert await pool.fetchval("SELECT expires_at <= extract(epoch FROM now()) FROM tokens")


@pytest.mark.parametrize("change", ["email = 'ADA@example.org'", "email = email", "login = 'countess'"])
async def test_the_same_address_keeps_its_tokens(pool: Pool, change: str) -> None:
    """Another way to write it is no other address."""
    ada = await sign_up(pool)
    before = await token(pool, ada)
    await pool.execute(f"UPDATE accounts SET {change}")
    assert await token(pool, ada) == before


async def test_a_token_consumed_twice_activates_once(pool: Pool) -> None:
    """Running the statement again, after a suspension was lifted, stamps nothing anew."""
    ada = await sign_up(pool)
    await pool.execute(CONSUME, ada)
    await pool.execute("UPDATE accounts SET activated_at = 7 WHERE id = $1", ada)
    await pool.execute(CONSUME, ada)
    assert (await account(pool, ada))["activated_at"] == 7


async def test_suspending_and_unsuspending_stamp_and_clear(pool: Pool) -> None:
    """Suspending clears unsuspended_at, unsuspending clears suspended_at, and what was active is active again."""
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


async def test_unsuspending_who_was_never_active_gives_provisioned(pool: Pool) -> None:
    """Nobody becomes active without having proven the address."""
    ada = await sign_up(pool)
    await pool.execute("UPDATE accounts SET status = 'suspended' WHERE id = $1", ada)
    await pool.execute("UPDATE accounts SET status = 'active' WHERE id = $1", ada)
    found = await account(pool, ada)
    assert (found["status"], found["activated_at"], found["suspended_at"]) == ("provisioned", None, None)


async def test_an_account_imported_as_active_survives_a_suspension(pool: Pool) -> None:
    """Written as active from the start, it counts as activated."""
    ada = await sign_up(pool, status="active")
    await pool.execute("UPDATE accounts SET status = 'suspended' WHERE id = $1", ada)
    await pool.execute("UPDATE accounts SET status = 'active' WHERE id = $1", ada)
    assert (await account(pool, ada))["status"] == "active"


async def test_an_imported_account_keeps_its_times(pool: Pool) -> None:
    """Who was suspended elsewhere was suspended then; without a time, now."""
    known = await account(pool, await sign_up(pool, "ada", status="suspended", suspended_at=7, activated_at=5))
    assert (known["suspended_at"], known["activated_at"]) == (7, 5)
    assert (await account(pool, await sign_up(pool, "bob", status="suspended")))["suspended_at"] > 7


async def test_who_is_made_provisioned_again_has_to_activate_again(pool: Pool) -> None:
    """Back to provisioned by hand, a suspension in between does not make it active."""
    ada = await sign_up(pool, status="active")
    for status in ("provisioned", "suspended", "active"):
        await pool.execute("UPDATE accounts SET status = $2::account_status WHERE id = $1", ada, status)
    assert (await account(pool, ada))["status"] == "provisioned"


async def test_an_update_that_changes_no_status_stamps_nothing(pool: Pool) -> None:
    """status_changed_at is about changes."""
    ada = await sign_up(pool)
    await pool.execute("UPDATE accounts SET status = 'provisioned', login = 'countess' WHERE id = $1", ada)
    assert (await account(pool, ada))["status_changed_at"] is None


async def test_times_reach_beyond_2038(pool: Pool) -> None:
    """Epoch seconds are bigint."""
    ada = await sign_up(pool, created_at=2**31 + 5)
    await pool.execute("UPDATE tokens SET expires_at = 99999999999 WHERE account = $1", ada)
    assert (await account(pool, ada))["created_at"] == 2147483653


async def test_deleting_an_account_takes_its_tokens(pool: Pool) -> None:
    """The foreign key cascades."""
    ada = await sign_up(pool)
    await pool.execute("DELETE FROM accounts WHERE id = $1", ada)
    assert await pool.fetchval("SELECT count(*) FROM tokens") == 0


async def test_a_token_may_be_written_before_its_account(pool: Pool) -> None:
    """The foreign key waits for the commit, as the contract says."""
    async with pool.acquire() as connection, connection.transaction():
        await connection.execute("INSERT INTO tokens (account, action) VALUES (77, 'password_recovery')")
        await connection.execute("INSERT INTO accounts (id, email, login) VALUES (77, 'ada@example.org', 'ada')")
    assert await pool.fetchval("SELECT count(*) FROM tokens WHERE account = 77") == 2


async def test_a_statement_notifies_once(pool: Pool, database_url: str) -> None:
    """A hundred sign-ups in one statement are one notification with an empty payload; a failed one is none."""
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
    """While full batches are being taken, sign-ups do not pay for notifications."""
    heard: asyncio.Queue[str] = asyncio.Queue()
    listener = await connect(database_url, SCHEMA)
    await listener.add_listener("token_insert", lambda *event: heard.put_nowait(event[3]))
    await pool.execute("UPDATE busy_jobs SET until = now() + interval '1 hour'")
    await sign_up(pool)
    await pool.execute("NOTIFY token_insert, 'the end'")
    assert await asyncio.wait_for(heard.get(), 60) == "the end"
    await listener.close()


async def test_the_triggers_find_the_room_from_any_search_path(pool: Pool, database_url: str) -> None:
    """An application with its own search path names the table and needs nothing else."""
    connection = await asyncpg.connect(database_url)
    await connection.execute(f"INSERT INTO {SCHEMA}.accounts (email, login) VALUES ('ada@example.org', 'ada')")
    await connection.execute(f"UPDATE {SCHEMA}.tokens SET consumed_at = 1")
    await connection.close()
    assert await pool.fetchval("SELECT status::text FROM accounts") == "active"


async def test_the_cursor_begins_at_the_beginning(pool: Pool) -> None:
    """One job, `mailroom`, which has seen nothing."""
    rows = await pool.fetch("SELECT job_type::text, last_seq FROM jobs")
    assert [tuple(row) for row in rows] == [("mailroom", 0)]
