"""The scheduler: due events are handed over exactly once, by any number of schedulers and after outages."""

import asyncio
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from tests.support.loops import looping
from tests.support.retention import swept
from tests.support.schedule import HOOK, NINE, POSTING, born, counted, many_due, scheduler, statuses, utc

from postroom.db.pool import Pool, open_pool
from postroom.delivery import service as deliveries
from postroom.delivery.filter import DeliveryFilter
from postroom.delivery.model import Channel
from postroom.schedule import engine, service, store
from postroom.schedule import scheduled_events as agenda
from postroom.schedule.handover import NO_DESTINATION, TOO_LATE
from postroom.schedule.model import ScheduledEventStatus, SchedulePolicy
from postroom.schedule.worker import RETENTION, SHORTEST_REST, Scheduler, SchedulerOptions


async def test_nothing_is_due_a_second_before(pool: Pool) -> None:
    """An event is not due at 08:59:59 and due at 09:00:00."""
    await born(pool, "1990-11-15", now="2026-11-01T00:00")
    assert await scheduler(pool, "2026-11-15T08:59:59").run_once() == 0
    assert await scheduler(pool).run_once() == 1
    assert await scheduler(pool).run_once() == 0


async def test_due_event_becomes_a_webhook_delivery(pool: Pool) -> None:
    """The delivery has the body, key and ladder of the greeting, and the event links to it."""
    user = await born(pool, "1990-11-15", now="2026-11-01T00:00")
    await scheduler(pool).run_once()
    [summary], _ = await deliveries.list_deliveries(pool, DeliveryFilter())
    delivery = await deliveries.get_delivery(pool, summary.id)
    key = f"birthday:{user.id}:2026"
    assert (delivery.channel, delivery.ladder, delivery.source) == (Channel.WEBHOOK, "greeting", "schedule")
    assert [recipient.address for recipient in delivery.recipients] == [HOOK]
    assert delivery.text == '{"message":"Hey, Ada Lovelace it\'s your birthday"}'
    assert delivery.idempotency_key == key
    events, _ = await agenda.list_user_events(pool, user.id)
    assert [(event.status, event.delivery_id) for event in events] == [
        (ScheduledEventStatus.PENDING, None),
        (ScheduledEventStatus.PROCESSING, delivery.id),
    ]


@pytest.mark.parametrize(
    "fields, policy, channel, address",
    [
        ({"webhook_url": "https://own.example.org/"}, POSTING, "webhook", "https://own.example.org/"),
        ({"email": "ada@example.org"}, POSTING, "email", "ada@example.org"),
        (
            {"email": "ada@example.org", "webhook_url": "https://own.example.org/"},
            POSTING,
            "webhook",
            "https://own.example.org/",
        ),
        ({}, POSTING, "webhook", HOOK),
        ({}, SchedulePolicy(captures=True), "webhook", "http://inbox.invalid/"),
    ],
)
async def test_order_of_destinations(
    pool: Pool, fields: dict[str, Any], policy: SchedulePolicy, channel: str, address: str
) -> None:
    """The destination is the person's webhook, else their email, else the default webhook, else the inbox."""
    await born(pool, "1990-11-15", now="2026-11-01T00:00", **fields)
    await scheduler(pool, policy=policy).run_once()
    row = await pool.fetchrow(
        "SELECT channel::text, email, template_id FROM deliveries JOIN delivery_recipients ON delivery_id = id"
    )
    assert (row["channel"], row["email"]) == (channel, address)
    assert (row["template_id"] == "birthday") is (channel == "email")


async def test_event_without_a_destination_fails(pool: Pool) -> None:
    """The event fails with `no_destination`, and next year is planned."""
    user = await born(pool, "1990-11-15", now="2026-11-01T00:00")
    await scheduler(pool, policy=SchedulePolicy()).run_once()
    events, _ = await agenda.list_user_events(pool, user.id)
    assert [(event.status, event.failure_reason) for event in events] == [
        (ScheduledEventStatus.PENDING, None),
        (ScheduledEventStatus.FAILED, NO_DESTINATION),
    ]
    assert await pool.fetchval("SELECT count(*) FROM deliveries") == 0


