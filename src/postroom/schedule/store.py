"""One function per statement of `queries.sql`, with the same name. Only this module turns rows into models."""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from datetime import date, datetime, timedelta
from typing import Any, TypeVar
from uuid import UUID

import asyncpg
import msgspec

from postroom.db.queries import Connection, load
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


async def cancel_event(
    connection: Connection, *, event_id: UUID, version: int, failure_reason: str
) -> ScheduledEvent | None:
    row = await QUERIES["cancel_event"].maybe(
        connection, event_id=event_id, version=version, failure_reason=failure_reason
    )
    return _event(ScheduledEvent, row) if row else None


async def claim_due(connection: Connection, *, claim_id: UUID, lease: timedelta, now: datetime | None) -> list[Claimed]:
    rows = await QUERIES["claim_due"].many(connection, claim_id=claim_id, lease=lease, now=now)
    return [_claimed(row, claim_id) for row in rows]


async def count_coming(connection: Connection, *, until: datetime, row_limit: int) -> list[ComingDay]:
    rows = await QUERIES["count_coming"].many(connection, until=until, row_limit=row_limit)
    return [ComingDay(**row) for row in rows]


async def delete_events(connection: Connection, *, event_ids: Sequence[UUID]) -> int:
    return await QUERIES["delete_events"].exec(connection, event_ids=event_ids)


async def delete_occasion(connection: Connection, *, occasion_id: UUID, user_id: UUID) -> bool:
    return await QUERIES["delete_occasion"].maybe(connection, occasion_id=occasion_id, user_id=user_id) is not None


async def delete_old_events(
    connection: Connection, *, retention: timedelta, batch_limit: int, now: datetime | None
) -> int:
    return await QUERIES["delete_old_events"].exec(connection, retention=retention, batch_limit=batch_limit, now=now)


async def delete_user(connection: Connection, *, user_id: UUID) -> bool:
    return await QUERIES["delete_user"].maybe(connection, user_id=user_id) is not None


async def end_occasions(connection: Connection, *, occasion_ids: Sequence[UUID]) -> int:
    return await QUERIES["end_occasions"].exec(connection, occasion_ids=occasion_ids)


async def find_basis(connection: Connection) -> str | None:
    row = await QUERIES["find_basis"].maybe(connection)
    return row["basis"] if row else None


async def find_event(connection: Connection, *, event_id: UUID) -> ScheduledEvent | None:
    row = await QUERIES["find_event"].maybe(connection, event_id=event_id)
    return _event(ScheduledEvent, row) if row else None


async def find_next_due(connection: Connection, *, now: datetime | None) -> tuple[timedelta | None, bool]:
    """The time until the next event is due, None if none is planned; and whether one is due already."""
    row = await QUERIES["find_next_due"].one(connection, now=now)
    due_at: datetime | None = row["due_at"]
    return (None if due_at is None else due_at - row["asked_at"]), row["is_due"]


async def find_user(connection: Connection, *, user_id: UUID) -> User | None:
    row = await QUERIES["find_user"].maybe(connection, user_id=user_id)
    return _user(row) if row else None


async def hand_over(
    connection: Connection, *, claim_id: UUID, now: datetime | None, **columns: Sequence[Any]
) -> set[UUID]:
    """Returns the ids of the events that this claim still held."""
    rows = await QUERIES["hand_over"].many(connection, claim_id=claim_id, now=now, **columns)
    return {row["id"] for row in rows}


async def has_planned(connection: Connection, *, occasion_id: UUID) -> bool:
    is_planned: bool = (await QUERIES["has_planned"].one(connection, occasion_id=occasion_id))["is_planned"]
    return is_planned


async def insert_events(connection: Connection, *, now: datetime | None, **columns: Sequence[Any]) -> list[UUID]:
    """Returns the user id of each inserted event."""
    return [row["user_id"] for row in await QUERIES["insert_events"].many(connection, now=now, **columns)]


