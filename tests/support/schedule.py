"""Helpers of schedule tests: people and due events."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, date, datetime
from typing import Any
from uuid import UUID

from tests.support.builders import until

from postroom.app import run_worker
from postroom.db.pool import Pool
from postroom.db.room import Room
from postroom.schedule import service
from postroom.schedule.model import Person, SchedulePolicy, User
from postroom.schedule.worker import Scheduler, SchedulerOptions

HOOK = "https://hooks.example.org/greet"
POSTING = SchedulePolicy(webhook_url=HOOK)
"""The policy of an installation with one default webhook."""


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


NINE = utc("2026-11-15T09:00")


def person(**fields: Any) -> Person:
    given: dict[str, Any] = {
        "first_name": "Ada",
        "last_name": "Lovelace",
        "date_of_birth": date(1990, 11, 15),
        "timezone": "Europe/London",
    }
    return Person(**(given | fields))


async def born(pool: Pool, day: str, *, now: str, policy: SchedulePolicy = POSTING, **fields: Any) -> User:
    """A person with this birthday, stored at this time."""
    who = person(date_of_birth=date.fromisoformat(day), **fields)
    return await service.create_user(pool, who, policy=policy, now=utc(now), actor="tests")


async def many_due(pool: Pool, count: int, *, at: str = "2026-11-15T09:00") -> list[UUID]:
    """Create people whose greetings are due in the same second."""
    people = [person(first_name=f"Number {n}") for n in range(count)]
    users, wrong = await service.create_users(pool, people, policy=POSTING, now=utc("2026-11-01T00:00"), actor="tests")
    assert not wrong
    return [user.id for user in users]


async def statuses(pool: Pool, user_id: UUID) -> list[tuple[str, str]]:
    """The year and status of a person's events, in order."""
    rows: Sequence[Any] = await pool.fetch(
        "SELECT extract(year FROM target_timestamp_local)::int AS year, status::text FROM scheduled_events "
        "WHERE user_id = $1 ORDER BY target_timestamp_utc",
        user_id,
    )
    return [(str(row["year"]), row["status"]) for row in rows]


def scheduler(pool: Pool, at: str = "2026-11-15T09:00", policy: SchedulePolicy = POSTING) -> Scheduler:
    return Scheduler(pool, SchedulerOptions(policy=policy), clock=lambda: utc(at))


async def counted(pool: Pool) -> Counter[str]:
    rows = await pool.fetch("SELECT idempotency_key AS key FROM deliveries")
    return Counter(row["key"] for row in rows)


async def works_until(room: Room, question: str) -> None:
    """Run a whole worker process until the query returns true."""
    stop = asyncio.Event()
    async with asyncio.timeout(60):
        running = asyncio.create_task(run_worker(room, stop=stop))
        await until(room.pool, question)
        stop.set()
        await running