@pytest.mark.parametrize(
    "state, reason, attempts, status, failure, retries",
    [
        ("sent", None, 1, "COMPLETED", None, 0),
        ("sent", None, 3, "COMPLETED", None, 2),
        ("failed", "refused", 1, "FAILED", "refused: HTTP 404", 0),
        ("dead_letter", "attempts_exhausted", 4, "FAILED", "attempts_exhausted: HTTP 404", 3),
        ("dead_letter", "attempts_exhausted", 9, "FAILED", "attempts_exhausted: HTTP 404", 3),
        ("suppressed", "stub_transport", 1, "FAILED", "stub_transport: HTTP 404", 0),
        ("cancelled", "expired", 0, "FAILED", "expired: HTTP 404", 0),
    ],
)
async def test_end_of_the_delivery_ends_the_event(  # noqa: PLR0917 - one parameter per column of the table
    pool: Pool, state: str, reason: str | None, attempts: int, status: str, failure: str | None, retries: int
) -> None:
    """The event ends in the transaction that ends its delivery, and the next one is planned in any case."""
    user = await born(pool, "1990-11-15", now="2026-11-01T00:00")
    await scheduler(pool).run_once()
    detail = None if state == "sent" else "HTTP 404"
    await pool.execute("UPDATE deliveries SET state = 'sending', claim_id = 1, next_attempt_at = NULL")
    await pool.execute(
        "UPDATE deliveries SET state = $1::text::delivery_state, reason = $2, detail = $3, attempt_count = $4,"
        " claim_id = NULL, finished_at = now()",
        state, reason, detail, attempts,
    )  # fmt: skip
    pending, event = (await agenda.list_user_events(pool, user.id))[0]
    assert (event.status, event.failure_reason, event.retry_count) == (status, failure, retries)
    assert event.executed_at is not None
    assert (pending.status, pending.target_utc) == (ScheduledEventStatus.PENDING, utc("2027-11-15T09:00"))


async def test_redriven_dead_letter_completes_its_event(pool: Pool) -> None:
    """FAILED becomes COMPLETED when the redriven delivery is sent."""
    user = await born(pool, "1990-11-15", now="2026-11-01T00:00")
    await scheduler(pool).run_once()
    for assignment in (
        "state = 'sending', claim_id = 1, next_attempt_at = NULL",
        "state = 'dead_letter', claim_id = NULL, finished_at = now(), reason = 'max_age'",
        "state = 'sent', reason = NULL",
    ):
        await pool.execute(f"UPDATE deliveries SET {assignment}")
    assert await statuses(pool, user.id) == [("2026", "COMPLETED"), ("2027", "PENDING")]


async def test_ended_events_are_deleted_after_retention(pool: Pool) -> None:
    """Retention deletes ended events after their time, and no planned ones."""
    user = await born(pool, "1990-11-15", now="2026-11-01T00:00")
    await scheduler(pool).run_once()
    await pool.execute(
        "UPDATE deliveries SET state = 'cancelled', next_attempt_at = NULL, finished_at = now(), reason = 'x'"
    )
    assert await swept(pool, RETENTION, clock=lambda: utc("2027-11-15T08:00:00")) == 0
    assert await statuses(pool, user.id) == [("2026", "FAILED"), ("2027", "PENDING")]
    assert await swept(pool, RETENTION, clock=lambda: utc("2028-01-31T09:00:00")) == 1
    assert await statuses(pool, user.id) == [("2027", "PENDING")]


async def test_other_deliveries_are_left_alone(pool: Pool) -> None:
    """Only deliveries of the schedule end an event, and an ended event cannot be reopened."""
    user = await born(pool, "1990-11-15", now="2026-11-01T00:00")
    await scheduler(pool).run_once()
    await pool.execute(
        "UPDATE deliveries SET source = 'api', state = 'cancelled', reason = 'x', next_attempt_at = NULL,"
        " finished_at = now()"
    )
    assert (await statuses(pool, user.id))[0] == ("2026", "PROCESSING")
    await pool.execute("UPDATE scheduled_events SET status = 'COMPLETED' WHERE status = 'PROCESSING'")
    with pytest.raises(Exception, match="cannot become PENDING"):
        await pool.execute("UPDATE scheduled_events SET status = 'PENDING' WHERE status = 'COMPLETED'")


