"""Other rules of time while plain SQL waits for its sweep: everybody is planned for, and as of the right moment."""

from uuid import UUID

import pytest
from tests.support.schedule import born, scheduler, statuses, utc

from postroom.db.pool import Pool
from postroom.schedule.worker import Scheduler

WRITTEN, BACK = "2026-11-14T12:00", "2026-11-18T12:00"
"""When plain SQL wrote, and when a scheduler runs again."""

ORDERS = pytest.mark.parametrize("steps", [("refresh", "sweep"), ("sweep", "refresh")])
"""Two rhythms begin at once, so either may come first."""


async def back(pool: Pool, *steps: str) -> Scheduler:
    """A scheduler that knows other time zones than the one before it, after these steps of its rhythms."""
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
async def test_whoever_was_added_meanwhile_is_greeted(pool: Pool, steps: tuple[str, ...]) -> None:
    """Their birthday came between the writing and the restart: it is late, not lost."""
    people = [await written(pool, "1996-11-15") for _ in range(3)]
    worker = await back(pool, *steps)
    assert await worker.run_once() == 3
    for user_id in people:
        assert await statuses(pool, user_id) == [("2026", "PROCESSING"), ("2027", "PENDING")]


@ORDERS
async def test_whoever_was_changed_meanwhile_is_greeted(pool: Pool, steps: tuple[str, ...]) -> None:
    """A birth date mended by plain SQL, and the birthday comes before the restart."""
    user = await born(pool, "1990-06-01", now="2026-11-01T00:00", timezone="UTC")
    await pool.execute("UPDATE users SET date_of_birth = '1990-11-15'")
    await pool.execute("UPDATE users SET unplanned_since = $1", utc(WRITTEN))
    worker = await back(pool, *steps)
    assert await worker.run_once() == 1
    assert await statuses(pool, user.id) == [("2026", "PROCESSING"), ("2027", "PENDING")]


@ORDERS
async def test_an_occasion_added_meanwhile_is_kept(pool: Pool, steps: tuple[str, ...]) -> None:
    """A reminder that plain SQL wrote for a moment before the restart is sent after it."""
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
async def test_what_somebody_brought_along_stays(pool: Pool, steps: tuple[str, ...]) -> None:
    """An event that came with its person is theirs: other rules of time have nothing to say about it."""
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
    """Only people who are planned for are planned again, wherever in the order the others stand."""
    for _ in range(3):
        await written(pool, "1996-11-15")
        await born(pool, "1990-06-01", now="2026-11-01T00:00")
    worker = await back(pool)
    assert await worker.refresh() == 3
    assert await worker.sweep() == 3
