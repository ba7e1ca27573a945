"""Connections of an application: another search path, and a role with few rights."""

from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit
from uuid import uuid4

import asyncpg
import pytest
from tests.conftest import TestServer
from tests.support.accounts import account, sign_up, token, wrong

from postroom.db.pool import Pool, Session
from postroom.embedded.data_directory import DataDirectory

PERSON = "(first_name, last_name, date_of_birth, timezone) VALUES ('Ada', 'Lovelace', '1990-05-17', 'Europe/London')"
OCCASION = "(user_id, event_type, message, rule) SELECT id, 'REMINDER', 'Hello', '{}' FROM postroom.users"
GREETING = """
    (user_id, target_timestamp_utc, target_timestamp_local, target_timezone, idempotency_key, delivery_payload)
    SELECT id, now(), now(), 'UTC', 'k', '{}' FROM postroom.users
"""
CANCELLED = "state = 'cancelled', next_attempt_at = NULL, finished_at = now(), reason = 'cancelled_by_operator'"
STATEMENTS = {
    "accounts": (
        "INSERT INTO postroom.accounts (email, login) VALUES ('ada@example.org', 'ada')",
        "INSERT INTO postroom.accounts (email, login, status) VALUES ('bob@example.org', 'bob', 'suspended')",
        "UPDATE postroom.accounts SET status = 'suspended' WHERE login = 'ada'",
        "UPDATE postroom.accounts SET status = 'active' WHERE login = 'ada'",
        "UPDATE postroom.accounts SET email = 'countess@example.org' WHERE login = 'ada'",
    ),
    "tokens": (
        "INSERT INTO postroom.accounts (email, login) VALUES ('ada@example.org', 'ada')",
        "INSERT INTO postroom.tokens (account, action) VALUES (1, 'password_recovery')",
        "UPDATE postroom.tokens SET consumed_at = extract(epoch FROM now())",
        "SELECT postroom.request_token('ada@example.org', 'password_recovery')",
        "SELECT postroom.consume_code('ada@example.org', 'password_recovery', '00000')",
        "DELETE FROM postroom.accounts",
    ),
    "users": (
        f"INSERT INTO postroom.users {PERSON}",
        "UPDATE postroom.users SET timezone = 'Asia/Tokyo'",
        f"INSERT INTO postroom.user_occasions {OCCASION}",
        f"INSERT INTO postroom.scheduled_events {GREETING}",
        "UPDATE postroom.scheduled_events SET status = 'PROCESSING'",
        "UPDATE postroom.scheduled_events SET status = 'COMPLETED'",
        "DELETE FROM postroom.users",
    ),
    "suppressions": (
        "INSERT INTO postroom.suppressions (address, scope, reason) VALUES ('a@example.org', 'bulk', 'manual')",
        "UPDATE postroom.suppressions SET scope = 'all'",
        "DELETE FROM postroom.suppressions",
    ),
    "deliveries": (
        "SELECT postroom.send('{ada@example.org}', p_subject => 'a', p_text => 'b')",
        f"UPDATE postroom.deliveries SET {CANCELLED}",
        "INSERT INTO postroom.email_queue (recipient_email, subject, text_body) VALUES ('a@example.org', 'a', 'b')",
        "UPDATE postroom.email_queue SET status = 'cancelled' WHERE status = 'pending'",
    ),
    "campaigns": (
        "INSERT INTO postroom.campaigns (name, subject, text_body) VALUES ('a', 'b', 'c')",
        "UPDATE postroom.campaigns SET subject = 'd'",
        "UPDATE postroom.campaigns SET status = 'active', started_at = now()",
    ),
    "events": ("SELECT postroom.append_events_batch(ARRAY['Opened'], ARRAY['{door=1}'], ARRAY['{}'::jsonb])",),
}


@pytest.mark.parametrize("statements", STATEMENTS.values(), ids=STATEMENTS)
@pytest.mark.usefixtures("pool")
async def test_triggers_work_from_any_search_path(database_url: str, statements: tuple[str, ...]) -> None:
    """Statements with qualified names work through every trigger from any search path."""
    application = await asyncpg.connect(database_url, server_settings={"search_path": "public"})
    try:
        tags = [await application.execute(statement) for statement in statements]
    finally:
        await application.close()
    assert [tag for tag in tags if tag.endswith(" 0")] == []  # each statement reached rows