async def test_a_claim_takes_the_hundred_oldest_in_order(pool: Pool) -> None:
    """Batches of a hundred take the oldest of 250 due events first and accept them in order."""
    await many_due(pool, 250)
    await pool.execute(
        "UPDATE scheduled_events SET target_timestamp_utc = target_timestamp_utc - n * interval '1 second'"
        " FROM (SELECT id, row_number() OVER (ORDER BY idempotency_key) AS n FROM scheduled_events) AS numbered"
        " WHERE numbered.id = scheduled_events.id"
    )
    rows = await pool.fetch("SELECT idempotency_key AS key FROM scheduled_events ORDER BY target_timestamp_utc")
    batches = [await engine.hand_over_due(pool, POSTING, now=NINE) for _ in range(4)]
    assert [len(batch) for batch in batches] == [100, 100, 50, 0]
    expected = [row["key"] for row in rows]
    assert [result.event.idempotency_key for batch in batches for result in batch] == expected
    accepted = await pool.fetch("SELECT idempotency_key AS key FROM deliveries ORDER BY id")
    assert {row["key"] for row in accepted[:100]} == set(expected[:100])


async def test_the_database_s_clock_decides(pool: Pool) -> None:
    """A claim uses the time of its transaction, not the clock of the host."""
    past, future = await many_due(pool, 2)
    for user_id, ahead in ((past, timedelta(seconds=-1)), (future, timedelta(hours=1))):
        await pool.execute(
            "UPDATE scheduled_events SET target_timestamp_utc = now() + $2 WHERE user_id = $1", user_id, ahead
        )
    async with pool.acquire() as connection:
        transaction = connection.transaction()
        await transaction.start()
        [claimed] = await store.claim_due(connection, claim_id=uuid4(), lease=engine.LEASE, now=None)
        assert (claimed.user_id, claimed.claimed_at) == (past, await connection.fetchval("SELECT now()"))
        await transaction.rollback()
    assert await Scheduler(pool, SchedulerOptions(policy=POSTING)).run_once() == 1
    assert await pool.fetchval("SELECT status::text FROM scheduled_events WHERE user_id = $1", future) == "PENDING"


@pytest.mark.parametrize("schedulers, events", [(3, 100), (100, 1000)])
async def test_many_schedulers_hand_over_every_event_once(database_url: str, schedulers: int, events: int) -> None:
    """Concurrent schedulers create exactly one delivery per event."""
    pool = await open_pool(database_url, "postroom", size=schedulers)
    try:
        users = await many_due(pool, events)
        connections = await asyncio.gather(*(pool.acquire() for _ in range(schedulers)))
        await asyncio.gather(*(pool.release(connection) for connection in connections))
        handed = await asyncio.gather(*(scheduler(pool).run_once() for _ in range(schedulers)))
        assert sum(handed) == events
        assert await counted(pool) == {f"birthday:{user}:2026": 1 for user in users}
        found = await pool.fetch("SELECT status::text, count(*) AS n FROM scheduled_events GROUP BY 1 ORDER BY 1")
        assert {row["status"]: row["n"] for row in found} == {"PENDING": events, "PROCESSING": events}
    finally:
        await pool.close()


