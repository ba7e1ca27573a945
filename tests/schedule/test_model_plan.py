"""The next occurrence: creation, moves, outages, leap days and the other kinds, as tables."""

from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, date, datetime, time, timedelta
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from postroom.errors import BadInput
from postroom.runtime.zones import find_zone
from postroom.schedule.civil import LeapDay
from postroom.schedule.kinds import check_rule, read_rule
from postroom.schedule.model import KnownEvent, Occasion, Person, PlannedEvent, ScheduledEventStatus, SchedulePolicy
from postroom.schedule.plan import Subject, following, upcoming

ADA = UUID(int=1)
DEFAULT = SchedulePolicy()


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def birthday(born: str = "1990-11-15", zone: str = "Europe/London") -> Subject:
    person = Person(first_name="Ada", last_name="Lovelace", date_of_birth=date.fromisoformat(born), timezone=zone)
    return Subject(ADA, person)


def occasion(kind: str, rule: Mapping[str, Any], zone: str = "Europe/London") -> Subject:
    return Subject(
        ADA, birthday(zone=zone).person, Occasion(id=UUID(int=2), user_id=ADA, kind=kind, message="", rule=rule)
    )


def pending(planned: PlannedEvent) -> KnownEvent:
    return KnownEvent(
        **asdict(planned),
        id=UUID(int=9),
        status=ScheduledEventStatus.PENDING,
        version=1,
        moved_from=None,
        is_claimed_only=False,
    )


def plan(subject: Subject, now: str, policy: SchedulePolicy = DEFAULT, *, used: tuple[str, ...] = ()) -> PlannedEvent:
    planned = upcoming(subject, policy, now=utc(now), used=set(used), pending=None)
    assert planned is not None
    return planned


@pytest.mark.parametrize(
    "born, zone, now, target",
    [
        ("1990-11-20", "Europe/London", "2026-11-15T12:00", "2026-11-20T09:00"),
        ("1990-11-10", "Europe/London", "2026-11-15T12:00", "2027-11-10T09:00"),
        ("1990-11-15", "Europe/London", "2026-11-15T08:59:59", "2026-11-15T09:00"),  # created on the day, before nine
        ("1990-11-15", "Europe/London", "2026-11-15T09:00:00", "2027-11-15T09:00"),  # at nine
        ("1990-11-15", "Europe/London", "2026-11-15T09:00:01", "2027-11-15T09:00"),  # after
        ("1990-11-15", "Asia/Tokyo", "2026-11-14T23:59", "2026-11-15T00:00"),
        ("1990-11-15", "Asia/Tokyo", "2026-11-15T00:00", "2027-11-15T00:00"),
        ("1990-01-01", "Pacific/Kiritimati", "2025-12-31T18:59", "2025-12-31T19:00"),  # the new year starts there first
        ("1990-12-31", "Pacific/Pago_Pago", "2027-01-01T05:00", "2027-12-31T20:00"),  # 18:00 on the 31st, after nine
        ("1990-07-01", "Europe/London", "2026-11-15T12:00", "2027-07-01T08:00"),  # summer time by then
        ("1990-03-10", "Asia/Kathmandu", "2026-01-01T00:00", "2026-03-10T03:15"),
        ("2000-02-29", "UTC", "2026-01-01T00:00", "2026-03-01T09:00"),
        ("2000-02-29", "UTC", "2027-12-01T00:00", "2028-02-29T09:00"),
        ("1815-12-10", "Europe/London", "2026-11-15T12:00", "2026-12-10T09:00"),
    ],
)
def test_next_birthday_is_at_nine_local_time(born: str, zone: str, now: str, target: str) -> None:
    """The target is 09:00 local time on the next birthday; from nine on today it is next year's."""
    assert plan(birthday(born, zone), now).target_utc == utc(target)


def test_event_has_key_local_time_and_payload() -> None:
    """The key has person, kind and year; the local time has no zone; the payload has the name."""
    planned = plan(birthday("1990-11-20", "America/New_York"), "2026-11-15T12:00")
    assert planned.idempotency_key == f"birthday:{ADA}:2026"
    assert planned.target_local == datetime(2026, 11, 20, 9)  # noqa: DTZ001 - a wall clock
    assert planned.timezone == "America/New_York"
    assert planned.payload == {"message": "Hey, Ada Lovelace it's your birthday"}


