"""A refresh while SQL changes wait for the sweep: everyone is planned, as of the right time."""

import asyncio
from uuid import UUID

import pytest
from tests.support.schedule import born, scheduler, statuses, utc
from tests.support.sessions import until_blocked

from postroom.db.pool import Pool
from postroom.schedule.worker import Scheduler

WRITTEN, BACK = "2026-11-14T12:00", "2026-11-18T12:00"
"""The time of the SQL change, and the time of the next scheduler run."""

ORDERS = pytest.mark.parametrize("steps", [("refresh", "sweep"), ("sweep", "refresh")])
"""Both loops start at once, so either may run first."""


async def back(pool: Pool, *steps: str) -> Scheduler:
    """Run these steps of a scheduler with other time zone data than its predecessor."""
    await scheduler(pool).refresh()
    await pool.execute("UPDATE schedule_state SET basis = replace(basis, 'tzdata=', 'tzdata=older ')")
    worker = scheduler(pool, BACK)
    for step in steps:
        await getattr(worker, step)()
    return worker


async def written(pool: Pool, born: str) -> UUID:
    user_id: UUID = await pool.fetchval(
        "INSERT INTO users (first_name, last_name, date_of_birth, timezone)"
        " VALUES ('Ada', 'Lovelace', $1::text::date, 'UTC') RETURNING id", born,
    )  # fmt: skip
    await pool.execute("UPDATE users SET unplanned_since = $1", utc(WRITTEN))
    return user_id


@ORDERS
async def test_person_added_by_sql_before_a_refresh_is_greeted(pool: Pool, steps: tuple[str, ...]) -> None:
    """A birthday between the INSERT and the restart is sent late."""
    people = [await written(pool, "1996-11-15") for _ in range(3)]
    worker = await back(pool, *steps)
    assert await worker.run_once() == 3
    for user_id in people:
        assert await statuses(pool, user_id) == [("2026", "PROCESSING"), ("2027", "PENDING")]


@ORDERS
async def test_person_changed_by_sql_before_a_refresh_is_greeted(pool: Pool, steps: tuple[str, ...]) -> None:
    """A birthday between the UPDATE of the birth date and the restart is sent late."""
    user = await born(pool, "1990-06-01", now="2026-11-01T00:00", timezone="UTC")
    await pool.execute("UPDATE users SET date_of_birth = '1990-11-15'")
    await pool.execute("UPDATE users SET unplanned_since = $1", utc(WRITTEN))
    worker = await back(pool, *steps)
    assert await worker.run_once() == 1
    assert await statuses(pool, user.id) == [("2026", "PROCESSING"), ("2027", "PENDING")]


@ORDERS
async def test_occasion_added_by_sql_before_a_refresh_is_sent(pool: Pool, steps: tuple[str, ...]) -> None:
    """A reminder that SQL inserted for a time before the restart is sent after it."""
    user = await born(pool, "1990-06-01", now="2026-11-01T00:00", timezone="UTC")
    await pool.execute(
        "INSERT INTO user_occasions (user_id, event_type, message, rule, created_at)"
        " VALUES ($1, 'REMINDER', 'Tea', '{\"at\": \"2026-11-16T16:00:00\"}', $2)", user.id, utc(WRITTEN),
    )  # fmt: skip
    await pool.execute("UPDATE users SET unplanned_since = $1", utc(WRITTEN))
    worker = await back(pool, *steps)
    assert await worker.run_once() == 1
    assert await pool.fetchval("SELECT text_body FROM delivery_payloads") == '{"message":"Tea"}'


@ORDERS
async def test_refresh_keeps_events_inserted_by_sql(pool: Pool, steps: tuple[str, ...]) -> None:
    """A refresh does not change an event that SQL inserted with its person."""
    user_id = await written(pool, "1990-12-10")
    await pool.execute(
        "INSERT INTO scheduled_events (user_id, target_timestamp_utc, target_timestamp_local, target_timezone,"
        " idempotency_key, delivery_payload) VALUES ($1, $2, '2026-11-20 09:00', 'UTC', 'mine', '{\"a\": 1}')",
        user_id, utc("2026-11-20T09:00"),
    )  # fmt: skip
    await back(pool, *steps)
    rows = await pool.fetch("SELECT idempotency_key, target_timestamp_utc FROM scheduled_events")
    assert [tuple(row) for row in rows] == [("mine", utc("2026-11-20T09:00"))]


async def test_a_refresh_leaves_the_unplanned_to_the_sweep(pool: Pool) -> None:
    """A refresh plans only people who are planned for, in any order of ids."""
    for _ in range(3):
        await written(pool, "1996-11-15")
        await born(pool, "1990-06-01", now="2026-11-01T00:00")
    worker = await back(pool)
    assert await worker.refresh() == 3
    assert await worker.sweep() == 3


async def test_person_changed_during_a_refresh_is_planned_by_the_change(pool: Pool) -> None:
    """A refresh locks the people it has read: marking a change that it has not seen as planned would hide it."""
    user = await born(pool, "1990-06-01", now="2026-11-01T00:00", timezone="UTC")
    worker = await back(pool)
    async with pool.acquire() as holder, holder.transaction():
        await holder.execute("LOCK TABLE user_occasions")  # the refresh reads them after the people
        refresh = asyncio.create_task(worker.refresh())
        await until_blocked(pool)
        change = asyncio.create_task(pool.execute("UPDATE users SET timezone = 'Asia/Tokyo'"))
        await until_blocked(pool, 2, unless=change)
    await asyncio.gather(refresh, change)
    assert await worker.sweep() == 1
    zones = await pool.fetch("SELECT target_timezone FROM scheduled_events WHERE user_id = $1", user.id)
    assert [row["target_timezone"] for row in zones] == ["Asia/Tokyo"]