@pytest.fixture
async def role(server: TestServer, server_directory: Path) -> AsyncIterator[str]:
    """A role without rights, which the tests' role may assume."""
    state = DataDirectory(server_directory / "data").read_state()
    assert state is not None
    where = {"host": state.socket_dir, "port": state.port, "user": "postgres", "database": "postgres"}
    administrator = await asyncpg.connect(**where)
    name = f"application_{uuid4().hex[:12]}"
    await administrator.execute(f"CREATE ROLE {name}; GRANT {name} TO {urlsplit(server.url).username}")
    yield name
    await administrator.execute(f"DROP ROLE {name}")
    await administrator.close()


@pytest.fixture
async def application(role: str, database_url: str) -> AsyncIterator[Session]:
    """A session of a role with rights on accounts only."""
    session = await asyncpg.connect(database_url, server_settings={"search_path": "public"})
    await session.execute(f"GRANT USAGE ON SCHEMA postroom TO {role}")
    await session.execute(f"GRANT SELECT, INSERT, UPDATE ON postroom.accounts TO {role}")
    await session.execute(f"SET ROLE {role}")
    yield session
    await session.execute(f"RESET ROLE; DROP OWNED BY {role}")
    await session.close()


async def test_rights_on_accounts_suffice(pool: Pool, application: Session, role: str) -> None:
    """Sign-up, suspension, change of address, token request and code need no rights on other tables."""
    await pool.execute(f"GRANT EXECUTE ON FUNCTION request_token, consume_code TO {role}")
    ada = await application.fetchval(
        "INSERT INTO postroom.accounts (email, login) VALUES ('ada@example.org', 'ada') RETURNING id"
    )
    await application.execute("UPDATE postroom.accounts SET email = 'countess@example.org'")
    code = (await token(pool, ada))["code"]
    consume = "SELECT verdict FROM postroom.consume_code('countess@example.org', 'activation', $1)"
    assert await application.fetchval(consume, wrong(code)) == "wrong"
    assert await application.fetchval(consume, code) == "consumed"
    assert await application.fetchval("SELECT status::text FROM postroom.accounts") == "active"
    assert await application.fetchval("SELECT postroom.request_token('countess@example.org', 'password_recovery')")
    await application.execute("UPDATE postroom.accounts SET status = 'suspended'")
    assert (await account(pool, ada))["status"] == "suspended"
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await application.fetch("SELECT code FROM postroom.tokens")


async def test_owner_functions_need_a_grant(pool: Pool, application: Session) -> None:
    """SECURITY DEFINER functions cannot be called without EXECUTE."""
    await sign_up(pool)
    for call in ("request_token('ada@example.org', 'activation')", "consume_code('a@x.org', 'activation', '00000')"):
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await application.fetch(f"SELECT postroom.{call}")


async def test_granted_role_cannot_choose_the_clock(pool: Pool, application: Session, role: str) -> None:
    """With the documented rights, guesses are counted by the database's clock and under the address itself."""
    await pool.execute(f"GRANT EXECUTE ON FUNCTION request_token, consume_code TO {role}")
    await sign_up(pool)
    tomorrow = "now() + interval '1 day'"
    ours = ("request_token('ada@example.org', 'activation'", "consume_code('ada@example.org', 'activation', '00000'")
    for call in ours:
        with pytest.raises(asyncpg.UndefinedFunctionError):
            await application.fetch(f"SELECT postroom.{call}, p_now => {tomorrow})")
        with pytest.raises(asyncpg.UndefinedFunctionError):
            await application.fetch(f"SELECT postroom.{call}, p_spelling => 'bob@example.org')")
    for call in (*(call.replace("(", "_at(") for call in ours), "count_request('ada@example.org', 'activation'"):
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await application.fetch(f"SELECT postroom.{call}, p_now => {tomorrow})")
    guess = "SELECT verdict FROM postroom.consume_code('ada@example.org', 'activation', '0000x')"
    assert [await application.fetchval(guess) for _ in range(6)] == ["wrong"] * 5 + ["void"]
