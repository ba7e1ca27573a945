"""Events across people: lists by any filter, moves and cancellations that keep the series."""

from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from tests.support.schedule import NINE, POSTING, born, counted, many_due, person, scheduler, utc

from postroom.db.pool import Pool
from postroom.errors import BadInput, VersionConflict
from postroom.schedule import scheduled_events as agenda
from postroom.schedule import service
from postroom.schedule.errors import ScheduledEventNotFound
from postroom.schedule.model import EventFilter, ScheduledEvent, ScheduledEventStatus, SchedulePolicy, User
from postroom.schedule.worker import Scheduler, SchedulerOptions

EARLY = utc("2026-11-01T00:00")
FEW = 5


def local(text: str) -> datetime:
    return datetime.fromisoformat(text)


async def planned(pool: Pool, user: User, kind: str = "BIRTHDAY") -> ScheduledEvent:
    chosen = EventFilter(user_id=user.id, kind=kind, status=ScheduledEventStatus.PENDING)
    [event], _ = await agenda.list_events(pool, chosen)
    return event


async def moved(pool: Pool, user: User, at: str, kind: str = "BIRTHDAY") -> ScheduledEvent:
    event = await planned(pool, user, kind)
    return await agenda.move_event(pool, event.id, at=local(at), version=event.version, actor="tests", now=EARLY)


async def test_failed_events_are_listed_across_people(pool: Pool) -> None:
    """Pages in both orders have every event once, and filters apply."""
    ids = await many_due(pool, FEW)
    await scheduler(pool, policy=SchedulePolicy()).run_once()  # without a destination
    for is_soonest_first in (False, True):
        seen: list[ScheduledEvent] = []
        cursor: str | None = None
        while cursor is not None or not seen:
            chosen = EventFilter(status=ScheduledEventStatus.FAILED)
            page, cursor = await agenda.list_events(
                pool, chosen, is_soonest_first=is_soonest_first, cursor=cursor, limit=2
            )
            seen += page
        assert sorted(event.user_id for event in seen) == sorted(ids)
        order = [(event.target_utc, event.id) for event in seen]
        assert order == sorted(order, reverse=not is_soonest_first)
    all_of_them, _ = await agenda.list_events(pool, EventFilter())
    assert len(all_of_them) == 2 * FEW


FILTERS: list[tuple[dict[str, Any], int]] = [
    ({"status": ScheduledEventStatus.PENDING}, 1),
    ({"kind": "BIRTHDAY"}, 2),
    ({"kind": "REMINDER"}, 0),
    ({"user_id": uuid4()}, 0),
    ({"is_late": True}, 1),
    ({"is_late": False}, 1),
    ({"due_from": NINE}, 2),
    ({"due_from": NINE, "due_before": NINE + timedelta(days=1)}, 1),
    ({"due_before": NINE}, 0),
]


@pytest.mark.parametrize("chosen, count", FILTERS)
async def test_every_filter_narrows(pool: Pool, chosen: dict[str, Any], count: int) -> None:
    """Each filter selects the late greeting or the next one."""
    await born(pool, "1990-11-15", now="2026-11-01T00:00")
    await scheduler(pool, "2026-11-15T12:00").run_once()
    found, _ = await agenda.list_events(pool, EventFilter(**chosen))
    assert len(found) == count


async def test_a_moved_event_fires_at_its_new_time(pool: Pool) -> None:
    """A moved event is sent at its new time, and next year's is planned at the usual time."""
    user = await born(pool, "1990-11-15", now="2026-11-01T00:00")
    event = await moved(pool, user, "2026-11-17T14:30")
    assert (event.target_utc, event.target_local) == (utc("2026-11-17T14:30"), local("2026-11-17T14:30"))
    assert (event.moved_from, event.version) == (local("2026-11-15T09:00"), 2)
    assert await scheduler(pool).run_once() == 0
    assert await scheduler(pool, "2026-11-17T14:30").run_once() == 1
    following = await planned(pool, user)
    assert (following.target_local, following.moved_from) == (local("2027-11-15T09:00"), None)


