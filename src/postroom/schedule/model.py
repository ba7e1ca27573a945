"""People, occasions and scheduled events as values, without a database."""

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
"""An event that is handed over later than this after its target is marked late."""

UNREADABLE = "(cannot be decoded)"
"""Replaces a payload that SQL wrote and Python cannot decode; its event fails when it is due."""


class ScheduledEventStatus(StrEnum):
    """The status of a scheduled event."""

    PENDING = "PENDING"
    PROCESSING = "PROCESSING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"


_Text = Annotated[str, Meta(max_length=2048)]
_Zone = Annotated[str, Meta(max_length=100, description="An IANA time zone such as Europe/London, or UTC.")]
_Locale = Annotated[str, Meta(max_length=35, description="Language of mail, such as fr or pt-BR; default English.")]
_Template = Annotated[str, Meta(max_length=100, description="Template of the birthday mail; default `birthday`.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Person:
    """A person to greet, as given by the caller."""

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
    """A stored person, with an id and a version that increases with each change."""

    id: UUID
    version: int
    created_at: datetime
    updated_at: datetime
    person: Person
    unplanned_since: datetime | None = None  # time of the SQL change that is not planned for yet
    planned_version: int | None = None  # the version last planned for, 0 if none; None if not read


def person_fields(person: Person) -> dict[str, Any]:
    """The fields of a person by name."""
    return {each.name: getattr(person, each.name) for each in fields(person)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Occasion:
    """A message besides the birthday greeting: its kind, rule and text."""

    id: UUID
    user_id: UUID
    kind: str
    message: str
    rule: Mapping[str, Any]
    template: str | None = None  # mail template; None: the message is subject and text
    created_at: datetime | None = None  # None if not read


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedEvent:
    """An event as planning computed it."""

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
    """A planned or past event. `target_local` and `moved_from` are local times of the person, without a zone.

    `moved_from` is the time computed from the rule, if an operator moved the event.
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
    """Filters of a list of events; None does not filter."""

    status: ScheduledEventStatus | None = None
    kind: str | None = None
    user_id: UUID | None = None
    is_late: bool | None = None
    due_from: datetime | None = None
    due_before: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownEvent(PlannedEvent):
    """A stored event, with the fields that planning needs."""

    id: UUID
    status: ScheduledEventStatus
    version: int
    moved_from: datetime | None
    is_claimed_only: bool  # claimed but not handed over: it may become PENDING again


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimed:
    """A due event, locked by the transaction that claimed it, with the current data of the person."""

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
        """The time between target and claim; if a move put the target in the past, the time since the move."""
        return max(self.claimed_at - max(self.target_utc, self.planned_at), timedelta())


@dataclass(frozen=True, slots=True)
class Backlog:
    """Overdue events, people to plan for, each with the age of the oldest, and people who cannot be planned for."""

    due: int
    due_for: timedelta
    unplanned: int
    unplanned_for: timedelta
    unplannable: int


@dataclass(frozen=True, slots=True)
class ComingDay:
    """The planned events of one day in one time zone. `is_more`: more events are planned than were counted."""

    day: date
    timezone: str
    events: int
    is_more: bool


@dataclass(frozen=True, slots=True)
class PlanChange:
    """The number of events of a person that planning moved, skipped because they had begun, and added."""

    moved: int
    skipped: int
    added: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulePolicy:
    """The schedule settings of an installation, with the same defaults."""

    times: Mapping[str, time] = field(default_factory=dict)
    leap_day: LeapDay = LeapDay.MARCH_1
    max_lateness: Mapping[str, timedelta] = field(default_factory=dict)
    webhook_url: str | None = None  # for people without their own destination
    captures: bool = False  # without any destination: use the capture inbox instead of failing

    def time_of(self, kind: str) -> time:
        return self.times.get(kind, NINE)

    @property
    def basis(self) -> str:
        """The time zone version and settings that targets depend on; when it changes, everyone is planned again."""
        times = ",".join(f"{kind}={moment.isoformat()}" for kind, moment in sorted(self.times.items()))
        return f"tzdata={ZONE_VERSION};leap_day={self.leap_day};times={times}"