def test_time_of_day_is_set_per_kind() -> None:
    """The setting defines the time of day; a time in a daylight saving gap moves forward."""
    policy = SchedulePolicy(times={"BIRTHDAY": time(2, 30)})
    planned = plan(birthday("1990-03-10", "America/New_York"), "2024-01-01T00:00", policy)
    assert planned.target_utc == utc("2024-03-10T07:30")
    assert planned.target_local == datetime(2024, 3, 10, 3, 30)  # noqa: DTZ001 - a wall clock


@pytest.mark.parametrize(
    "leap_day, targets",
    [
        (LeapDay.MARCH_1, ["2026-03-01", "2027-03-01", "2028-02-29", "2029-03-01"]),
        (LeapDay.FEBRUARY_28, ["2026-02-28", "2027-02-28", "2028-02-29", "2029-02-28"]),
    ],
)
def test_a_leap_day_is_computed_from_the_birth_every_year(leap_day: LeapDay, targets: list[str]) -> None:
    """A greeting on 1 March does not change later birthdays on 29 February."""
    subject, policy = birthday("2000-02-29", "UTC"), SchedulePolicy(leap_day=leap_day)
    planned = plan(subject, "2026-01-01T00:00", policy)
    found = [planned]
    for _ in targets[1:]:
        after = following(subject, policy, after=found[-1].target_local, key=found[-1].idempotency_key)
        assert after is not None
        found.append(after)
    assert [each.target_utc for each in found] == [utc(f"{target}T09:00") for target in targets]


@pytest.mark.parametrize(
    "name, before, after, now, used, target",
    [
        ("moved west, not yet sent", "Asia/Tokyo", "America/New_York", "2026-11-10T00:00", (), "2026-11-15T14:00"),
        (
            "moved east, nine is past there: now",
            "America/New_York",
            "Asia/Tokyo",
            "2026-11-15T05:00",
            (),
            "2026-11-15T00:00",
        ),
        (
            "moved east, the day is over there: now",
            "America/New_York",
            "Pacific/Kiritimati",
            "2026-11-15T13:30",
            (),
            "2026-11-14T19:00",
        ),
        ("greeted, then moved", "Asia/Tokyo", "America/New_York", "2026-11-15T02:00", ("2026",), "2027-11-15T14:00"),
        ("nothing moved", "Asia/Tokyo", "Asia/Tokyo", "2026-11-10T00:00", (), "2026-11-15T00:00"),
    ],
)
def test_a_move(name: str, before: str, after: str, now: str, used: tuple[str, ...], target: str) -> None:
    """A move keeps one greeting per year, also if the day is over in the new zone."""
    keys = tuple(f"birthday:{ADA}:{year}" for year in used)
    moment = utc(now)
    planned_at = moment if used else utc("2026-11-01T00:00")
    first = upcoming(birthday(zone=before), DEFAULT, now=planned_at, used=set(keys), pending=None)
    assert first is not None
    moved = upcoming(birthday(zone=after), DEFAULT, now=moment, used=set(keys), pending=pending(first))
    assert moved is not None, name
    assert moved.target_utc == utc(target), name


def test_created_after_nine_and_renamed_is_not_greeted_today() -> None:
    """A change on the birthday does not plan an occurrence that was past at creation."""
    first = plan(birthday(), "2026-11-15T10:00")
    again = upcoming(birthday(), DEFAULT, now=utc("2026-11-15T11:00"), used=set(), pending=pending(first))
    assert again == first
    assert again.target_utc == utc("2027-11-15T09:00")


def test_a_change_during_an_outage_keeps_what_is_due() -> None:
    """An event due yesterday and not sent stays due after a correction of the name."""
    first = plan(birthday(), "2026-11-01T00:00")
    again = upcoming(birthday(), DEFAULT, now=utc("2026-11-16T12:00"), used=set(), pending=pending(first))
    assert again == first