CHANGES: list[tuple[dict[str, Any], str, str]] = [
    ({"last_name": "King"}, "2026-11-17T14:30", "Hey, Ada King it's your birthday"),
    ({"timezone": "Asia/Tokyo"}, "2026-11-17T05:30", "Hey, Ada Lovelace it's your birthday"),
    ({"date_of_birth": local("1990-12-24").date()}, "2026-11-17T14:30", "Hey, Ada Lovelace it's your birthday"),
]


@pytest.mark.parametrize("changes, target, message", CHANGES)
async def test_planning_keeps_what_was_moved(pool: Pool, changes: dict[str, Any], target: str, message: str) -> None:
    """A change of the person keeps the local time of a moved event and updates zone and message."""
    user = await born(pool, "1990-11-15", now="2026-11-01T00:00")
    await moved(pool, user, "2026-11-17T14:30")
    await service.update_user(pool, user.id, changes, policy=POSTING, now=EARLY, actor="tests")
    event = await planned(pool, user)
    assert (event.target_utc, event.target_local) == (utc(target), local("2026-11-17T14:30"))
    assert event.payload == {"message": message}
    assert event.idempotency_key == f"birthday:{user.id}:2026"


async def test_a_refresh_and_an_audit_keep_what_was_moved(pool: Pool) -> None:
    """A refresh and an audit do not change the target of a moved event."""
    user = await born(pool, "1990-11-15", now="2026-11-01T00:00")
    await moved(pool, user, "2026-11-17T14:30")
    work = Scheduler(pool, SchedulerOptions(policy=POSTING), clock=lambda: EARLY)
    await work.refresh()
    await pool.execute("UPDATE schedule_state SET basis = 'older'")
    assert await work.refresh() == 1
    assert await work.audit() == 0
    assert (await planned(pool, user)).target_utc == utc("2026-11-17T14:30")


@pytest.mark.parametrize("at, following", [("2026-11-18T12:00", "2026-11-19"), ("2026-11-14T12:00", "2026-11-16")])
async def test_a_recurring_event_goes_on_after_a_move(pool: Pool, at: str, following: str) -> None:
    """The next event comes after the later of the moved and the original time."""
    user = await born(pool, "1990-06-01", now="2026-11-01T00:00", timezone="UTC")
    rule = {"every": "day", "start": "2026-11-15"}
    await service.add_occasion(pool, user.id, "RECURRING", rule=rule, policy=POSTING, now=EARLY, actor="tests")
    await moved(pool, user, at, "RECURRING")
    assert await scheduler(pool, at).run_once() == 1
    assert (await planned(pool, user, "RECURRING")).target_local == local(f"{following}T09:00")


async def test_a_cancelled_event_is_not_sent_and_the_next_is_planned(pool: Pool) -> None:
    """The cancelled key stays used, so a change of the person does not plan it again."""
    user = await born(pool, "1990-11-15", now="2026-11-01T00:00")
    event = await planned(pool, user)
    cancelled = await agenda.cancel_event(pool, event.id, actor="cli:ada", policy=POSTING, now=EARLY)
    assert (cancelled.status, cancelled.failure_reason) == (ScheduledEventStatus.FAILED, "cancelled: by cli:ada")
    assert (await planned(pool, user)).target_local == local("2027-11-15T09:00")
    await service.update_user(pool, user.id, {"timezone": "Asia/Tokyo"}, policy=POSTING, now=EARLY, actor="tests")
    assert await scheduler(pool).run_once() == 0
    assert await counted(pool) == {}
    assert (await planned(pool, user)).idempotency_key == f"birthday:{user.id}:2027"
    rows = await pool.fetch("SELECT actor, action, subject FROM audit_log WHERE actor <> 'tests'")
    assert [tuple(row) for row in rows] == [("cli:ada", "scheduled_event.cancel", f"scheduled_event:{event.id}")]