async def insert_occasion(
    connection: Connection, *, user_id: UUID, kind: str, message: str, rule: str, template: str | None
) -> Occasion:
    row = await QUERIES["insert_occasion"].one(
        connection, user_id=user_id, kind=kind, message=message, rule=rule, template=template
    )
    return _occasion(row)


async def insert_users(connection: Connection, *, now: datetime | None, **columns: Sequence[Any]) -> list[User]:
    return [_user(row) for row in await QUERIES["insert_users"].many(connection, now=now, **columns)]


async def list_latest_events(connection: Connection, **chosen: Any) -> list[ScheduledEvent]:
    return [_event(ScheduledEvent, row) for row in await QUERIES["list_latest_events"].many(connection, **chosen)]


async def list_occasions(connection: Connection, *, user_ids: Sequence[UUID]) -> list[Occasion]:
    return [_occasion(row) for row in await QUERIES["list_occasions"].many(connection, user_ids=user_ids)]


async def list_soonest_events(connection: Connection, **chosen: Any) -> list[ScheduledEvent]:
    return [_event(ScheduledEvent, row) for row in await QUERIES["list_soonest_events"].many(connection, **chosen)]


async def list_user_events(
    connection: Connection, *, user_ids: Sequence[UUID], now: datetime | None
) -> list[KnownEvent]:
    rows = await QUERIES["list_user_events"].many(connection, user_ids=user_ids, now=now)
    return [_event(KnownEvent, row) for row in rows]


async def list_addressed_users(connection: Connection, *, email: str, page_limit: int) -> list[User]:
    rows = await QUERIES["list_addressed_users"].many(connection, email=email, page_limit=page_limit)
    return [_user(row) for row in rows]


async def list_users(
    connection: Connection, *, before_at: datetime | None, before_id: UUID | None, page_limit: int
) -> list[User]:
    rows = await QUERIES["list_users"].many(connection, before_at=before_at, before_id=before_id, page_limit=page_limit)
    return [_user(row) for row in rows]


async def lock_unplanned_users(connection: Connection, *, batch_limit: int) -> list[User]:
    return [_user(row) for row in await QUERIES["lock_unplanned_users"].many(connection, batch_limit=batch_limit)]


async def lock_unscheduled_users(connection: Connection, *, after_id: UUID | None) -> tuple[list[User], UUID | None]:
    """People with a missing event, and the last id that was checked; None at the end."""
    rows = await QUERIES["lock_unscheduled_users"].many(connection, after_id=after_id)
    return [_user(row) for row in rows if row["id"] is not None], rows[0]["last_id"] if rows else None


async def lock_user(connection: Connection, *, user_id: UUID) -> User | None:
    row = await QUERIES["lock_user"].maybe(connection, user_id=user_id)
    return _user(row) if row else None


async def lock_users(connection: Connection, *, after_id: UUID | None, batch_limit: int) -> list[User]:
    rows = await QUERIES["lock_users"].many(connection, after_id=after_id, batch_limit=batch_limit)
    return [_user(row) for row in rows]


async def leave_to_scheduler(connection: Connection, *, user_ids: Sequence[UUID], basis: str) -> int:
    """Leave people to the sweep if the schedulers use another basis."""
    return await QUERIES["leave_to_scheduler"].exec(connection, user_ids=user_ids, basis=basis)


async def mark_planned(connection: Connection, *, user_ids: Sequence[UUID], unplannable_ids: Sequence[UUID]) -> int:
    return await QUERIES["mark_planned"].exec(connection, user_ids=user_ids, unplannable_ids=unplannable_ids)


async def measure_schedule(connection: Connection, *, bound: int = COUNTED, now: datetime | None = None) -> Backlog:
    row = await QUERIES["measure_schedule"].one(connection, bound=bound, now=now)
    return Backlog(row["due"], row["due_for"], row["unplanned"], row["unplanned_for"], row["unplannable"])


async def move_event(connection: Connection, **columns: Any) -> ScheduledEvent | None:
    row = await QUERIES["move_event"].maybe(connection, **columns)
    return _event(ScheduledEvent, row) if row else None