def test_a_corrected_birth_date_leaves_the_past_alone() -> None:
    """A date corrected to a past day is not sent this year."""
    first = plan(birthday(), "2026-11-01T00:00")
    moved = upcoming(birthday("1990-03-01"), DEFAULT, now=utc("2026-11-16T12:00"), used=set(), pending=pending(first))
    assert moved is not None
    assert moved.target_utc == utc("2027-03-01T09:00")


def test_a_corrected_birth_date_can_bring_this_year_s_forward() -> None:
    """A corrected date is greeted this year if this year's key is unused."""
    first = plan(birthday("1990-11-10"), "2026-11-15T00:00")
    moved = upcoming(birthday("1990-12-05"), DEFAULT, now=utc("2026-11-15T00:00"), used=set(), pending=pending(first))
    assert moved is not None
    assert moved.idempotency_key.endswith(":2026")
    used = {f"birthday:{ADA}:2026"}
    moved = upcoming(birthday("1990-12-05"), DEFAULT, now=utc("2026-11-15T00:00"), used=used, pending=pending(first))
    assert moved is not None
    assert moved.target_utc == utc("2027-12-05T09:00")


WANDERING = ["Pacific/Pago_Pago", "America/New_York", "UTC", "Asia/Kathmandu", "Pacific/Apia", "Pacific/Kiritimati"]
BIRTHDAYS = ["1990-11-15", "1990-01-01", "1990-12-31", "2000-02-29", "1990-03-29"]


@settings(max_examples=300)
@given(
    st.sampled_from(BIRTHDAYS),
    st.sampled_from([time(0), time(9), time(23, 59)]),
    st.lists(
        st.tuples(st.integers(2026, 2030), st.integers(-30 * 60, 54 * 60), st.sampled_from(WANDERING)), max_size=12
    ),
)
def test_moves_keep_one_greeting_per_year(born: str, at: time, moves: list[tuple[int, int, str]]) -> None:
    """Any sequence of moves around the birthday gives exactly one greeting per year."""
    policy = SchedulePolicy(times={"BIRTHDAY": at})
    greeted: list[str] = []
    event: PlannedEvent | None = plan(birthday(born, "UTC"), "2025-06-01T00:00", policy)
    zone = "UTC"
    day = date.fromisoformat(born)
    plans = [
        (datetime(year, day.month, min(day.day, 28), tzinfo=UTC) + timedelta(minutes=minutes), place)
        for year, minutes, place in moves
    ]
    for moment, place in [*sorted(plans), (utc("2031-06-01T00:00"), "UTC")]:
        while event is not None and event.target_utc <= moment:
            greeted.append(event.idempotency_key)
            event = following(birthday(born, zone), policy, after=event.target_local, key=event.idempotency_key)
        assert event is not None
        zone = place
        event = upcoming(birthday(born, zone), policy, now=moment, used=set(greeted), pending=pending(event))
    years = [int(key.rpartition(":")[2]) for key in greeted]
    assert years == list(range(years[0], years[-1] + 1))
    assert (years[0] <= 2026, years[-1] >= 2030) == (True, True)


@settings(max_examples=150)
@given(
    st.dates(date(1900, 1, 1), date(2025, 12, 31)),
    st.sampled_from(
        ["Europe/London", "America/New_York", "Asia/Kathmandu", "Pacific/Apia", "Pacific/Pago_Pago", "UTC"]
    ),
    st.datetimes(datetime(2026, 1, 1), datetime(2032, 12, 31)),  # noqa: DTZ001 - hypothesis needs naive bounds
)
def test_the_next_birthday_is_the_nearest_one(born: date, zone: str, moment: datetime) -> None:
    """The result equals a search over every day for the first birthday whose 09:00 is in the future."""
    now = moment.replace(tzinfo=UTC)
    planned = upcoming(birthday(born.isoformat(), zone), DEFAULT, now=now, used=set(), pending=None)
    day = now.astimezone(find_zone(zone)).date() - timedelta(days=1)
    while True:
        target = datetime.combine(day, time(9), find_zone(zone)).astimezone(UTC)
        is_leap_stand_in = (born.month, born.day) == (2, 29) and (day.month, day.day) == (3, 1) and (
            day - timedelta(days=1)
        ).day == 28  # fmt: skip
        is_birthday = (day.month, day.day) == (born.month, born.day) or is_leap_stand_in
        if target > now and is_birthday and day.year > born.year:
            break
        day += timedelta(days=1)
    assert planned is not None
    assert planned.target_utc == target


