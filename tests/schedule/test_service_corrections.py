"""Corrected dates: future days are planned, past days are not sent, and today counts."""

from datetime import date, time

import pytest
from tests.support.schedule import HOOK, POSTING, born, scheduler, utc

from postroom.db.pool import Pool
from postroom.schedule import service
from postroom.schedule.model import SchedulePolicy


@pytest.mark.parametrize(
    "corrected, now, target, greeted",
    [
        ("1990-11-14", "2026-11-15T08:00", "2027-11-14T09:00", 0),  # yesterday
        ("1990-11-14", "2026-11-14T23:59", "2026-11-14T09:00", 1),  # today, at the last minute
        ("1990-11-15", "2026-11-15T08:00", "2026-11-15T09:00", 0),  # today, later
        ("1990-11-15", "2026-11-15T10:00", "2026-11-15T09:00", 1),  # today, after nine
        ("1990-11-17", "2026-11-15T10:00", "2026-11-17T09:00", 0),
    ],
)
async def test_a_corrected_birth_date(pool: Pool, corrected: str, now: str, target: str, greeted: int) -> None:
    """A corrected birthday is greeted only on its day: at once if it is today, otherwise when it comes."""
    user = await born(pool, "1990-11-16", now="2026-11-01T00:00", timezone="UTC")
    day = {"date_of_birth": date.fromisoformat(corrected)}
    await service.update_user(pool, user.id, day, policy=POSTING, now=utc(now), actor="tests")
    assert await pool.fetchval("SELECT target_timestamp_utc FROM scheduled_events") == utc(target)
    assert await scheduler(pool, now).run_once() == greeted


async def test_a_birth_date_corrected_with_a_move_is_a_correction(pool: Pool) -> None:
    """A change of date and zone together is a correction, so a past day is not sent."""
    user = await born(pool, "1990-11-16", now="2026-11-01T00:00", timezone="America/New_York")
    changes = {"date_of_birth": date(1990, 11, 14), "timezone": "Asia/Tokyo"}
    await service.update_user(pool, user.id, changes, policy=POSTING, now=utc("2026-11-14T15:30"), actor="tests")
    assert await scheduler(pool, "2026-11-14T15:30").run_once() == 0


async def test_earlier_time_of_day_sends_todays_greetings(pool: Pool) -> None:
    """If the time changes from 09:00 to 08:00 at 08:30, today's greetings are sent at once."""
    user = await born(pool, "1990-11-15", now="2026-11-01T00:00", timezone="UTC")
    earlier = SchedulePolicy(webhook_url=HOOK, times={"BIRTHDAY": time(8)})
    await scheduler(pool, "2026-11-15T08:00").refresh()
    worker = scheduler(pool, "2026-11-15T08:30", policy=earlier)
    assert await worker.refresh() == 1
    assert await worker.run_once() == 1, user.id
