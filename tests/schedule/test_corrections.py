"""Dates that are corrected: what is still to come follows, a day that is over is not made up for, and today counts."""

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
        ("1990-11-14", "2026-11-14T23:59", "2026-11-14T09:00", 1),  # today, if only just
        ("1990-11-15", "2026-11-15T08:00", "2026-11-15T09:00", 0),  # today, later
        ("1990-11-15", "2026-11-15T10:00", "2026-11-15T09:00", 1),  # today, and nine is past
        ("1990-11-17", "2026-11-15T10:00", "2026-11-17T09:00", 0),
    ],
)
async def test_a_corrected_birth_date(pool: Pool, corrected: str, now: str, target: str, greeted: int) -> None:
    """Nobody is told that it is their birthday on a day on which it is not."""
    user = await born(pool, "1990-11-16", now="2026-11-01T00:00", timezone="UTC")
    day = {"date_of_birth": date.fromisoformat(corrected)}
    await service.update_user(pool, user.id, day, policy=POSTING, now=utc(now))
    assert await pool.fetchval("SELECT target_timestamp_utc FROM scheduled_events") == utc(target)
    assert await scheduler(pool, now).run_once() == greeted


async def test_a_birth_date_corrected_with_a_move_is_a_correction(pool: Pool) -> None:
    """Somebody else's day did not pass by moving: it was never theirs."""
    user = await born(pool, "1990-11-16", now="2026-11-01T00:00", timezone="America/New_York")
    changes = {"date_of_birth": date(1990, 11, 14), "timezone": "Asia/Tokyo"}
    await service.update_user(pool, user.id, changes, policy=POSTING, now=utc("2026-11-14T15:30"))
    assert await scheduler(pool, "2026-11-14T15:30").run_once() == 0


async def test_an_earlier_time_of_day_loses_nobody_on_the_day(pool: Pool) -> None:
    """Nine becomes eight at half past eight: whose birthday is today is greeted at once."""
    user = await born(pool, "1990-11-15", now="2026-11-01T00:00", timezone="UTC")
    earlier = SchedulePolicy(webhook_url=HOOK, times={"BIRTHDAY": time(8)})
    await scheduler(pool, "2026-11-15T08:00").refresh()
    worker = scheduler(pool, "2026-11-15T08:30", policy=earlier)
    assert await worker.refresh() == 1
    assert await worker.run_once() == 1, user.id
