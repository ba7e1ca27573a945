"""Compute the next event of an occasion: pure decisions over local time.

`upcoming` returns the event to plan for a person as stored now: the next future occurrence whose key is unused. A
planned event keeps its occurrence, although its time has passed, in three cases: the person moved east, where the hour
or the day is already over, so it is sent at once; it was due before the change (a name corrected during an outage); or
a corrected date makes it due today. `following` returns the occurrence after a claimed event, past or future, because
occurrences that fell due during an outage must not be skipped.
"""

from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from itertools import islice
from uuid import UUID

from postroom.runtime.zones import instant_of, local_at
from postroom.schedule.kinds import KINDS, Occurrence, OccurrenceInput, read_rule
from postroom.schedule.model import BIRTHDAY, KnownEvent, Occasion, Person, PlannedEvent, SchedulePolicy

_DAY = timedelta(days=1)
_FARTHEST_MOVE = timedelta(hours=27)
"""Zones differ by at most 26 hours (UTC-12 to UTC+14), plus one for a daylight saving change on that day."""
UNPLANNABLE = (Exception,)
"""Planning only computes, so any error is caused by the row, which SQL may have written; other rows are planned."""
_PATIENCE = 10_000
"""Limit of occurrences to try, more than any person has used; a rule without a new one among them has ended."""


@dataclass(frozen=True, slots=True)
class Subject:
    """The birthday (no occasion) or one occasion of a person."""

    user_id: UUID
    person: Person
    occasion: Occasion | None = None

    @property
    def kind_name(self) -> str:
        return self.occasion.kind if self.occasion else BIRTHDAY

    @property
    def key(self) -> tuple[str, UUID | None]:
        return self.kind_name, self.occasion.id if self.occasion else None

    @property
    def prefix(self) -> str:
        """The prefix of the keys of all its occurrences."""
        return f"{self.kind_name.lower()}:{self.occasion.id if self.occasion else self.user_id}:"


def upcoming(
    subject: Subject, policy: SchedulePolicy, *, now: datetime, used: AbstractSet[str], pending: KnownEvent | None
) -> PlannedEvent | None:
    """The event to plan now; `used` are the keys of begun events, `pending` is the planned event, if any."""
    today = local_at(now, subject.person.timezone).date()
    since = today - 2 * _DAY  # a move may put a target in the past; a gap at midnight can shift it by a day
    if pending is not None and pending.target_utc <= now:
        since = min(since, pending.target_local.date() - _DAY)
    for occurrence in islice(_occurrences(subject, policy, since), _PATIENCE):
        planned = _planned(subject, occurrence)
        if planned.idempotency_key in used:
            continue
        if _is_to_come(planned, occurrence, pending, now):
            return planned
    return None


def following(subject: Subject, policy: SchedulePolicy, *, after: datetime, key: str) -> PlannedEvent | None:
    """The occurrence after a claimed one, which is identified by its local time and key."""
    for occurrence in islice(_occurrences(subject, policy, after.date() - _DAY), _PATIENCE):
        planned = _planned(subject, occurrence)
        if planned.target_local > after and planned.idempotency_key != key:
            return planned
    return None


def moved(subject: Subject, pending: KnownEvent) -> PlannedEvent:
    """An event that an operator moved, recomputed for the person as stored now: the same local time in their zone."""
    return _event(subject, pending.target_local, pending.idempotency_key)


def _is_to_come(planned: PlannedEvent, occurrence: Occurrence, pending: KnownEvent | None, now: datetime) -> bool:
    """True if an occurrence must still be sent: its time is in the future, or it was planned and was due or moved.

    A move to another zone keeps the local day, and so does another time of day.
    """
    if pending is None or pending.idempotency_key != planned.idempotency_key:
        is_said_too_late = occurrence.is_origin and occurrence.local.date() == local_at(now, planned.timezone).date()
        return planned.target_utc > now and not is_said_too_late
    day = planned.target_local.date()
    if pending.target_local.date() == day:
        return pending.target_utc <= now or now - planned.target_utc <= _FARTHEST_MOVE
    # Another day means that the date was corrected: a day in the past is not sent.
    return planned.target_utc > now or day == local_at(now, planned.timezone).date()


def _occurrences(subject: Subject, policy: SchedulePolicy, since: date) -> Iterator[Occurrence]:
    rule = read_rule(subject.kind_name, subject.occasion.rule if subject.occasion else {})
    return KINDS[subject.kind_name].occurrences(OccurrenceInput(subject.person, rule, policy), since)


def _planned(subject: Subject, occurrence: Occurrence) -> PlannedEvent:
    return _event(subject, occurrence.local, f"{subject.prefix}{occurrence.label}")


def _event(subject: Subject, local: datetime, key: str) -> PlannedEvent:
    zone = subject.person.timezone
    target = instant_of(local, zone)
    kind, occasion_id = subject.key
    return PlannedEvent(
        user_id=subject.user_id,
        kind=kind,
        occasion_id=occasion_id,
        target_utc=target,
        target_local=local_at(target, zone),
        timezone=zone,
        idempotency_key=key,
        payload=_payload(subject),
    )


def _payload(subject: Subject) -> dict[str, str]:
    occasion = subject.occasion
    if occasion is not None and occasion.message.strip():
        return {"message": occasion.message}
    return {"message": KINDS[subject.kind_name].message(subject.person)}
