"""When the next event of an occasion is due: pure decisions over civil time.

Two questions. `upcoming`: given a person as they are now, what should be planned? The next occurrence whose time is
still to come, skipping those that were already used. An event that is planned already keeps its occurrence in three
cases even though its time has passed: when a move brought it there (somebody moved east, where the hour or even the day
is over, and nothing was sent, so it goes out now), when it was due before the change (an outage, and a name corrected
meanwhile), and when a corrected date makes it today's. `following`: an event has been claimed, what comes after it? The
very next occurrence, past or not, because what fell due during an outage must not be skipped.
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
"""No two places have clocks farther apart, with an hour to spare for one that changes on that day."""
UNPLANNABLE = (Exception,)
"""Planning only computes, so any error is about the row, which plain SQL may have written; the others are
planned."""
_PATIENCE = 10_000
"""More occurrences than anybody has used: a rule that yields nothing new after these is over."""


@dataclass(frozen=True, slots=True)
class Subject:
    """One thing to plan for one person: the birthday (no occasion) or an occasion of theirs."""

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
        """What the keys of all its occurrences begin with."""
        return f"{self.kind_name.lower()}:{self.occasion.id if self.occasion else self.user_id}:"


def upcoming(
    subject: Subject, policy: SchedulePolicy, *, now: datetime, used: AbstractSet[str], pending: KnownEvent | None
) -> PlannedEvent | None:
    """What should be planned now; `used` are the keys of what was begun, `pending` the event planned so far."""
    today = local_at(now, subject.person.timezone).date()
    since = today - 2 * _DAY  # what a move brought past its time; a gap at midnight can make it the next day's
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
    """The occurrence after one that was claimed, known by its local time and its key."""
    for occurrence in islice(_occurrences(subject, policy, after.date() - _DAY), _PATIENCE):
        planned = _planned(subject, occurrence)
        if planned.target_local > after and planned.idempotency_key != key:
            return planned
    return None


def moved(subject: Subject, pending: KnownEvent) -> PlannedEvent:
    """An event that was moved by hand, for the person as they are now: the same local time, on the person's clock."""
    kind, zone = subject.kind_name, subject.person.timezone
    target = instant_of(pending.target_local, zone)
    return PlannedEvent(
        user_id=subject.user_id,
        kind=kind,
        occasion_id=pending.occasion_id,
        target_utc=target,
        target_local=local_at(target, zone),
        timezone=zone,
        idempotency_key=pending.idempotency_key,
        payload=_payload(subject),
    )


def _is_to_come(planned: PlannedEvent, occurrence: Occurrence, pending: KnownEvent | None, now: datetime) -> bool:
    """True if an occurrence is still to be sent: its time has not come, or it was planned and was due or moved.

    A move leaves the day what it was, and so do other times of day.
    """
    if pending is None or pending.idempotency_key != planned.idempotency_key:
        is_said_too_late = occurrence.is_origin and occurrence.local.date() == local_at(now, planned.timezone).date()
        return planned.target_utc > now and not is_said_too_late
    day = planned.target_local.date()
    if pending.target_local.date() == day:
        return pending.target_utc <= now or now - planned.target_utc <= _FARTHEST_MOVE
    # Another day, so somebody corrected it: a day that is over there is not made up for.
    return planned.target_utc > now or day == local_at(now, planned.timezone).date()


def _occurrences(subject: Subject, policy: SchedulePolicy, since: date) -> Iterator[Occurrence]:
    rule = read_rule(subject.kind_name, subject.occasion.rule if subject.occasion else {})
    return KINDS[subject.kind_name].occurrences(OccurrenceInput(subject.person, rule, policy), since)


def _planned(subject: Subject, occurrence: Occurrence) -> PlannedEvent:
    kind, occasion, zone = subject.kind_name, subject.occasion, subject.person.timezone
    target = instant_of(occurrence.local, zone)
    return PlannedEvent(
        user_id=subject.user_id,
        kind=kind,
        occasion_id=occasion.id if occasion else None,
        target_utc=target,
        target_local=local_at(target, zone),
        timezone=zone,
        idempotency_key=f"{subject.prefix}{occurrence.label}",
        payload=_payload(subject),
    )


def _payload(subject: Subject) -> dict[str, str]:
    occasion = subject.occasion
    if occasion is not None and occasion.message.strip():
        return {"message": occasion.message}
    return {"message": KINDS[subject.kind_name].message(subject.person)}
