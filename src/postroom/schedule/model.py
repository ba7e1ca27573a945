"""People, what they are sent, and when: the values, without a database."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import date, datetime, time, timedelta
from enum import StrEnum
from typing import Annotated, Any
from uuid import UUID

from msgspec import Meta

from postroom.runtime.zones import ZONE_VERSION
from postroom.schedule.civil import LeapDay

BIRTHDAY = "BIRTHDAY"
NINE = time(9)
LATE_AFTER = timedelta(minutes=1)
"""What is handed over later than this after its time is marked late."""

UNREADABLE = "(cannot be decoded)"
"""Stands for a payload that plain SQL wrote and Python cannot decode; its event fails when it is due."""


class ScheduledEventStatus(StrEnum):
    """Where a scheduled event stands."""

    PENDING = "PENDING"
    PROCESSING = "PROCESSING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"


_Text = Annotated[str, Meta(max_length=2048)]
_Zone = Annotated[str, Meta(max_length=100, description="An IANA time zone such as Europe/London, or UTC.")]
_Locale = Annotated[str, Meta(max_length=35, description="Of mail, such as fr or pt-BR; English if left out.")]
_Template = Annotated[
    str, Meta(max_length=100, description="Of the birthday greeting by mail; `birthday` if left out.")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Person:
    """Somebody to be written to, as given."""

    first_name: _Text
    last_name: _Text
    date_of_birth: date
    timezone: _Zone
    email: _Text | None = None
    webhook_url: _Text | None = None
    locale: _Locale | None = None
    template: _Template | None = None

    @property
    def name(self) -> str:
        return f"{self.first_name} {self.last_name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """Somebody known, with an id and a version that counts changes."""

    id: UUID
    version: int
    created_at: datetime
    updated_at: datetime
    person: Person
    unplanned_since: datetime | None = None  # when plain SQL changed what nobody has planned for yet
    planned_version: int | None = None  # the version that was planned for, 0 if none was; None where nobody asks


def person_fields(person: Person) -> dict[str, Any]:
    """What was given, by name."""
    return {each.name: getattr(person, each.name) for each in fields(person)}


def user_fields(user: User) -> dict[str, Any]:
    """Somebody as everybody sees them, flat and by name."""
    return {
        "id": user.id,
        **person_fields(user.person),
        "version": user.version,
        "created_at": user.created_at,
        "updated_at": user.updated_at,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Occasion:
    """Something a person is sent besides the birthday greeting: a kind, its rule, and what is said."""

    id: UUID
    user_id: UUID
    kind: str
    message: str
    rule: Mapping[str, Any]
    template: str | None = None  # of its mail; None: the message is subject and text
    created_at: datetime | None = None  # None where nobody asks


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedEvent:
    """An event as it should be."""

    user_id: UUID
    kind: str
    occasion_id: UUID | None
    target_utc: datetime
    target_local: datetime
    timezone: str
    idempotency_key: str
    payload: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduledEvent(PlannedEvent):
    """One firing, planned or past. `target_local` and `moved_from` are local times of the person, without a zone.

    `moved_from` is the time of its rule, if an operator moved the event.
    """

    id: UUID
    status: ScheduledEventStatus
    executed_at: datetime | None
    failure_reason: str | None
    retry_count: int
    version: int
    late_by: timedelta | None
    delivery_id: int | None
    moved_from: datetime | None
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class EventFilter:
    """Which events a listing shows; None asks for all."""

    status: ScheduledEventStatus | None = None
    kind: str | None = None
    user_id: UUID | None = None
    is_late: bool | None = None
    due_from: datetime | None = None
    due_before: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownEvent(PlannedEvent):
    """An event that exists, as planning needs it."""

    id: UUID
    status: ScheduledEventStatus
    version: int
    moved_from: datetime | None
    is_claimed_only: bool  # claimed, not yet handed over: it may become PENDING again


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimed:
    """A due event, held by the transaction that claimed it, with the person as they are now."""

    id: UUID
    claim_id: UUID
    user_id: UUID
    kind: str
    occasion: Occasion | None
    person: Person
    target_utc: datetime
    target_local: datetime
    planned_at: datetime
    claimed_at: datetime
    idempotency_key: str
    payload: Any
    moved_from: datetime | None

    @property
    def lateness(self) -> timedelta:
        """How long after its time it was claimed; what a move brought past its own time is late since the move."""
        return max(self.claimed_at - max(self.target_utc, self.planned_at), timedelta())


@dataclass(frozen=True, slots=True)
class Backlog:
    """What is behind: events due, people to plan for, each with how long the first has waited; and the unplannable."""

    due: int
    due_for: timedelta
    unplanned: int
    unplanned_for: timedelta
    unplannable: int


@dataclass(frozen=True, slots=True)
class PlanChange:
    """What planning did to a person's events: planned ones recomputed, begun ones left alone, missing ones added."""

    moved: int
    skipped: int
    added: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulePolicy:
    """How an installation schedules; the defaults are those of the settings."""

    times: Mapping[str, time] = field(default_factory=dict)
    leap_day: LeapDay = LeapDay.MARCH_1
    max_lateness: Mapping[str, timedelta] = field(default_factory=dict)
    webhook_url: str | None = None  # for people without a destination of their own
    captures: bool = False  # with no destination at all: into the inbox instead of FAILED

    def time_of(self, kind: str) -> time:
        return self.times.get(kind, NINE)

    @property
    def basis(self) -> str:
        """Everything that planned targets depend on besides the people; when it changes, they are planned again."""
        times = ",".join(f"{kind}={moment.isoformat()}" for kind, moment in sorted(self.times.items()))
        return f"tzdata={ZONE_VERSION};leap_day={self.leap_day};times={times}"
