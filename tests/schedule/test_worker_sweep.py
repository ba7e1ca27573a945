"""A complete plan: SQL changes, missing events, new time zone data, and rows that cannot be planned."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

import asyncpg
import pytest
from tests.support.schedule import NINE, POSTING, born, scheduler, statuses, utc

from postroom.db.pool import Pool
from postroom.schedule import scheduled_events as agenda
from postroom.schedule import service, store
from postroom.schedule.worker import Scheduler, SchedulerOptions


async def test_sweep_plans_people_changed_by_sql(pool: Pool) -> None:
    """The sweep plans people that SQL inserted or changed; stale events are not sent before it."""
    user_id: UUID = await pool.fetchval(
        "INSERT INTO users (first_name, last_name, date_of_birth, timezone)"
        " VALUES ('Ada', 'Lovelace', '1990-11-15', 'Europe/London') RETURNING id"
    )
    assert await scheduler(pool, "2026-11-01T00:00").sweep() == 1
    assert await statuses(pool, user_id) == [("2026", "PENDING")]
    assert await scheduler(pool, "2026-11-01T00:00").sweep() == 0
    await pool.execute("UPDATE users SET timezone = 'America/New_York'")
    assert await scheduler(pool).run_once() == 0
    assert await scheduler(pool).sweep() == 1
    assert await scheduler(pool, "2026-11-15T13:59").run_once() == 0
    assert await scheduler(pool, "2026-11-15T14:00").run_once() == 1


async def test_events_due_before_the_sweep_are_sent_late(pool: Pool) -> None:
    """SQL changes are planned as of their time, so events due since are sent late."""
    written = datetime.now(UTC)
    day = written + timedelta(days=1)
    known = await born(pool, "1990-06-01", now="2026-11-01T00:00", timezone="UTC")
    user_id: UUID = await pool.fetchval(
        "INSERT INTO users (first_name, last_name, date_of_birth, timezone)"
        " VALUES ('Ada', 'Lovelace', $1, 'UTC') RETURNING id",
        day.date().replace(year=1996),
    )
    await pool.execute(
        "INSERT INTO user_occasions (user_id, event_type, message, rule)"
        " VALUES ($1, 'RECURRING', '', jsonb_build_object('every', 'day', 'start', '2020-01-01', 'until', $2::text))",
        known.id, (written + timedelta(days=2)).date().isoformat(),
    )  # fmt: skip
    later = Scheduler(pool, SchedulerOptions(policy=POSTING), clock=lambda: written + timedelta(days=4))
    await later.sweep()
    await later.run_once()
    rows = await pool.fetch(
        "SELECT event_type, target_timestamp_utc::date AS day, late_by > interval '1 day' AS late FROM scheduled_events"
        " WHERE status = 'PROCESSING' AND (user_id = $1 OR occasion_id IS NOT NULL) ORDER BY 1, 2", user_id,
    )  # fmt: skip
    assert ("BIRTHDAY", day.date(), True) in [tuple(row) for row in rows]
    teas = [row["day"] for row in rows if row["event_type"] == "RECURRING"]
    assert teas[-2:] == [day.date(), (day + timedelta(days=1)).date()]
    assert len(teas) <= 3
    assert await pool.fetchval("SELECT count(*) FROM users WHERE unplanned_since IS NOT NULL") == 0


async def test_sql_change_is_planned_as_of_its_time(pool: Pool) -> None:
    """A birthday between a corrected birth date and the sweep is greeted."""
    written = datetime.now(UTC)
    day = (written + timedelta(days=1)).date()
    user = await born(pool, (day - timedelta(days=9000 + 180)).isoformat(), now="2026-11-01T00:00", timezone="UTC")
    await pool.execute("UPDATE users SET date_of_birth = $1", day.replace(year=1996))
    later = Scheduler(pool, SchedulerOptions(policy=POSTING), clock=lambda: written + timedelta(days=3))
    await later.sweep()
    await later.run_once()
    rows = await pool.fetch("SELECT target_timestamp_utc::date FROM scheduled_events WHERE status = 'PROCESSING'")
    assert [row[0] for row in rows] == [day], user.id


async def test_unplanned_since_is_the_first_change(pool: Pool) -> None:
    """Later changes do not update `unplanned_since`; planning clears it."""
    user = await born(pool, "1990-06-01", now="2026-11-01T00:00")
    await pool.execute("UPDATE users SET unplanned_since = '2001-01-01'")
    async with pool.acquire() as connection, connection.transaction():
        held = await store.lock_user(connection, user_id=user.id)
    assert held is not None
    assert held.unplanned_since is None
    first = await pool.fetchval("UPDATE users SET first_name = 'Augusta' RETURNING unplanned_since")
    again = await pool.fetchval("UPDATE users SET first_name = 'Anna' RETURNING unplanned_since")
    assert first == again > user.created_at
    await scheduler(pool).sweep()
    assert await pool.fetchval("SELECT unplanned_since FROM users") is None


async def test_new_person_keeps_an_inserted_event(pool: Pool) -> None:
    """An event that SQL inserted with its person is kept, and the next one is planned as usual."""
    user_id: UUID = await pool.fetchval(
        "INSERT INTO users (first_name, last_name, date_of_birth, timezone)"
        " VALUES ('Ada', 'Lovelace', '1990-12-10', 'Europe/London') RETURNING id"
    )
    await pool.execute(
        "INSERT INTO scheduled_events (user_id, target_timestamp_utc, target_timestamp_local, target_timezone,"
        " idempotency_key, delivery_payload)"
        " VALUES ($1, $2, '2026-11-15 09:00', 'Europe/London', 'mine', '{\"a\": 1}')",
        user_id, NINE,
    )  # fmt: skip
    await scheduler(pool).sweep()
    assert await scheduler(pool).run_once() == 1
    assert await pool.fetchval("SELECT text_body FROM delivery_payloads") == '{"a":1}'
    rows = await pool.fetch("SELECT idempotency_key AS key FROM scheduled_events ORDER BY target_timestamp_utc")
    assert [row["key"] for row in rows] == ["mine", f"birthday:{user_id}:2026"]


async def test_audit_plans_missing_events(pool: Pool) -> None:
    """The audit plans for people without a planned event, and no others."""
    users = [await born(pool, "1990-11-20", now="2026-11-01T00:00") for _ in range(3)]
    await pool.execute("DELETE FROM scheduled_events WHERE user_id = $1", users[1].id)
    assert await scheduler(pool).audit() == 1
    assert await statuses(pool, users[1].id) == [("2026", "PENDING")]
    assert await scheduler(pool).audit() == 0


async def test_audit_locks_only_people_it_plans_for(pool: Pool) -> None:
    """Other people can be claimed and changed during an audit."""
    lost, fine = [await born(pool, "1990-11-20", now="2026-11-01T00:00") for _ in range(2)]
    await pool.execute("DELETE FROM scheduled_events WHERE user_id = $1", lost.id)
    async with pool.acquire() as connection, connection.transaction():
        found, _ = await store.lock_unscheduled_users(connection, after_id=None)
        free = await pool.fetch("SELECT id FROM users FOR UPDATE SKIP LOCKED")
    assert ([user.id for user in found], [row["id"] for row in free]) == ([lost.id], [fine.id])


async def test_audit_plans_missing_events_of_occasions(pool: Pool) -> None:
    """The audit plans a missing event of an occasion and marks ended occasions as over."""
    user = await born(pool, "1990-11-20", now="2026-11-01T00:00")
    for rule in (
        {"every": "day", "start": "2026-11-01"},
        {"every": "day", "start": "2026-11-01", "until": "2026-11-14"},
    ):
        await service.add_occasion(
            pool, user.id, "RECURRING", rule=rule, policy=POSTING, now=utc("2026-11-01T00:00"), actor="tests"
        )
    await pool.execute("DELETE FROM scheduled_events WHERE event_type = 'RECURRING'")
    assert await scheduler(pool).audit() == 1
    rows = await pool.fetch("SELECT event_type, target_timestamp_utc AS target FROM scheduled_events ORDER BY 2")
    assert [(row["event_type"], row["target"]) for row in rows] == [
        ("RECURRING", utc("2026-11-16T09:00")),
        ("BIRTHDAY", utc("2026-11-20T09:00")),
    ]
    assert await pool.fetchval("SELECT count(*) FROM user_occasions WHERE is_over") == 1
    async with pool.acquire() as connection, connection.transaction():
        found, _ = await store.lock_unscheduled_users(connection, after_id=None)
    assert found == []


async def test_sweep_plans_occasions_changed_by_sql(pool: Pool) -> None:
    """The sweep plans occasions that SQL added or changed on any connection; the version stays."""
    user = await born(pool, "1990-06-01", now="2026-11-01T00:00")
    async with pool.acquire() as connection, connection.transaction():
        await connection.execute("SET LOCAL search_path = pg_catalog")
        await connection.execute(
            "INSERT INTO postroom.user_occasions (user_id, event_type, message, rule)"
            " VALUES ($1, 'REMINDER', 'Tea', '{\"at\": \"2026-11-20T16:00:00\"}')", user.id,
        )  # fmt: skip
    for at in ("2026-11-20T16:00", "2026-11-21T17:00"):
        await pool.execute("UPDATE user_occasions SET rule = jsonb_build_object('at', $1::text)", f"{at}:00")
        assert await scheduler(pool).sweep() == 1
        targets = "SELECT target_timestamp_utc FROM scheduled_events WHERE event_type = 'REMINDER'"
        assert await pool.fetchval(targets) == utc(at)
    assert await scheduler(pool).sweep() == 0
    assert (await service.get_user(pool, user.id)).version == 1


async def test_new_person_with_an_occasion_keeps_inserted_events(pool: Pool) -> None:
    """An occasion of a new person is planned besides the event that SQL inserted."""
    user_id: UUID = await pool.fetchval(
        "INSERT INTO users (first_name, last_name, date_of_birth, timezone)"
        " VALUES ('Ada', 'Lovelace', '1990-12-10', 'Europe/London') RETURNING id"
    )
    await pool.execute(
        "INSERT INTO scheduled_events (user_id, target_timestamp_utc, target_timestamp_local, target_timezone,"
        " idempotency_key, delivery_payload) VALUES ($1, $2, '2026-11-20 09:00', 'Europe/London', 'mine', '{}')",
        user_id, utc("2026-11-20T09:00"),
    )  # fmt: skip
    await pool.execute(
        "INSERT INTO user_occasions (user_id, event_type, message, rule)"
        " VALUES ($1, 'REMINDER', 'Tea', '{\"at\": \"2026-11-20T16:00:00\"}')", user_id,
    )  # fmt: skip
    assert await scheduler(pool).sweep() == 1
    rows = await pool.fetch("SELECT event_type, idempotency_key AS key FROM scheduled_events ORDER BY 1")
    assert [row["event_type"] for row in rows] == ["BIRTHDAY", "REMINDER"]
    assert rows[0]["key"] == "mine"


async def test_occasion_added_before_the_sweep_keeps_events(pool: Pool) -> None:
    """Adding an occasion over the API, before or after the sweep, keeps inserted events."""
    for is_swept in (False, True):
        user_id: UUID = await pool.fetchval(
            "INSERT INTO users (first_name, last_name, date_of_birth, timezone)"
            " VALUES ('Ada', 'Lovelace', '1990-12-10', 'Europe/London') RETURNING id"
        )
        await pool.execute(
            "INSERT INTO scheduled_events (user_id, target_timestamp_utc, target_timestamp_local, target_timezone,"
            " idempotency_key, delivery_payload) VALUES ($1, $2, '2026-11-20 09:00', 'Europe/London', $3, '{}')",
            user_id, utc("2026-11-20T09:00"), f"mine {is_swept}",
        )  # fmt: skip
        if is_swept:
            await scheduler(pool).sweep()
        await service.add_occasion(
            pool,
            user_id,
            "REMINDER",
            rule={"at": "2026-11-21T16:00"},
            policy=POSTING,
            now=utc("2026-11-15T09:00"),
            actor="tests",
        )
        events, _ = await agenda.list_user_events(pool, user_id)
        assert [event.kind for event in events] == ["REMINDER", "BIRTHDAY"]
        assert events[1].idempotency_key == f"mine {is_swept}"
        assert await scheduler(pool).sweep() == 0


async def test_adding_an_occasion_plans_pending_sql_changes(pool: Pool) -> None:
    """Adding an occasion also plans an SQL change that the sweep has not planned yet."""
    user = await born(pool, "1990-11-20", now="2026-11-01T00:00", timezone="UTC")
    await pool.execute("UPDATE users SET date_of_birth = '1990-11-25'")
    await pool.execute("UPDATE users SET unplanned_since = $1", utc("2026-11-15T08:00"))
    rule = {"at": "2026-11-21T16:00"}
    await service.add_occasion(
        pool, user.id, "REMINDER", rule=rule, policy=POSTING, now=utc("2026-11-15T09:00"), actor="tests"
    )
    events, _ = await agenda.list_user_events(pool, user.id)
    assert [event.target_utc for event in events] == [utc("2026-11-25T09:00"), utc("2026-11-21T16:00")]


async def test_new_time_zone_data_replans_everyone(pool: Pool) -> None:
    """A new version of the time zone data recomputes all PENDING events."""
    user = await born(pool, "1990-11-20", now="2026-11-01T00:00")
    work = scheduler(pool)
    await work.refresh()
    await pool.execute("UPDATE scheduled_events SET target_timestamp_utc = target_timestamp_utc + interval '1 hour'")
    assert await work.refresh() == 0
    await pool.execute("UPDATE schedule_state SET basis = replace(basis, 'tzdata=', 'tzdata=older ')")
    assert await work.refresh() == 1
    [event], _ = await agenda.list_user_events(pool, user.id)
    assert event.target_utc == utc("2026-11-20T09:00")


UNREADABLE = [
    ("REMINDER", '{"at": "9999-12-31T23:59:00"}'),
    ("REMINDER", '{"at": "0001-01-01T00:00:00"}'),
    ("ANNIVERSARY", '{"date": "9999-12-31"}'),
    ("RECURRING", "[]"),
    ("PARTY", "{}"),
]


async def test_unplannable_occasion_does_not_stop_others(pool: Pool) -> None:
    """An invalid rule that SQL wrote affects its own occasion only."""
    user = await born(pool, "1990-11-20", now="2026-11-01T00:00", timezone="America/New_York")
    good = [*UNREADABLE, ("REMINDER", '{"at": "2026-11-18T09:00:00"}')]
    await pool.executemany(
        "INSERT INTO user_occasions (user_id, event_type, message, rule) VALUES ($1, $2, '', $3)",
        [(user.id, kind, rule) for kind, rule in good],
    )
    assert await scheduler(pool).sweep() == 1
    assert await scheduler(pool).audit() == 0
    rows = await pool.fetch("SELECT event_type FROM scheduled_events ORDER BY 1")
    assert [row["event_type"] for row in rows] == ["BIRTHDAY", "REMINDER"]


async def test_a_planned_time_stays_within_the_calendar(pool: Pool) -> None:
    """The table rejects a target that Python cannot read."""
    user = await born(pool, "1990-11-20", now="2026-11-01T00:00")
    for column, value in (
        ("target_timestamp_utc", "infinity"),
        ("target_timestamp_utc", "10000-01-01 00:00+00"),
        ("target_timestamp_local", "0044-03-15 09:00 BC"),
        ("target_timestamp_local", "-infinity"),
    ):
        with pytest.raises(asyncpg.CheckViolationError, match="scheduled_events_target_readable"):
            await pool.execute(f"UPDATE scheduled_events SET {column} = '{value}' WHERE user_id = $1", user.id)
