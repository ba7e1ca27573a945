"""Operations on people and their occasions. Surfaces call this module and nothing below it."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from postroom.db.faults import translated
from postroom.db.pool import Pool
from postroom.db.queries import Connection
from postroom.delivery.check import is_template_id
from postroom.errors import BadInput, FieldError, VersionConflict
from postroom.events.audit import audited
from postroom.runtime.page import Found, read_page
from postroom.schedule import store
from postroom.schedule.check import BAD_TEMPLATE, check_person, problems
from postroom.schedule.civil import LeapDay
from postroom.schedule.errors import OccasionNotFound, UserNotFound
from postroom.schedule.kinds import check_rule, never_fires
from postroom.schedule.model import (
    Backlog,
    ComingDay,
    Occasion,
    Person,
    PlanChange,
    SchedulePolicy,
    User,
    person_fields,
)
from postroom.schedule.planner import Keep, plan_for
from postroom.settings import Settings

_encode = msgspec.json.Encoder().encode
MOST_COUNTED = 20_000
"""Planned events that are counted by day: the page stays quick with millions of them."""

LONGEST_MESSAGE = 2000  # characters of a greeting


def policy_of(settings: Settings) -> SchedulePolicy:
    """The schedule policy of the settings."""
    return SchedulePolicy(
        times=dict(settings.schedule_times),
        leap_day=LeapDay(settings.leap_day),
        max_lateness=dict(settings.schedule_max_lateness),
        webhook_url=settings.schedule_webhook_url,
        captures=settings.transport == "capture",
    )


async def create_user(
    pool: Pool, person: Person, *, policy: SchedulePolicy, actor: str, now: datetime | None = None
) -> User:
    """Store a person and plan their next birthday, in one transaction."""
    async with audited(pool, actor, "user.create") as (connection, note):
        check_person(person, today=(await store.read_clock(connection, now=now)).date())
        [user] = await _insert(connection, [person], policy, now=now)
        note.subject = _subject(user.id)
    return user


async def create_users(
    pool: Pool, people: Sequence[Person], *, policy: SchedulePolicy, actor: str, now: datetime | None = None
) -> tuple[list[User], dict[int, tuple[FieldError, ...]]]:
    """Store many people; returns the errors of invalid ones by their index, and stores the others.

    The audit log gets one entry, with the counts.
    """
    async with audited(pool, actor, "user.import", "users") as (connection, note):
        today = (await store.read_clock(connection, now=now)).date()
        wrong = {
            index: errors
            for index, person in enumerate(people)
            if (errors := tuple(FieldError(*problem) for problem in problems(person, today=today)))
        }
        good = [person for index, person in enumerate(people) if index not in wrong]
        users = await _insert(connection, good, policy, now=now) if good else []
        note.after, note.is_dropped = {"added": len(users), "rejected": len(wrong)}, not users
    return users, wrong


async def delete_user(pool: Pool, user_id: UUID, *, actor: str) -> None:
    """Delete a person and their events; the trigger `cancel_greetings` cancels queued deliveries."""
    async with audited(pool, actor, "user.delete", _subject(user_id)) as (connection, _note):
        UserNotFound.unless(await store.lock_user(connection, user_id=user_id))
        await store.delete_user(connection, user_id=user_id)


async def get_user(pool: Pool, user_id: UUID) -> User:
    return UserNotFound.unless(await store.find_user(pool, user_id=user_id))


async def list_users(pool: Pool, *, cursor: str | None = None, limit: int = 50) -> Found[User]:
    """A page of people, newest first, and the cursor of the next page."""
    order = {"before_at": ("created_at", datetime), "before_id": ("id", UUID)}
    return await read_page(store.list_users, pool, cursor, limit, order=order)


async def find_users(pool: Pool, email: str) -> list[User]:
    """The people with this address, newest first; at most a page."""
    return await store.list_addressed_users(pool, email=email, page_limit=50)


async def count_coming(pool: Pool, *, until: datetime) -> list[ComingDay]:
    """The planned events until a time, by the person's day and zone; the next `MOST_COUNTED` are counted."""
    return await store.count_coming(pool, until=until, row_limit=MOST_COUNTED)


async def measure_schedule(pool: Pool) -> Backlog:
    """The backlog of the schedule."""
    return await store.measure_schedule(pool)


