"""Greetings by mail are bulk mail: each has an unsubscribe link, and unsubscribed people get none."""

import email
import re
from email import policy as rules

import pytest
from tests.support.builders import Recording, a_worker
from tests.support.schedule import NINE, POSTING, born, person, scheduler, statuses, utc, works_until

from postroom.app import link_signer
from postroom.db.pool import Pool
from postroom.db.room import open_room
from postroom.delivery.worker import WorkerOptions
from postroom.schedule import service
from postroom.settings import read_settings
from postroom.tracking import service as tracking
from postroom.tracking.model import Origin, Visitor

UNSUBSCRIBED = "suppressed: the person has unsubscribed from bulk mail"
DUE = "UPDATE scheduled_events SET target_timestamp_utc = now() - interval '1 second' WHERE status = 'PENDING'"


async def test_a_greeting_can_be_unsubscribed_from(database_url: str) -> None:
    """The unsubscribe link of a greeting suppresses next year's; the year after is still planned."""
    settings = read_settings({"POSTROOM_DATABASE_URL": database_url, "POSTROOM_SECRET_KEY": "00" * 32})
    signer = link_signer(settings)
    assert signer is not None
    async with open_room(settings) as room:
        who = person(email="ada@example.org")
        user = await service.create_user(room.pool, who, policy=service.policy_of(settings), actor="tests")
        await room.pool.execute(DUE)
        await works_until(room, "EXISTS (SELECT FROM scheduled_events WHERE status = 'COMPLETED')")
        raw = await room.pool.fetchval("SELECT raw FROM inbox_messages")
        mail = email.message_from_bytes(raw, policy=rules.default)
        assert mail["List-Unsubscribe-Post"] == "List-Unsubscribe=One-Click"
        found = re.fullmatch(r"<http://[^/]+/unsubscribe/(\S+)>", mail["List-Unsubscribe"])
        assert found
        mark = signer.read_unsubscribe(found[1])
        assert mark is not None
        assert mark.address == "ada@example.org"
        await tracking.unsubscribe(room.pool, mark, origin=Origin.ONE_CLICK, visitor=Visitor(None, None))

        await room.pool.execute(DUE)
        await works_until(room, "EXISTS (SELECT FROM scheduled_events WHERE status = 'FAILED')")
        assert [status for _, status in await statuses(room.pool, user.id)] == ["COMPLETED", "FAILED", "PENDING"]
        assert await room.pool.fetchval("SELECT count(*) FROM inbox_messages") == 1
        reason = await room.pool.fetchval("SELECT failure_reason FROM scheduled_events WHERE status = 'FAILED'")
        assert reason == UNSUBSCRIBED


REASONS = [
    ("bulk", "unsubscribe", "the person has unsubscribed from bulk mail"),
    ("all", "complaint", "the person has reported mail as spam"),
    ("all", "hard_bounce", "mail to this address bounces permanently"),
    ("all", "manual", "an operator has suppressed this address"),
]


@pytest.mark.parametrize("scope, reason, words", REASONS)
async def test_event_has_the_reason_of_the_suppression(pool: Pool, scope: str, reason: str, words: str) -> None:
    """The failure reason is the cause of the suppression, and next year's greeting is planned."""
    user = await born(pool, "1990-11-15", now="2026-11-01T00:00", email="Ada@example.org")
    await pool.execute(
        "INSERT INTO suppressions (address, scope, reason) VALUES ('ada@example.org', $1, $2)", scope, reason
    )
    assert await scheduler(pool).run_once() == 1
    assert await statuses(pool, user.id) == [("2026", "FAILED"), ("2027", "PENDING")]
    said = await pool.fetchval("SELECT failure_reason FROM scheduled_events WHERE status = 'FAILED'")
    assert said == f"suppressed: {words}"


async def test_a_person_who_unsubscribes_after_the_handover_is_not_greeted(pool: Pool) -> None:
    """Suppression is checked again before sending; the event ends with the same reason."""
    user = await born(pool, "1990-06-01", now="2026-11-01T00:00", email="ada@example.org", timezone="UTC")
    daily = {"every": "day", "start": "2026-11-15"}
    await service.add_occasion(
        pool, user.id, "RECURRING", rule=daily, policy=POSTING, now=utc("2026-11-14T10:00"), actor="tests"
    )
    assert await scheduler(pool).run_once() == 1
    await pool.execute(
        "INSERT INTO suppressions (address, scope, reason) VALUES ('ada@example.org', 'bulk', 'unsubscribe')"
    )
    transport = Recording()
    await a_worker(pool, transport, options=WorkerOptions(until_empty=True), clock=lambda: NINE).run()
    assert transport.delivery_ids == []
    events = await pool.fetch(
        "SELECT status::text, failure_reason FROM scheduled_events WHERE event_type = 'RECURRING'"
        " ORDER BY target_timestamp_utc"
    )
    assert [tuple(row) for row in events] == [("FAILED", UNSUBSCRIBED), ("PENDING", None)]
