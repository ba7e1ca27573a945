"""The doctor's rows about mail on its way."""

import asyncpg
import pytest
from tests.support.builders import a_mail, accepted

from postroom.cli import mail_checks
from postroom.db.pool import Session
from postroom.db.room import Room
from postroom.delivery.model import Lane
from postroom.runtime.finding import Severity
from postroom.settings import Settings

SMTP = Settings(transport="smtp", smtp_relay="smtp://mx.example.org:587")


@pytest.fixture
async def session(room: Room) -> Session:
    async with room.pool.acquire() as connection:
        yield connection


async def add_account(session: asyncpg.Connection, **columns: object) -> None:
    given = {"email": "shop@example.org", "auth_type": "smtp", "smtp_host": "mx", "smtp_port": 25, **columns}
    places = ", ".join(f"${number}" for number in range(1, len(given) + 1))
    await session.execute(f"INSERT INTO sender_accounts ({', '.join(given)}) VALUES ({places})", *given.values())


async def test_a_relay_that_refuses_the_login_fails(session: Session) -> None:
    """The row has the stage and the reply, although the port of the relay accepts connections."""
    assert (await mail_checks.examine_ways_out(session)).verdict is Severity.OK
    await session.execute(
        "INSERT INTO ways_out (name, failing_since, probed_at, failures, logins_refused, stage, detail) VALUES "
        "('mx.example.org:587', now() - interval '3 min', now(), 86, 86, 'login', '535 5.7.8 wrong credentials')"
    )
    found = await mail_checks.examine_ways_out(session)
    assert found.verdict is Severity.FAIL
    assert found.found == (
        "mx.example.org:587: all of the last 86 attempts ended at login, for 3 min: 535 5.7.8 wrong credentials"
    )
    assert "the password" in found.advice


async def test_a_relay_that_no_worker_uses_any_more_is_left_out(session: Session) -> None:
    """A failing relay is probed until it answers; without probes it is no longer in the settings of any worker."""
    await session.execute(
        "INSERT INTO ways_out (name, failing_since, probed_at, failures, stage) "
        "VALUES ('old.example.org:25', now() - interval '1 day', now() - interval '1 hour', 1, 'connect')"
    )
    assert (await mail_checks.examine_ways_out(session)).verdict is Severity.OK


async def test_dead_letters_are_counted_by_reason(session: Session) -> None:
    """Mail that was given up waits for a person, and the doctor says how much."""
    assert (await mail_checks.examine_dead_letters(session)).verdict is Severity.OK
    await session.execute("INSERT INTO dead_letters (delivery_id, reason) VALUES (1, 'max_age'), (2, 'ambiguous')")
    found = await mail_checks.examine_dead_letters(session)
    assert (found.verdict, found.found[:24]) == (Severity.WARN, "2 wait for a person: 1 a")


async def test_late_mail_is_reported_with_what_it_waits_for(session: Session, room: Room) -> None:
    """Without a worker the advice is to start one, and mail that is retried later is not late."""
    await accepted(room.pool, a_mail(lane=Lane.AUTH), a_mail(lane=Lane.BULK))
    await session.execute(
        "UPDATE deliveries SET dated_at = now() - interval '20 min', "
        "next_attempt_at = now() - CASE WHEN lane = 'auth' THEN interval '20 min' ELSE interval '-20 min' END, "
        "attempt_count = 1, first_attempt_at = CASE WHEN lane = 'bulk' THEN now() END"
    )
    found = await mail_checks.examine_queue(session)
    assert (found.verdict, found.found) == (Severity.WARN, "auth 20 min late, waits for worker")
    assert found.advice.startswith("start a worker")


async def test_accounts_without_quota_are_reported_with_the_mail_that_waits(session: Session, room: Room) -> None:
    """The row says how much mail of which lane waits, and until when."""
    await add_account(session, daily_limit=5, daily_sent=5, status="paused_limit_reached", resume_status="active")
    assert (await mail_checks.examine_senders(session, SMTP)).verdict is Severity.OK  # no mail waits
    await accepted(room.pool, a_mail(lane=Lane.AUTH), *[a_mail()] * 2)
    found = await mail_checks.examine_senders(session, SMTP)
    assert found.verdict is Severity.WARN
    assert found.found == "no account has quota left; until 00:00 UTC wait 1 of lane auth, 2 of lane transactional"
