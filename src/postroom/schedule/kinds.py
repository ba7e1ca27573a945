"""The kinds of things that fall due on somebody's clock. A new kind is one small class and a line in `KINDS`.

A kind says on which local times it occurs, from a day on, in order; the engine turns them into instants, keeps the
promise of once per occurrence, and survives moves and outages. `label` names an occurrence for good: the year of a
birthday, the day of a reminder. It goes into the idempotency key.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import MAXYEAR, date, datetime, time, timedelta
from typing import Annotated, Any, Literal, Protocol

import msgspec

from postroom.errors import BadInput
from postroom.schedule.civil import day_in_month, day_in_year
from postroom.schedule.model import BIRTHDAY, Person, Policy

_DAY = timedelta(days=1)
_WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_LAST_DAY = date(MAXYEAR - 1, 1, 1)  # beyond it neither calendars nor PostgreSQL's clients are of use
_LAST_REMINDER = datetime(MAXYEAR, 12, 30)  # noqa: DTZ001 - a wall clock; later than this, some zones have no UTC


@dataclass(frozen=True, slots=True)
class Occurrence:
    """One firing: its name, the day it belongs to, and the local time at which it is to fire."""

    label: str
    day: date
    local: datetime


@dataclass(frozen=True, slots=True)
class Terms:
    """What occurrences follow from: the person, the occasion's rule as its kind reads it, the installation's policy."""

    person: Person
    rule: Any
    policy: Policy


class Kind(Protocol):
    """One kind of occasion. `rule` is the class of its rule, `template` the mail it is sent with, if it has one."""

    @property
    def rule(self) -> Any: ...
    @property
    def template(self) -> str | None: ...

    def occurrences(self, terms: Terms, since: date) -> Iterator[Occurrence]:
        """The firings on or after a local day, earliest first."""

    def message(self, person: Person) -> str:
        """What is said when the occasion itself does not say it."""


class Rule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The base of rules; a birthday needs no more."""


class AnniversaryRule(Rule, frozen=True, kw_only=True):
    """Every year on this day, or so many days before it."""

    date: date
    days_before: Annotated[int, msgspec.Meta(ge=0, le=366)] = 0


class ReminderRule(Rule, frozen=True, kw_only=True):
    """Once, when the person's clock shows this."""

    at: Annotated[datetime, msgspec.Meta(tz=False)]

    def __post_init__(self) -> None:
        if self.at >= _LAST_REMINDER:
            raise ValueError("`at` is beyond the calendar")


class RecurringRule(Rule, frozen=True, kw_only=True):
    """Again and again at a time of day: every day, on some weekdays, or on a day of the month (or its last)."""

    every: Literal["day", "week", "month"]
    start: date
    until: date | None = None
    at: Annotated[time, msgspec.Meta(tz=False)] | None = None
    weekdays: tuple[Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"], ...] = ()
    day: Annotated[int, msgspec.Meta(ge=1, le=31)] = 1


class Birthday:
    """Once a year on the day of birth."""

    rule = Rule
    template = "birthday"

    def occurrences(self, terms: Terms, since: date) -> Iterator[Occurrence]:
        policy = terms.policy
        return _yearly(terms.person.date_of_birth, 0, policy.time_of(BIRTHDAY), policy, since)

    def message(self, person: Person) -> str:
        return f"Hey, {person.name} it's your birthday"


class Anniversary:
    """Once a year on a day that matters: a contract's renewal, a first day at work."""

    rule = AnniversaryRule
    template = None

    def occurrences(self, terms: Terms, since: date) -> Iterator[Occurrence]:
        rule, policy = terms.rule, terms.policy
        return _yearly(rule.date, rule.days_before, policy.time_of("ANNIVERSARY"), policy, since)

    def message(self, person: Person) -> str:
        return f"Hey, {person.name} it's your anniversary"


class Reminder:
    """Once."""

    rule = ReminderRule
    template = None

    def occurrences(self, terms: Terms, since: date) -> Iterator[Occurrence]:
        at: datetime = terms.rule.at
        if at.date() >= since:
            yield Occurrence("once", at.date(), at)

    def message(self, person: Person) -> str:
        return f"Hey, {person.name} here is your reminder"


class Recurring:
    """By a rule, without end or until a day."""

    rule = RecurringRule
    template = None

    def occurrences(self, terms: Terms, since: date) -> Iterator[Occurrence]:
        rule: RecurringRule = terms.rule
        at = rule.at or terms.policy.time_of("RECURRING")
        for day in _days(rule, max(rule.start, since)):
            if rule.until is not None and day > rule.until:
                return
            yield Occurrence(day.isoformat(), day, datetime.combine(day, at))

    def message(self, person: Person) -> str:
        return f"Hey, {person.name} here is your reminder"


KINDS: dict[str, Kind] = {
    "ANNIVERSARY": Anniversary(),
    BIRTHDAY: Birthday(),
    "RECURRING": Recurring(),
    "REMINDER": Reminder(),
}


def read_rule(kind: str, rule: Any) -> Any:
    """A stored or given rule as its kind understands it; raises `BadInput` naming the field."""
    if kind not in KINDS:
        raise BadInput.of("kind", f"must be one of {', '.join(sorted(KINDS))}")
    try:
        return msgspec.convert(rule, KINDS[kind].rule)
    except msgspec.ValidationError as error:
        raise BadInput.of("rule", str(error)) from error


def _yearly(anchor: date, days_before: int, at: time, policy: Policy, since: date) -> Iterator[Occurrence]:
    """From the anchor's day in each year, first the year after it; named by the year of the day itself."""
    for year in range(max(anchor.year + 1, since.year), _LAST_DAY.year):
        day = day_in_year(anchor, year, policy.leap_day) - timedelta(days=days_before)
        if day >= since:
            yield Occurrence(str(year), day, datetime.combine(day, at))


def _days(rule: RecurringRule, since: date) -> Iterator[date]:
    if rule.every == "month":
        yield from _monthly(rule.day, since)
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
