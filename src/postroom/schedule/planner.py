"""Plan for many people in the caller's transaction: read the stored events, decide, write the difference.

The caller has locked the people's rows, so that no other transaction claims or plans their events.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum, auto
from typing import Any
from uuid import UUID

import msgspec
import structlog

from postroom.db.queries import Connection, arrays
from postroom.schedule import store
from postroom.schedule.model import (
    Claimed,
    KnownEvent,
    PlanChange,
    PlannedEvent,
    ScheduledEvent,
    ScheduledEventStatus,
    SchedulePolicy,
    User,
)
from postroom.schedule.plan import UNPLANNABLE, Subject, following, moved, upcoming

_encode = msgspec.json.Encoder().encode
_log = structlog.get_logger()
_TARGET = ("target_utc", "target_local", "timezone", "idempotency_key")


class Keep(Enum):
    """The planned events that planning does not change."""

    NOTHING = auto()  # the person changed: recompute all
    BROUGHT = auto()  # time rules changed: keep events that SQL wrote with their own key, which no rule computed
    ALL = auto()  # nothing changed: only add missing events


@dataclass(slots=True)
class Changes:
    """The writes that make the stored events match the plan."""

    planned: list[PlannedEvent] = field(default_factory=list)
    moves: list[tuple[KnownEvent, PlannedEvent, datetime]] = field(default_factory=list)
    over: list[KnownEvent] = field(default_factory=list)
    ended: list[UUID] = field(default_factory=list)
    unplannable: list[UUID] = field(default_factory=list)  # user ids

    def end(self, subject: Subject, pending: KnownEvent | None) -> None:
        """Record that a subject has no future occurrence."""
        if pending is not None:
            self.over.append(pending)
        elif subject.occasion is not None:
            self.ended.append(subject.occasion.id)


async def plan_for(
    connection: Connection,
    users: Sequence[User],
    policy: SchedulePolicy,
    *,
    now: datetime | None,
    keep: Keep = Keep.NOTHING,
) -> dict[UUID, PlanChange]:
    """Bring the events of these people up to date; returns the changes of each.

    A new person who was never planned for keeps the events they were inserted with. SQL changes are planned as of the
    time of the change, otherwise events due between the change and the sweep would be lost.
    """
    ids = [user.id for user in users]
    moment = await store.read_clock(connection, now=now)
    known = _by_user(await store.list_user_events(connection, user_ids=ids, now=now))
    occasions = _by_user(await store.list_occasions(connection, user_ids=ids))
    changes = Changes()
    for user in users:
        kept = Keep.ALL if user.planned_version == 0 else keep
        for subject in (Subject(user.id, user.person, each) for each in (None, *occasions.get(user.id, []))):
            own = [event for event in known.get(user.id, []) if (event.kind, event.occasion_id) == subject.key]
            _decide(subject, own, policy, now=_as_of(user, subject, moment), keep=kept, changes=changes)
    added, moved = await _write(connection, changes, now=now)
    await store.mark_planned(connection, user_ids=ids, unplannable_ids=changes.unplannable)
    return {user.id: _count(known.get(user.id, []), moved, added[user.id]) for user in users}


def planned_columns(planned: Iterable[PlannedEvent | None]) -> dict[str, list[Any]]:
    """Planned events as columns for one statement; None is skipped."""
    given = [each for each in planned if each is not None]
    return arrays(given, "user_id", "kind", "occasion_id") | _target_columns(given)


def following_event(subject: Subject, event: Claimed | ScheduledEvent, policy: SchedulePolicy) -> PlannedEvent | None:
    """The event after a claimed or cancelled one; None if it was the last.

    An event that an operator moved replaces its own occurrence and those it was moved past, which would otherwise be
    due at once.
    """
    if event.kind != subject.kind_name:  # an unknown kind that SQL inserted: sent once, without a next event
        return None
    after = max(event.target_local, event.moved_from or event.target_local)
    try:
        return following(subject, policy, after=after, key=event.idempotency_key)
    except UNPLANNABLE as error:
        _log.warning("user_unplannable", user_id=str(event.user_id), kind=event.kind, error=type(error).__name__)
        return None


def _as_of(user: User, subject: Subject, now: datetime) -> datetime:
    """The time to plan from: now, or the time of the SQL change."""
    if user.unplanned_since is None:
        return now
    if subject.occasion is None or subject.occasion.created_at is None:
        return min(now, user.unplanned_since)
    return min(now, max(user.unplanned_since, subject.occasion.created_at))


def _decide(
    subject: Subject, own: Sequence[KnownEvent], policy: SchedulePolicy, *, now: datetime, keep: Keep, changes: Changes
) -> None:
    if any(event.is_claimed_only for event in own):
        return  # claimed but not handed over: the handover plans the next event
    pending = next((event for event in own if event.status is ScheduledEventStatus.PENDING), None)
    used = {event.idempotency_key for event in own if event.status is not ScheduledEventStatus.PENDING}
    try:
        if pending is not None and pending.moved_from is not None:
            planned: PlannedEvent | None = moved(subject, pending)
        else:
            planned = upcoming(subject, policy, now=now, used=used, pending=pending)
    except UNPLANNABLE as error:
        _log.warning(
            "user_unplannable", user_id=str(subject.user_id), kind=subject.kind_name, error=type(error).__name__
        )
        changes.unplannable.append(subject.user_id)
        return
    if pending is not None and (
        keep is Keep.ALL or (keep is Keep.BROUGHT and not pending.idempotency_key.startswith(subject.prefix))
    ):
        return
    if planned is None:
        changes.end(subject, pending)
    elif pending is None:
        changes.planned.append(planned)
    elif _differs(pending, planned):
        changes.moves.append((pending, planned, now))


def _differs(event: KnownEvent, planned: PlannedEvent) -> bool:
    return any(getattr(event, name) != getattr(planned, name) for name in (*_TARGET, "payload"))


async def _write(connection: Connection, changes: Changes, *, now: datetime | None) -> tuple[Counter[UUID], set[UUID]]:
    """The added events per user id, and the ids of moved events."""
    added: Counter[UUID] = Counter()
    if changes.planned:
        added.update(await store.insert_events(connection, now=now, **planned_columns(changes.planned)))
    if changes.over:
        await store.delete_events(connection, event_ids=[event.id for event in changes.over])
    if changes.ended:
        await store.end_occasions(connection, occasion_ids=changes.ended)
    if not changes.moves:
        return added, set()
    events, targets, moments = zip(*changes.moves, strict=True)
    moved = await store.move_events(
        connection,
        moved_at=moments,
        **arrays(events, "version", event_id="id"),
        **_target_columns(targets),
    )
    return added, set(moved)


def _target_columns(planned: Sequence[PlannedEvent]) -> dict[str, list[Any]]:
    payloads = [_encode(each.payload).decode() for each in planned]
    return {**arrays(planned, *_TARGET), "payload": payloads}


def _count(known: Sequence[KnownEvent], moved: set[UUID], added: int) -> PlanChange:
    return PlanChange(
        added=added,
        moved=sum(event.id in moved for event in known),
        skipped=sum(event.status is not ScheduledEventStatus.PENDING for event in known),
    )


def _by_user(rows: Iterable[Any]) -> dict[UUID, list[Any]]:
    grouped: dict[UUID, list[Any]] = {}
    for row in rows:
        grouped.setdefault(row.user_id, []).append(row)
    return grouped