async def update_user(  # noqa: PLR0913 - the change, its conditions, and who makes it
    pool: Pool,
    user_id: UUID,
    changes: Mapping[str, Any],
    *,
    policy: SchedulePolicy,
    version: int | None = None,
    actor: str,
    now: datetime | None = None,
) -> tuple[User, PlanChange]:
    """Change fields of a person and recompute planned events; with `version`, only if it is still current.

    The audit entry has the names of the fields, not their values, which are personal data.
    """
    fields = {"fields": sorted(changes)}
    async with audited(pool, actor, "user.update", _subject(user_id), after=fields) as (connection, _note):
        user = UserNotFound.unless(await store.lock_user(connection, user_id=user_id))
        if version is not None and user.version != version:
            raise VersionConflict
        person = replace(user.person, **changes)
        check_person(person, today=(await store.read_clock(connection, now=now)).date())
        with translated():
            changed = await store.update_user(
                connection, user_id=user_id, version=user.version, **person_fields(person)
            )
        if changed is None:
            raise VersionConflict
        moved = await _plan(connection, [replace(changed, unplanned_since=user.unplanned_since)], policy, now=now)
    return changed, moved[user_id]


async def add_occasion(  # noqa: PLR0913 - the person, the kind, its rule and its words
    pool: Pool,
    user_id: UUID,
    kind: str,
    *,
    rule: Mapping[str, Any],
    message: str = "",
    template: str | None = None,
    policy: SchedulePolicy,
    actor: str,
    now: datetime | None = None,
) -> Occasion:
    """Add an anniversary, a reminder or a recurring message, and plan its first event."""
    check_rule(kind, rule)
    if len(message) > LONGEST_MESSAGE or "\0" in message:
        raise BadInput.of("message", f"must be at most {LONGEST_MESSAGE} characters")
    if template is not None and not is_template_id(template):
        raise BadInput.of("template", BAD_TEMPLATE)
    async with audited(pool, actor, "occasion.add", _subject(user_id)) as (connection, note):
        user = UserNotFound.unless(await store.lock_user(connection, user_id=user_id))
        occasion = await store.insert_occasion(
            connection,
            user_id=user_id,
            kind=kind,
            message=message.strip(),
            rule=_encode(rule).decode(),
            template=template,
        )
        # Only the occasion is new: keep planned events, unless SQL changed the person and the sweep has not run yet.
        keep = Keep.ALL if user.planned_version == user.version else Keep.NOTHING
        await _plan(connection, [user], policy, now=now, keep=keep)
        if not await store.has_planned(connection, occasion_id=occasion.id):
            raise never_fires(kind, rule)
        note.after = {"kind": kind, "occasion_id": str(occasion.id)}
    return occasion


async def list_occasions(pool: Pool, user_id: UUID) -> list[Occasion]:
    """The occasions of a person; raises `UserNotFound`."""
    async with pool.acquire() as connection:
        if await store.find_user(connection, user_id=user_id) is None:
            raise UserNotFound
        return await store.list_occasions(connection, user_ids=[user_id])


async def remove_occasion(pool: Pool, user_id: UUID, occasion_id: UUID, *, actor: str) -> None:
    """Delete an occasion and its planned events."""
    after = {"occasion_id": str(occasion_id)}
    async with audited(pool, actor, "occasion.remove", _subject(user_id), after=after) as (connection, _note):
        await store.lock_user(connection, user_id=user_id)
        if not await store.delete_occasion(connection, occasion_id=occasion_id, user_id=user_id):
            raise OccasionNotFound


def _subject(user_id: UUID) -> str:
    """The person in the audit log, without personal data."""
    return f"user:{user_id}"


async def _insert(
    connection: Connection, people: Sequence[Person], policy: SchedulePolicy, *, now: datetime | None
) -> list[User]:
    rows = [person_fields(person) for person in people]
    with translated():
        users = await store.insert_users(connection, now=now, **{name: [row[name] for row in rows] for name in rows[0]})
    await _plan(connection, users, policy, now=now)
    return users


async def _plan(
    connection: Connection,
    users: Sequence[User],
    policy: SchedulePolicy,
    *,
    now: datetime | None,
    keep: Keep = Keep.NOTHING,
) -> dict[UUID, PlanChange]:
    """Plan, and leave the people to the sweep if the schedulers use other settings than this process."""
    done = await plan_for(connection, users, policy, now=now, keep=keep)
    await store.leave_to_scheduler(connection, user_ids=[user.id for user in users], basis=policy.basis)
    return done