async def move_events(connection: Connection, **columns: Sequence[Any]) -> set[UUID]:
    return {row["id"] for row in await QUERIES["move_events"].many(connection, **columns)}


async def read_clock(connection: Connection, *, now: datetime | None) -> datetime:
    moment: datetime = (await QUERIES["read_clock"].one(connection, now=now))["moment"]
    return moment


async def recover_events(
    connection: Connection, *, lease: timedelta, now: datetime | None
) -> list[ScheduledEventStatus]:
    rows = await QUERIES["recover_events"].many(connection, lease=lease, now=now)
    return [ScheduledEventStatus(row["status"]) for row in rows]


async def save_basis(connection: Connection, *, basis: str, now: datetime | None) -> int:
    return await QUERIES["save_basis"].exec(connection, basis=basis, now=now)


async def update_user(  # noqa: PLR0913 - one parameter per column
    connection: Connection,
    *,
    user_id: UUID,
    version: int,
    first_name: str,
    last_name: str,
    date_of_birth: date,
    timezone: str,
    email: str | None,
    webhook_url: str | None,
    locale: str | None,
    template: str | None,
) -> User | None:
    row = await QUERIES["update_user"].maybe(
        connection,
        user_id=user_id,
        version=version,
        first_name=first_name,
        last_name=last_name,
        date_of_birth=date_of_birth,
        timezone=timezone,
        email=email,
        webhook_url=webhook_url,
        locale=locale,
        template=template,
    )
    return _user(row) if row else None


def _person(row: asyncpg.Record) -> Person:
    # Not `read_row`: SQL may have written a value that exceeds the limits of the API.
    return Person(**{each.name: row[each.name] for each in fields(Person)})


def _user(row: asyncpg.Record) -> User:
    return User(
        id=row["id"],
        version=row["version"],
        created_at=row["created_at"],
        updated_at=row["updated_at"],
        person=_person(row),
        unplanned_since=row.get("unplanned_since"),
        planned_version=row.get("planned_version"),
    )


def _occasion(row: asyncpg.Record) -> Occasion:
    return Occasion(
        id=row["id"],
        user_id=row["user_id"],
        kind=row["event_type"],
        message=row["message"],
        rule=_rule(row),
        template=row["template"],
        created_at=row["created_at"],
    )


def _claimed(row: asyncpg.Record, claim_id: UUID) -> Claimed:
    occasion: Occasion | None = None
    if row["occasion_id"] is not None:
        occasion = Occasion(
            id=row["occasion_id"],
            user_id=row["user_id"],
            kind=row["event_type"],
            message=row["message"],
            rule=_rule(row),
            template=row["occasion_template"],
        )
    return Claimed(
        id=row["id"],
        claim_id=claim_id,
        user_id=row["user_id"],
        kind=row["event_type"],
        occasion=occasion,
        person=_person(row),
        target_utc=row["target_timestamp_utc"],
        target_local=row["target_timestamp_local"],
        planned_at=row["planned_at"],
        claimed_at=row["claimed_at"],
        idempotency_key=row["idempotency_key"],
        payload=_payload(row),
        moved_from=row["moved_from"],
    )


def _event(model: type[Event], row: asyncpg.Record) -> Event:
    columns = {
        "kind": row["event_type"],
        "target_utc": row["target_timestamp_utc"],
        "target_local": row["target_timestamp_local"],
        "timezone": row["target_timezone"],
        "payload": _payload(row),
    }
    return read_row(model, {**row, **columns})


def _payload(row: asyncpg.Record) -> Any:
    try:
        return _decode(row["delivery_payload"])
    except Exception:  # noqa: BLE001 - RecursionError too: one row must not stop the others of its batch
        return UNREADABLE


def _rule(row: asyncpg.Record) -> Mapping[str, Any]:
    try:
        return _decode_rule(row["rule"])
    except Exception:  # noqa: BLE001 - as above; no kind accepts the empty rule that stands for it
        return {}