async def test_downtime_of_a_day_sends_every_event_once(pool: Pool) -> None:
    """The first run after 24 hours of downtime sends every due event once and marks it late."""
    zones = (
        "Pacific/Kiritimati",
        "Asia/Tokyo",
        "Asia/Kathmandu",
        "Europe/London",
        "America/New_York",
        "Pacific/Pago_Pago",
    )
    for zone in zones:
        for day in ("1990-11-14", "1990-11-15", "1990-11-16"):
            await born(pool, day, now="2026-11-13T00:00", timezone=zone)
    down, up = "2026-11-14T12:00", "2026-11-15T12:00"
    before = await scheduler(pool, down).run_once()
    during = await pool.fetchval(
        "SELECT count(*) FROM scheduled_events WHERE target_timestamp_utc > $1 AND target_timestamp_utc <= $2",
        utc(down), utc(up),
    )  # fmt: skip
    assert during == 6
    assert await scheduler(pool, up).run_once() == during
    assert await scheduler(pool, "2026-11-18T00:00").run_once() == 18 - before - during
    assert set((await counted(pool)).values()) == {1}
    assert await pool.fetchval("SELECT count(*) FROM deliveries") == 18
    late = await pool.fetchval(
        "SELECT count(*) FROM scheduled_events"
        " WHERE late_by > '1 minute' AND target_timestamp_utc > $1 AND target_timestamp_utc <= $2",
        utc(down),
        utc(up),
    )
    assert late == during


async def test_event_beyond_max_lateness_fails(pool: Pool) -> None:
    """With `max_lateness` yesterday's greeting fails with `too_late`."""
    policy = SchedulePolicy(webhook_url=HOOK, max_lateness={"BIRTHDAY": timedelta(hours=12)})
    user = await born(pool, "1990-11-15", now="2026-11-01T00:00")
    await scheduler(pool, "2026-11-16T12:00", policy).run_once()
    assert await statuses(pool, user.id) == [("2026", "FAILED"), ("2027", "PENDING")]
    assert await pool.fetchval("SELECT failure_reason FROM scheduled_events WHERE status = 'FAILED'") == TOO_LATE
    assert await pool.fetchval("SELECT count(*) FROM deliveries") == 0


async def test_lateness_counts_the_whole_outage(pool: Pool) -> None:
    """After three days each daily message has its own lateness, and those beyond the limit are skipped."""
    user = await born(pool, "1990-06-01", now="2026-11-01T00:00")
    policy = SchedulePolicy(webhook_url=HOOK, max_lateness={"RECURRING": timedelta(hours=12)})
    await service.add_occasion(
        pool, user.id, "RECURRING", rule={"every": "day", "start": "2026-11-01"}, policy=policy,
        now=utc("2026-11-10T00:00"), actor="tests")  # fmt: skip
    assert await scheduler(pool, "2026-11-12T12:00", policy).run_once() == 3
    events = [event for event in (await agenda.list_user_events(pool, user.id))[0] if event.kind == "RECURRING"]
    assert [(event.target_utc.day, event.status, event.failure_reason, event.late_by) for event in events] == [
        (13, ScheduledEventStatus.PENDING, None, None),
        (12, ScheduledEventStatus.PROCESSING, None, timedelta(hours=3)),
        (11, ScheduledEventStatus.FAILED, TOO_LATE, timedelta(hours=27)),
        (10, ScheduledEventStatus.FAILED, TOO_LATE, timedelta(hours=51)),
    ]


@pytest.mark.parametrize(
    "change, late_by",
    [
        ({"first_name": "Augusta"}, timedelta(hours=6)),
        (
            {"timezone": "Europe/Paris"},
            timedelta(hours=6),
        ),  # 09:00 is earlier in Paris, but it was due since 09:00 in London
        ({"timezone": "America/New_York"}, timedelta(hours=1)),
    ],
)
async def test_correction_during_an_outage_keeps_lateness(
    pool: Pool, change: dict[str, Any], late_by: timedelta
) -> None:
    """A change of an overdue event does not reset its lateness, and the limit still applies."""
    user = await born(pool, "1990-11-15", now="2026-11-01T00:00")
    await service.update_user(pool, user.id, change, policy=POSTING, now=utc("2026-11-15T14:30"), actor="tests")
    policy = SchedulePolicy(webhook_url=HOOK, max_lateness={"BIRTHDAY": timedelta(minutes=30)})
    await scheduler(pool, "2026-11-15T15:00", policy).run_once()
    _, event = (await agenda.list_user_events(pool, user.id))[0]
    assert (event.status, event.failure_reason, event.late_by) == (ScheduledEventStatus.FAILED, TOO_LATE, late_by)