@pytest.mark.parametrize(
    "kind, rule, now, targets",
    [
        ("ANNIVERSARY", {"date": "2015-06-01"}, "2026-11-15T00:00", ["2027-06-01T08:00", "2028-06-01T08:00"]),
        (
            "ANNIVERSARY",
            {"date": "2015-01-10", "days_before": 14},
            "2026-11-15T00:00",
            ["2026-12-27T09:00", "2027-12-27T09:00"],
        ),
        ("REMINDER", {"at": "2026-12-24T18:00:00"}, "2026-11-15T00:00", ["2026-12-24T18:00"]),
        (
            "RECURRING",
            {"every": "day", "start": "2026-11-01", "at": "07:15:00"},
            "2026-11-15T08:00",
            ["2026-11-16T07:15", "2026-11-17T07:15"],
        ),
        (
            "RECURRING",
            {"every": "week", "start": "2026-11-01", "weekdays": ["mon", "thu"]},
            "2026-11-15T00:00",
            ["2026-11-16T09:00", "2026-11-19T09:00"],
        ),
        (
            "RECURRING",
            {"every": "week", "start": "2026-11-04"},
            "2026-11-15T00:00",
            ["2026-11-18T09:00", "2026-11-25T09:00"],
        ),
        (
            "RECURRING",
            {"every": "month", "start": "2026-01-01", "day": 31},
            "2026-11-15T00:00",
            ["2026-11-30T09:00", "2026-12-31T09:00", "2027-01-31T09:00", "2027-02-28T09:00"],
        ),
        (
            "ANNIVERSARY",
            {"date": "2027-05-01", "days_before": 30},
            "2026-11-15T00:00",
            ["2027-04-01T08:00", "2028-04-01T08:00"],
        ),
        ("ANNIVERSARY", {"date": "2026-11-16"}, "2026-11-15T00:00", ["2026-11-16T09:00", "2027-11-16T09:00"]),
        ("ANNIVERSARY", {"date": "2026-11-15"}, "2026-11-15T00:00", ["2027-11-15T09:00", "2028-11-15T09:00"]),
        ("RECURRING", {"every": "month", "start": "2026-11-20"}, "2026-11-15T00:00", ["2026-11-20T09:00"]),
        ("RECURRING", {"every": "day", "start": "2026-11-20", "at": "08:30"}, "2026-11-15T00:00", ["2026-11-20T08:30"]),
        ("REMINDER", {"at": "2026-12-24T18:00"}, "2026-11-15T00:00", ["2026-12-24T18:00"]),
        (
            "RECURRING",
            {"every": "month", "start": "0001-01-01", "until": "9999-12-31"},  # people write this for "always"
            "2026-11-15T00:00",
            ["2026-12-01T09:00", "2027-01-01T09:00"],
        ),
        (
            "RECURRING",
            {"every": "day", "start": "2026-11-20", "until": "2026-11-21"},
            "2026-11-15T00:00",
            ["2026-11-20T09:00", "2026-11-21T09:00"],
        ),
    ],
)
def test_the_other_kinds(kind: str, rule: dict[str, Any], now: str, targets: list[str]) -> None:
    """Anniversaries, days before, reminders and recurring messages have the expected targets."""
    subject = occasion(kind, rule)
    planned: PlannedEvent | None = plan(subject, now)
    found: list[datetime] = []
    while planned is not None and len(found) < len(targets) + 1:
        found.append(planned.target_utc)
        planned = following(subject, DEFAULT, after=planned.target_local, key=planned.idempotency_key)
    ends = kind == "REMINDER" or rule.get("until") == "2026-11-21"
    assert found[: len(targets)] == [utc(target) for target in targets]
    assert (len(found) == len(targets)) is ends


