"""Health of the schedule: overdue events, unplanned people and people who cannot be planned for."""

from datetime import timedelta

from tests.support.http import open_browser
from tests.support.schedule import born, scheduler, utc

from postroom.cli import database_checks
from postroom.db.pool import Pool, connect
from postroom.db.room import Room
from postroom.runtime.finding import Finding, Severity
from postroom.schedule import store
from postroom.settings import Settings


async def examined(database_url: str) -> Finding:
    session = await connect(database_url, "postroom")
    try:
        found = await database_checks.examine(session, Settings(database_url=database_url))
    finally:
        await session.close()
    return next(finding for finding in found if finding.check == "schedule")


async def test_backlog_is_measured(pool: Pool) -> None:
    """An event is overdue since its target or since the move past it, until it is handed over."""
    await born(pool, "1990-11-15", now="2026-11-01T00:00")
    async with pool.acquire() as connection:
        before = await store.measure_schedule(connection, now=utc("2026-11-15T08:59"))
        after = await store.measure_schedule(connection, now=utc("2026-11-15T09:10"))
        bounded = await store.measure_schedule(connection, bound=0, now=utc("2026-11-15T09:10"))
        await scheduler(pool).run_once()
        done = await store.measure_schedule(connection, now=utc("2026-11-15T09:10"))
    assert (before.due, before.due_for) == (0, timedelta())
    assert (after.due, after.due_for) == (1, timedelta(minutes=10))
    assert (bounded.due, done.due) == (0, 0)


async def test_doctor_checks_the_schedule(pool: Pool, database_url: str) -> None:
    """The doctor reports overdue, unplanned and unplannable people, the last until the row is corrected."""
    assert (await examined(database_url)).verdict is Severity.OK
    user = await born(pool, "1990-11-20", now="2020-11-01T00:00")
    await pool.execute("UPDATE users SET planned_version = -1, unplanned_since = now() - interval '1 hour'")
    found = await examined(database_url)
    assert found.verdict is Severity.WARN
    assert "1 events are due" in found.found
    assert "1 people wait to be planned for" in found.found
    await pool.execute("DELETE FROM scheduled_events")
    await pool.execute(
        "INSERT INTO user_occasions (user_id, event_type, message, rule) VALUES ($1, 'PARTY', '', '{}')", user.id
    )
    await scheduler(pool).sweep()
    await pool.execute("UPDATE scheduled_events SET target_timestamp_utc = now() + interval '1 day'")
    found = await examined(database_url)
    assert (found.verdict, "1 people have an invalid zone or rule" in found.found) == (Severity.WARN, True)
    await pool.execute("DELETE FROM user_occasions")
    await scheduler(pool).audit()
    await pool.execute("UPDATE users SET first_name = 'Augusta'")
    await scheduler(pool, "2026-11-16T00:00").sweep()
    assert not await pool.fetchval("SELECT is_unplannable FROM users")


async def test_gauges_show_the_backlog(room: Room, pool: Pool) -> None:
    """Every gauge is measured at the scrape."""
    await born(pool, "1990-11-20", now="2020-11-01T00:00")
    answer = await (await open_browser(room)).get("/metrics")
    lines = dict(
        line.rsplit(" ", 1) for line in answer.body.decode().splitlines() if line.startswith("postroom_schedule_")
    )
    assert lines["postroom_schedule_due"] == "1.0"
    assert float(lines["postroom_schedule_due_seconds"]) > 86400
    assert (lines["postroom_schedule_unplanned"], lines["postroom_schedule_unplannable"]) == ("0.0", "0.0")