async def test_a_cancelled_reminder_is_over(pool: Pool) -> None:
    """A cancelled reminder has no next event, and the audit does not plan it again."""
    user = await born(pool, "1990-06-01", now="2026-11-01T00:00")
    rule = {"at": "2026-11-15T09:00"}
    await service.add_occasion(pool, user.id, "REMINDER", rule=rule, policy=POSTING, now=EARLY, actor="tests")
    event = await planned(pool, user, "REMINDER")
    await agenda.cancel_event(pool, event.id, version=event.version, actor="tests", policy=POSTING, now=EARLY)
    await Scheduler(pool, SchedulerOptions(policy=POSTING), clock=lambda: EARLY).audit()
    assert (await agenda.list_events(pool, EventFilter(kind="REMINDER", status=ScheduledEventStatus.PENDING)))[0] == []
    assert await scheduler(pool).run_once() == 0


async def test_a_stale_version_or_a_begun_event_is_a_conflict(pool: Pool) -> None:
    """The event is not changed, and the error has its current version or status."""
    user = await born(pool, "1990-11-15", now="2026-11-01T00:00")
    event = await planned(pool, user)
    at = local("2026-11-17T09:00")
    with pytest.raises(VersionConflict, match="at version 1, not 9"):
        await agenda.move_event(pool, event.id, at=at, version=9, actor="tests", now=EARLY)
    with pytest.raises(VersionConflict, match="at version 1, not 9"):
        await agenda.cancel_event(pool, event.id, version=9, actor="tests", policy=POSTING, now=EARLY)
    await scheduler(pool).run_once()
    begun = await agenda.get_event(pool, event.id)
    with pytest.raises(VersionConflict, match="is PROCESSING"):
        await agenda.move_event(pool, event.id, at=at, version=begun.version, actor="tests", now=EARLY)
    with pytest.raises(VersionConflict, match="is PROCESSING"):
        await agenda.cancel_event(pool, event.id, actor="tests", policy=POSTING, now=EARLY)
    assert await agenda.get_event(pool, event.id) == begun


@pytest.mark.parametrize("at", ["2026-10-31T09:00", "9999-12-30T09:00", "2026-11-17T09:00+01:00"])
async def test_invalid_time_is_rejected(pool: Pool, at: str) -> None:
    """A time in the past, after the year 9998 or with a zone is rejected."""
    user = await born(pool, "1990-11-15", now="2026-11-01T00:00")
    with pytest.raises(BadInput) as refused:
        await moved(pool, user, at)
    assert [error.field for error in refused.value.errors] == ["at"]


async def test_an_unknown_event_is_not_found(pool: Pool) -> None:
    for asked in (
        agenda.get_event(pool, uuid4()),
        agenda.cancel_event(pool, uuid4(), actor="tests", policy=POSTING),
        agenda.move_event(pool, uuid4(), at=local("2027-01-01T09:00"), version=1, actor="tests"),
    ):
        with pytest.raises(ScheduledEventNotFound):
            await asked


async def test_event_of_an_unknown_kind_can_be_moved(pool: Pool) -> None:
    """An unknown kind that SQL inserted can be moved and cancelled; it has no next event."""
    user = await service.create_user(pool, person(), policy=POSTING, now=EARLY, actor="tests")
    event_id = await pool.fetchval(
        "INSERT INTO scheduled_events (user_id, event_type, target_timestamp_utc, target_timestamp_local,"
        " target_timezone, idempotency_key, delivery_payload) VALUES ($1, 'RENEWAL', '2026-12-01 09:00+00',"
        " '2026-12-01 09:00', 'Europe/London', 'mine', '{}') RETURNING id",
        user.id,
    )
    at = local("2026-12-02T10:00")
    event = await agenda.move_event(pool, event_id, at=at, version=1, actor="tests", now=EARLY)
    assert event.target_utc == utc("2026-12-02T10:00")
    await agenda.cancel_event(pool, event_id, version=2, actor="tests", policy=POSTING, now=EARLY)
    assert (await agenda.list_events(pool, EventFilter(kind="RENEWAL", status=ScheduledEventStatus.PENDING)))[0] == []