async def test_invalid_destination_fails_its_own_event_only(pool: Pool) -> None:
    """An invalid URL that SQL wrote does not stop the other events of the batch."""
    bad, good = [await born(pool, "1990-11-15", now="2026-11-01T00:00") for _ in range(2)]
    await pool.execute("UPDATE users SET webhook_url = 'nowhere' WHERE id = $1", bad.id)
    await scheduler(pool).sweep()
    assert await scheduler(pool).run_once() == 2
    assert (await statuses(pool, bad.id))[0] == ("2026", "FAILED")
    assert (await statuses(pool, good.id))[0] == ("2026", "PROCESSING")


async def test_a_suppressed_address_fails_the_event(pool: Pool) -> None:
    """A suppressed person gets no mail, and the event has the reason."""
    user = await born(pool, "1990-11-15", now="2026-11-01T00:00", email="ada@example.org")
    await pool.execute("INSERT INTO suppressions (address, scope, reason) VALUES ('ada@example.org', 'all', 'manual')")
    await scheduler(pool).run_once()
    assert await statuses(pool, user.id) == [("2026", "FAILED"), ("2027", "PENDING")]


async def test_occasions_fire_and_recur(pool: Pool) -> None:
    """A reminder is sent once; a daily message is sent for every day of an outage."""
    user = await born(pool, "1990-06-01", now="2026-11-01T00:00")
    now = utc("2026-11-10T10:00")
    await service.add_occasion(
        pool,
        user.id,
        "REMINDER",
        rule={"at": "2026-11-11T18:00:00"},
        message="Tea",
        policy=POSTING,
        now=now,
        actor="tests",
    )
    await service.add_occasion(
        pool, user.id, "RECURRING", rule={"every": "day", "start": "2026-11-01"}, policy=POSTING, now=now, actor="tests"
    )
    assert await scheduler(pool, "2026-11-13T12:00").run_once() == 4
    keys = {key.partition(":")[0]: n for key, n in (await counted(pool)).items()}
    assert keys == {"reminder": 1, "recurring": 1}
    assert len(await counted(pool)) == 4
    pending = await pool.fetch("SELECT event_type FROM scheduled_events WHERE status = 'PENDING' ORDER BY 1")
    assert [row["event_type"] for row in pending] == ["BIRTHDAY", "RECURRING"]


async def test_scheduler_backs_off_while_a_person_is_locked(pool: Pool) -> None:
    """While the person of a due event is locked, the interval doubles up to the poll interval."""
    await born(pool, "1990-11-15", now="2026-11-01T00:00")
    await born(pool, "1990-11-16", now="2026-11-01T00:00")
    times = [utc("2026-11-15T09:00")]
    work = Scheduler(pool, SchedulerOptions(policy=POSTING), clock=lambda: times[-1])
    async with pool.acquire() as connection, connection.transaction():
        await connection.execute("SELECT FROM users FOR UPDATE")
        assert await work.run_once() == 0
        rests = [await work._time_to_next() for _ in range(8)]
        assert rests == [timedelta(milliseconds=ms) for ms in (10, 20, 40, 80, 160, 320, 500, 500)]
        times.append(utc("2026-11-16T08:59:59.900"))
        assert await work._time_to_next() == timedelta(milliseconds=100)  # another event is due earlier
    assert await work.run_once() == 1
    times.append(utc("2026-11-16T08:59:59.999"))
    assert await work._time_to_next() == SHORTEST_REST


async def test_the_loop_hands_over_and_stops(pool: Pool) -> None:
    """The loop hands over due events and ends on stop."""
    handed = asyncio.Event()

    def heard(step: str) -> None:
        if step == "handed_over":
            handed.set()

    await born(pool, "1990-11-15", now="2026-11-01T00:00")
    work = Scheduler(pool, SchedulerOptions(policy=POSTING), clock=lambda: NINE, signal=heard)
    async with asyncio.timeout(60), looping(*work.loops()):
        await handed.wait()
    assert await pool.fetchval("SELECT count(*) FROM deliveries") == 1
