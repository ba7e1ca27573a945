"""Events across people: list, read, move and cancel. Surfaces call this and `service`, and nothing below them.

Only a PENDING event of the version that the caller has read is changed; otherwise a `VersionConflict` is raised. The
person's row is locked meanwhile, so that no scheduler claims or plans the event.
"""

from dataclasses import asdict, dataclass
from datetime import MAXYEAR, datetime
from uuid import UUID

from postroom.db.pool import Pool
from postroom.db.queries import Connection
from postroom.delivery.model import DeliveryRequest
from postroom.errors import BadInput, VersionConflict
from postroom.events.audit import audited
from postroom.runtime.page import Found, search_page
from postroom.runtime.zones import instant_of, local_at
from postroom.schedule import store
from postroom.schedule.errors import ScheduledEventNotFound, UserNotFound
from postroom.schedule.handover import refusal, request_for
from postroom.schedule.model import Claimed, EventFilter, ScheduledEvent, ScheduledEventStatus, SchedulePolicy, User
from postroom.schedule.plan import Subject
from postroom.schedule.planner import following_event, planned_columns


@dataclass(frozen=True, slots=True)
class NextMessage:
    """A planned event and the delivery it would become now, or the reason why it would fail."""

    event: ScheduledEvent
    request: DeliveryRequest | None
    problem: str | None


SEARCHED = 1_000
"""Most events of each status that a page by person or lateness reads."""

_LAST_YEAR = MAXYEAR - 1  # a local time of the last year may be in the next year in UTC


async def list_events(
    pool: Pool, chosen: EventFilter, *, is_soonest_first: bool = False, cursor: str | None = None, limit: int = 50
) -> Found[ScheduledEvent]:
    """A page of events, latest target first unless `is_soonest_first`, and the cursor of the next page."""
    statement = store.list_soonest_events if is_soonest_first else store.list_latest_events
    filters = asdict(chosen)
    status = filters.pop("status")
    filters["statuses"] = [status] if status else list(ScheduledEventStatus)
    order = {"last_at": ("target_utc", datetime), "last_id": ("id", UUID)}
    # Status, kind and time are in the order of an index: only a person or lateness needs a search.
    is_search = chosen.user_id is not None or chosen.is_late is not None
    bound = SEARCHED if is_search else limit + 1
    return await search_page(statement, pool, cursor, limit, order=order, bound=bound, **filters)


async def list_user_events(
    pool: Pool, user_id: UUID, *, cursor: str | None = None, limit: int = 50
) -> Found[ScheduledEvent]:
    """A page of a person's events, the latest target first; raises `UserNotFound`."""
    UserNotFound.unless(await store.find_user(pool, user_id=user_id))
    return await list_events(pool, EventFilter(user_id=user_id), cursor=cursor, limit=limit)


async def get_event(pool: Pool, event_id: UUID) -> ScheduledEvent:
    return ScheduledEventNotFound.unless(await store.find_event(pool, event_id=event_id))


async def preview_next(pool: Pool, user_id: UUID, *, policy: SchedulePolicy) -> NextMessage | None:
    """The next planned event of a person as a delivery, with their data of today; None if nothing is planned."""
    chosen = EventFilter(status=ScheduledEventStatus.PENDING, user_id=user_id)
    found, _more = await list_events(pool, chosen, is_soonest_first=True, limit=1)
    user = UserNotFound.unless(await store.find_user(pool, user_id=user_id))
    if not found:
        return None
    [event] = found
    occasions = await store.list_occasions(pool, user_ids=[user_id])
    claimed = Claimed(
        id=event.id,
        claim_id=event.id,
        user_id=user_id,
        kind=event.kind,
        occasion=next((each for each in occasions if each.id == event.occasion_id), None),
        person=user.person,
        target_utc=event.target_utc,
        target_local=event.target_local,
        planned_at=event.target_utc,
        claimed_at=event.target_utc,
        idempotency_key=event.idempotency_key,
        payload=event.payload,
        moved_from=event.moved_from,
    )
    problem = refusal(claimed, policy)
    return NextMessage(event, None if problem else request_for(claimed, policy), problem)


async def move_event(
    pool: Pool, event_id: UUID, *, at: datetime, version: int, actor: str, now: datetime | None = None
) -> ScheduledEvent:
    """Move a planned event to another local time of the person, which later planning keeps."""
    async with audited(pool, actor, "scheduled_event.move", f"scheduled_event:{event_id}") as (connection, note):
        user, event = await _hold(connection, event_id, version)
        zone = user.person.timezone
        target = _instant(at, zone)
        if target <= await store.read_clock(connection, now=now):
            raise BadInput.of("at", f"must be in the future in {zone}")
        changed = await store.move_event(
            connection,
            event_id=event.id,
            version=event.version,
            target_utc=target,
            target_local=local_at(target, zone),
            timezone=zone,
            now=now,
        )
        if changed is None:
            raise VersionConflict
        note.before, note.after = {"at": event.target_local.isoformat()}, {"at": changed.target_local.isoformat()}
    return changed


async def cancel_event(
    pool: Pool,
    event_id: UUID,
    *,
    version: int | None = None,
    actor: str,
    policy: SchedulePolicy,
    now: datetime | None = None,
) -> ScheduledEvent:
    """End a planned event without sending it, and plan the occurrence after it in the same transaction."""
    async with audited(pool, actor, "scheduled_event.cancel", f"scheduled_event:{event_id}") as (connection, _note):
        user, event = await _hold(connection, event_id, version)
        cancelled = await store.cancel_event(
            connection, event_id=event.id, version=event.version, failure_reason=f"cancelled: by {actor}"
        )
        if cancelled is None:
            raise VersionConflict
        await _plan_following(connection, user, event, policy, now=now)
    return cancelled


async def _hold(connection: Connection, event_id: UUID, version: int | None) -> tuple[User, ScheduledEvent]:
    """Lock the person's row, then read the person and the event."""
    found = await store.find_event(connection, event_id=event_id)
    user = await store.lock_user(connection, user_id=found.user_id) if found else None
    event = await store.find_event(connection, event_id=event_id) if user else None
    if user is None or event is None:
        raise ScheduledEventNotFound
    if event.status is not ScheduledEventStatus.PENDING:
        raise VersionConflict(f"The event is {event.status}. Only a PENDING event can be moved or cancelled.")
    if version is not None and event.version != version:
        raise VersionConflict(f"The event is at version {event.version}, not {version}. Read it again.")
    return user, event


async def _plan_following(
    connection: Connection, user: User, event: ScheduledEvent, policy: SchedulePolicy, *, now: datetime | None
) -> None:
    occasions = await store.list_occasions(connection, user_ids=[user.id])
    occasion = next((each for each in occasions if each.id == event.occasion_id), None)
    planned = following_event(Subject(user.id, user.person, occasion), event, policy)
    if planned is not None:
        await store.insert_events(connection, now=now, **planned_columns([planned]))
        await store.leave_to_scheduler(connection, user_ids=[user.id], basis=policy.basis)


def _instant(at: datetime, zone: str) -> datetime:
    if at.tzinfo is not None:
        raise BadInput.of("at", "must be a local time without a zone, such as 2027-01-31T09:00")
    if at.year > _LAST_YEAR:
        raise BadInput.of("at", f"must be before the year {MAXYEAR}")
    return instant_of(at, zone)