def test_anniversary_added_before_its_day_is_sent_on_it() -> None:
    """An anniversary planned before its first day stays planned when the person changes on that day."""
    subject = occasion("ANNIVERSARY", {"date": "2026-11-15"})
    first = plan(subject, "2026-11-10T00:00")
    again = upcoming(subject, DEFAULT, now=utc("2026-11-15T08:00"), used=set(), pending=pending(first))
    assert again == first
    assert first.target_utc == utc("2026-11-15T09:00")


@pytest.mark.parametrize(
    "kind, rule, field",
    [
        ("BIRTHDAY", {}, "kind"),
        ("RECURRING", {"every": "day", "start": "2026-01-01", "weekdays": ["mon"]}, "rule.weekdays"),
        ("RECURRING", {"every": "month", "start": "2026-01-01", "weekdays": ["mon"]}, "rule.weekdays"),
        ("RECURRING", {"every": "day", "start": "2026-01-01", "day": 3}, "rule.day"),
        ("RECURRING", {"every": "week", "start": "2026-01-01", "day": 3}, "rule.day"),
        ("RECURRING", {"every": "week", "start": "2026-01-02", "until": "2026-01-01"}, "rule.until"),
    ],
)
def test_contradictory_rule_is_rejected(kind: str, rule: dict[str, Any], field: str) -> None:
    """A new rule with contradictory fields is rejected; a stored one is still read."""
    with pytest.raises(BadInput) as caught:
        check_rule(kind, rule)
    assert [error.field for error in caught.value.errors] == [field]
    assert "BIRTHDAY" not in caught.value.errors[0].message
    read_rule(kind, rule)


def test_next_event_may_be_in_the_past() -> None:
    """After an outage of two days a daily message is planned for both days."""
    subject = occasion("RECURRING", {"every": "day", "start": "2026-11-01"})
    planned = plan(subject, "2026-11-10T00:00")
    after = following(subject, DEFAULT, after=planned.target_local, key=planned.idempotency_key)
    assert after is not None
    assert after.target_utc == utc("2026-11-11T09:00")


def test_a_reminder_in_the_past_is_not_planned() -> None:
    """A reminder in the past gives no event."""
    subject = occasion("REMINDER", {"at": "2026-01-01T09:00:00"})
    assert upcoming(subject, DEFAULT, now=utc("2026-11-15T00:00"), used=set(), pending=None) is None


@pytest.mark.parametrize(
    "kind, rule, field",
    [
        ("PARTY", {}, "kind"),
        ("ANNIVERSARY", {}, "rule"),
        ("ANNIVERSARY", {"date": "2015-06-01", "days_before": -1}, "rule"),
        ("REMINDER", {"at": "2026-12-24T18:00:00Z"}, "rule"),  # a local time has no zone
        ("REMINDER", {"at": "9999-12-31T23:59:00"}, "rule"),  # in some zones its UTC time exceeds the calendar
        ("RECURRING", {"every": "hour", "start": "2026-01-01"}, "rule"),
        ("RECURRING", {"every": "month", "start": "2026-01-01", "day": 32}, "rule"),
        ("BIRTHDAY", {"date": "2015-06-01"}, "rule"),
    ],
)
def test_rule_must_match_its_kind(kind: str, rule: dict[str, Any], field: str) -> None:
    """An invalid rule is rejected with its field."""
    with pytest.raises(BadInput) as caught:
        read_rule(kind, rule)
    assert [error.field for error in caught.value.errors] == [field]


def test_basis_has_everything_that_targets_depend_on() -> None:
    """Another time or leap day gives another basis."""
    bases = {
        SchedulePolicy().basis,
        SchedulePolicy(times={"BIRTHDAY": time(8)}).basis,
        SchedulePolicy(leap_day=LeapDay.FEBRUARY_28).basis,
    }
    assert len(bases) == 3
    assert all("tzdata=" in basis for basis in bases)
