"""The kinds of scheduled events. A new kind is a rule, a function and a line in `KINDS`.

A kind yields the local times of its occurrences from a day on, in order; the engine converts them to UTC and sends each
once, also after moves and outages. `label` identifies an occurrence: the year of a birthday, the day of a recurring
message. It is part of the idempotency key.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import MAXYEAR, date, datetime, time, timedelta
from typing import Annotated, Any, Literal

import msgspec

from postroom.errors import BadInput
from postroom.schedule.civil import day_in_month, day_in_year
from postroom.schedule.model import BIRTHDAY, Person, SchedulePolicy

_DAY = timedelta(days=1)  # a civil day, added to dates only
_TO_THE_MINUTE = re.compile(r"(?:\d{4}-\d\d-\d\d[Tt ])?\d\d:\d\d", re.ASCII)
_WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_LAST_DAY = date(MAXYEAR - 1, 1, 1)  # a year before MAXYEAR, so that date arithmetic does not overflow
_LAST_REMINDER = datetime(MAXYEAR, 12, 30)  # noqa: DTZ001 - a wall clock; later than this, some zones have no UTC


@dataclass(frozen=True, slots=True)
class Occurrence:
    """One occurrence: its label and its local time.

    `is_origin`: the anchor day itself, from which later years count. An anniversary that is added on its own anchor day
    is first sent a year later; one that was added before is also sent on the anchor day.
    """

    label: str
    local: datetime
    is_origin: bool = False


@dataclass(frozen=True, slots=True)
class OccurrenceInput:
    """The input of occurrences: the person, the parsed rule of the occasion, and the policy of the installation."""

    person: Person
    rule: Any
    policy: SchedulePolicy


class Rule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of rules; the rule of a birthday has no fields."""


class AnniversaryRule(Rule, frozen=True, kw_only=True):
    """Every year on this day, or `days_before` it; a day in the future is the first occurrence."""

    date: date
    days_before: Annotated[int, msgspec.Meta(ge=0, le=366)] = 0


class ReminderRule(Rule, frozen=True, kw_only=True):
    """Once, at this local time."""

    at: Annotated[datetime, msgspec.Meta(tz=False)]

    def __post_init__(self) -> None:
        if self.at >= _LAST_REMINDER:
            raise ValueError("`at` must be before 9999-12-30")


