"""One function per statement of `queries.sql`, with the same name. Only this module turns rows into models."""

from collections.abc import Mapping
from dataclasses import fields
from datetime import datetime, timedelta
from functools import partial
from typing import Any, TypeVar
from uuid import UUID

import asyncpg
import msgspec

from postroom.db.queries import Connection, column, columns, load, model
from postroom.runtime.record import read_row
from postroom.schedule.model import (
    UNREADABLE,
    Backlog,
    Claimed,
    ComingDay,
    KnownEvent,
    Occasion,
    Person,
    ScheduledEvent,
    ScheduledEventStatus,
    User,
)

Event = TypeVar("Event", ScheduledEvent, KnownEvent)

QUERIES = load("postroom.schedule")
COUNTED = 10_000
"""Limit of backlog counts, so that they stay cheap when the backlog is large."""

_decode = msgspec.json.Decoder().decode
_decode_rule = msgspec.json.Decoder(dict[str, Any]).decode


def _person(row: asyncpg.Record) -> Person:
    # Not `read_row`: SQL may have written a value that exceeds the limits of the API.
    return Person(**{each.name: row[each.name] for each in fields(Person)})


def _user(row: asyncpg.Record) -> User:
    return read_row(User, {**row, "person": _person(row)})


def _occasion(row: asyncpg.Record) -> Occasion:
    return read_row(Occasion, {**row, "rule": _rule(row)})


def _claimed(row: asyncpg.Record) -> Claimed:
    occasion: Occasion | None = None
    if row["occasion_id"] is not None:
        own = {"id": row["occasion_id"], "template": row["occasion_template"], "rule": _rule(row)}
        occasion = read_row(Occasion, {**row, **own})
    return read_row(Claimed, {**row, "occasion": occasion, "person": _person(row), "payload": _payload(row)})


def _event(model: type[Event], row: Mapping[str, Any]) -> Event:
    return read_row(model, {**row, "payload": _payload(row)})


_scheduled_event = partial(_event, ScheduledEvent)


def _payload(row: Mapping[str, Any]) -> Any:
    try:
        return _decode(row["payload"])
    except Exception:  # noqa: BLE001 - RecursionError too: one row must not stop the others of its batch
        return UNREADABLE


def _rule(row: asyncpg.Record) -> Mapping[str, Any]:
    try:
        return _decode_rule(row["rule"])
    except Exception:  # noqa: BLE001 - as above; no kind accepts the empty rule that stands for it
        return {}


cancel_event = QUERIES["cancel_event"].maybe_as(_scheduled_event)

claim_due = QUERIES["claim_due"].many_as(_claimed)
count_coming = QUERIES["count_coming"].many_as(model(ComingDay))
delete_events = QUERIES["delete_events"].exec
delete_occasion = QUERIES["delete_occasion"].has
delete_old_events = QUERIES["delete_old_events"].exec
delete_user = QUERIES["delete_user"].has
end_occasions = QUERIES["end_occasions"].exec
find_basis = QUERIES["find_basis"].maybe_as(column("basis", str))
find_event = QUERIES["find_event"].maybe_as(_scheduled_event)


async def find_next_due(connection: Connection, *, now: datetime | None) -> tuple[timedelta | None, bool]:
    """The time until the next event is due, None if none is planned; and whether one is due already."""
    row = await QUERIES["find_next_due"].one(connection, now=now)
    due_at: datetime | None = row["due_at"]
    return (None if due_at is None else due_at - row["asked_at"]), row["is_due"]


find_user = QUERIES["find_user"].maybe_as(_user)
hand_over = QUERIES["hand_over"].many_as(columns("id"))
"""Returns the ids of the events that this claim still held."""
has_planned = QUERIES["has_planned"].one_as(column("is_planned", bool))
insert_events = QUERIES["insert_events"].many_as(columns("user_id"))
"""Returns the user id of each inserted event."""
insert_occasion = QUERIES["insert_occasion"].one_as(_occasion)
insert_users = QUERIES["insert_users"].many_as(_user)
list_latest_events = QUERIES["list_latest_events"].search_as(_scheduled_event)
list_occasions = QUERIES["list_occasions"].many_as(_occasion)
list_soonest_events = QUERIES["list_soonest_events"].search_as(_scheduled_event)
list_user_events = QUERIES["list_user_events"].many_as(partial(_event, KnownEvent))
list_addressed_users = QUERIES["list_addressed_users"].many_as(_user)
list_users = QUERIES["list_users"].many_as(_user)
lock_unplanned_users = QUERIES["lock_unplanned_users"].many_as(_user)


async def lock_unscheduled_users(connection: Connection, *, after_id: UUID | None) -> tuple[list[User], UUID | None]:
    """People with a missing event, and the last id that was checked; None at the end."""
    rows = await QUERIES["lock_unscheduled_users"].many(connection, after_id=after_id)
    return [_user(row) for row in rows if row["id"] is not None], rows[0]["last_id"] if rows else None


lock_user = QUERIES["lock_user"].maybe_as(_user)
lock_users = QUERIES["lock_users"].many_as(_user)
leave_to_scheduler = QUERIES["leave_to_scheduler"].exec
"""Leave people to the sweep if the schedulers use another basis."""
mark_planned = QUERIES["mark_planned"].exec


async def measure_schedule(connection: Connection, *, bound: int = COUNTED, now: datetime | None = None) -> Backlog:
    row = await QUERIES["measure_schedule"].one(connection, bound=bound, now=now)
    return Backlog(**row)


move_event = QUERIES["move_event"].maybe_as(_scheduled_event)
move_events = QUERIES["move_events"].many_as(columns("id"))
read_clock = QUERIES["read_clock"].one_as(columns("moment"))
recover_events = QUERIES["recover_events"].many_as(column("status", ScheduledEventStatus))
save_basis = QUERIES["save_basis"].exec
update_user = QUERIES["update_user"].maybe_as(_user)