class RecurringRule(Rule, frozen=True, kw_only=True):
    """Repeatedly at a time of day: every day, on some weekdays, or on a day of the month (or its last)."""

    every: Literal["day", "week", "month"]
    start: date
    until: date | None = None
    at: Annotated[time, msgspec.Meta(tz=False)] | None = None
    weekdays: tuple[Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"], ...] = ()
    day: Annotated[int, msgspec.Meta(ge=1, le=31)] | None = None  # default: the day of `start`


Occurrences = Callable[[OccurrenceInput, date], Iterator[Occurrence]]
"""The occurrences on or after a local day, earliest first."""


def _birthdays(terms: OccurrenceInput, since: date) -> Iterator[Occurrence]:
    """Once a year on the day of birth."""
    born, policy = terms.person.date_of_birth, terms.policy
    return _yearly(born, 0, policy.time_of(BIRTHDAY), policy, max(since, date(born.year + 1, 1, 1)))


def _anniversaries(terms: OccurrenceInput, since: date) -> Iterator[Occurrence]:
    """Once a year on a day, such as the renewal of a contract or the first day at work."""
    rule, policy = terms.rule, terms.policy
    return _yearly(rule.date, rule.days_before, policy.time_of("ANNIVERSARY"), policy, since)


def _reminders(terms: OccurrenceInput, since: date) -> Iterator[Occurrence]:
    """Once, at a local time."""
    at: datetime = terms.rule.at
    if at.date() >= since:
        yield Occurrence("once", at)


def _repetitions(terms: OccurrenceInput, since: date) -> Iterator[Occurrence]:
    """Repeated by a rule, without end or until a day."""
    rule: RecurringRule = terms.rule
    at = rule.at or terms.policy.time_of("RECURRING")
    for day in _days(rule, max(rule.start, since)):
        if rule.until is not None and day > rule.until:
            return
        yield Occurrence(day.isoformat(), datetime.combine(day, at))


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of occasion: its rule, its occurrences, its default message, and its default mail template, if any."""

    rule: type[Rule]
    occurrences: Occurrences
    words: str
    template: str | None = None

    def message(self, person: Person) -> str:
        return f"Hey, {person.name} {self.words}"


KINDS = {
    "ANNIVERSARY": Kind(AnniversaryRule, _anniversaries, "it's your anniversary"),
    BIRTHDAY: Kind(Rule, _birthdays, "it's your birthday", template="birthday"),
    "RECURRING": Kind(RecurringRule, _repetitions, "here is your reminder"),
    "REMINDER": Kind(ReminderRule, _reminders, "here is your reminder"),
}


OCCASIONS = tuple(kind for kind in KINDS if kind != BIRTHDAY)
"""The kinds that can be added to a person; everyone has the birthday already."""


def read_rule(kind: str, rule: Any) -> Any:
    """Parse the rule of a kind; raises `BadInput` with the invalid field."""
    if kind not in KINDS:
        raise BadInput.of("kind", f"must be one of {', '.join(OCCASIONS)}")
    try:
        return msgspec.convert(_with_seconds(rule), KINDS[kind].rule)
    except msgspec.ValidationError as error:
        raise BadInput.of("rule", str(error)) from error


def check_rule(kind: str, rule: Mapping[str, Any]) -> None:
    """Raise `BadInput` for a new rule with fields that contradict each other; stored rules are not checked."""
    if kind == BIRTHDAY:
        raise BadInput.of("kind", f"must be one of {', '.join(OCCASIONS)}; the birthday follows from date_of_birth")
    read = read_rule(kind, rule)
    if not isinstance(read, RecurringRule):
        return
    if read.weekdays and read.every != "week":
        raise BadInput.of("rule.weekdays", "is allowed only with every: week")
    if read.day is not None and read.every != "month":
        raise BadInput.of("rule.day", "is allowed only with every: month")
    if read.until is not None and read.until < read.start:
        raise BadInput.of("rule.until", "is before start")


def never_fires(kind: str, rule: Mapping[str, Any]) -> BadInput:
    """The error for a rule without a future occurrence."""
    if kind == "RECURRING":
        field = "until" if rule.get("until") else "start"
    else:
        field = "at" if kind == "REMINDER" else "date"
    return BadInput.of(f"rule.{field}", "gives no future occurrence; use a later time, before the year 9998")


def _with_seconds(rule: Any) -> Any:
    """Add seconds to an `at` such as 09:00, which msgspec does not accept."""
    at = rule.get("at") if isinstance(rule, Mapping) else None
    if not isinstance(at, str) or _TO_THE_MINUTE.fullmatch(at) is None:
        return rule
    return {**rule, "at": f"{at}:00"}


def _yearly(anchor: date, days_before: int, at: time, policy: SchedulePolicy, since: date) -> Iterator[Occurrence]:
    """The day of the anchor in its own and each later year; the label is that year."""
    for year in range(max(anchor.year, since.year), _LAST_DAY.year):
        day = day_in_year(anchor, year, policy.leap_day) - timedelta(days=days_before)
        if day >= since:
            yield Occurrence(str(year), datetime.combine(day, at), is_origin=day == anchor)


def _days(rule: RecurringRule, since: date) -> Iterator[date]:
    if rule.every == "month":
        yield from _monthly(rule.day or rule.start.day, since)
        return
    wanted = {_WEEKDAYS.index(name) for name in rule.weekdays} or {rule.start.weekday()}
    day = since
    while day < _LAST_DAY:
        if rule.every == "day" or day.weekday() in wanted:
            yield day
        day += _DAY


def _monthly(day: int, since: date) -> Iterator[date]:
    year, month = since.year, since.month
    while year < _LAST_DAY.year:
        found = day_in_month(day, year, month)
        if found >= since:
            yield found
        year, month = year + month // 12, month % 12 + 1
