"""Local time: gaps move forward, overlaps take the first, verified by counting UTC minutes."""

import itertools
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import available_timezones

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from postroom.runtime.zones import UnknownZone, find_zone, instant_of, is_zone, local_at
from postroom.schedule.civil import LeapDay, day_in_month, day_in_year

MINUTE = timedelta(minutes=1)


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    "zone, local, instant",
    [
        ("Europe/London", "2026-12-10T09:00", "2026-12-10T09:00"),
        ("Europe/London", "2026-07-10T09:00", "2026-07-10T08:00"),
        ("America/New_York", "2024-03-10T02:30", "2024-03-10T07:30"),  # the gap: forward
        ("America/New_York", "2024-11-03T01:30", "2024-11-03T05:30"),  # the overlap: the first
        ("Pacific/Apia", "2011-12-30T09:00", "2011-12-30T19:00"),  # a skipped day: the next morning at nine
        ("Asia/Beirut", "2022-03-27T00:00", "2022-03-26T22:00"),  # midnight does not exist
        ("Africa/Cairo", "2023-04-28T00:00", "2023-04-27T22:00"),
        ("Asia/Kathmandu", "2026-01-01T09:00", "2026-01-01T03:15"),
        ("Australia/Lord_Howe", "2026-04-05T01:45", "2026-04-04T14:45"),  # half an hour twice
        ("Pacific/Kiritimati", "2026-01-01T09:00", "2025-12-31T19:00"),
        ("Etc/GMT+12", "2026-01-01T09:00", "2026-01-01T21:00"),
        ("UTC", "2026-01-01T09:00", "2026-01-01T09:00"),
    ],
)
def test_a_local_time_is_one_instant(zone: str, local: str, instant: str) -> None:
    """The rules of RFC 5545, case by case."""
    assert instant_of(datetime.fromisoformat(local), zone) == utc(instant)


@pytest.mark.parametrize(
    "zone, local, shown",
    [
        ("America/New_York", "2024-03-10T02:30", "2024-03-10T03:30"),
        ("Pacific/Apia", "2011-12-30T09:00", "2011-12-31T09:00"),
        ("Asia/Beirut", "2022-03-27T00:00", "2022-03-27T01:00"),
    ],
)
def test_after_a_gap_the_clock_shows_a_later_time(zone: str, local: str, shown: str) -> None:
    """A skipped local time is as much later as the clock jumped."""
    assert local_at(instant_of(datetime.fromisoformat(local), zone), zone) == datetime.fromisoformat(shown)


@pytest.mark.parametrize(
    "zone",
    [
        "EST",
        "EST5EDT",
        "Foo+3",
        "Etc/Foo+3",
        "GMT",
        "Mars/Base",
        "",
        "europe/london",
        "../etc/passwd",
        "Europe/../UTC",
        "Europe/London\n",
        "Europe",
        "right/UTC",
    ],
)
def test_invalid_zones_are_rejected(zone: str) -> None:
    """Only an existing `Area/City`, and UTC, are zones."""
    assert not is_zone(zone)
    with pytest.raises(UnknownZone):
        find_zone(zone)


@pytest.mark.parametrize(
    "zone", ["UTC", "Etc/UTC", "Europe/London", "America/Argentina/Buenos_Aires", "America/Port-au-Prince"]
)
def test_valid_zones_are_accepted(zone: str) -> None:
    """Names of two and three parts, also with a hyphen."""
    assert is_zone(zone)


@pytest.mark.parametrize(
    "day, year, leap_day, found",
    [
        ("2000-02-29", 2027, LeapDay.MARCH_1, "2027-03-01"),
        ("2000-02-29", 2027, LeapDay.FEBRUARY_28, "2027-02-28"),
        ("2000-02-29", 2028, LeapDay.MARCH_1, "2028-02-29"),
        ("2000-02-29", 2028, LeapDay.FEBRUARY_28, "2028-02-29"),
        ("2000-02-29", 2100, LeapDay.MARCH_1, "2100-03-01"),
        ("2000-03-01", 2027, LeapDay.FEBRUARY_28, "2027-03-01"),
    ],
)
def test_the_29th_of_february(day: str, year: int, leap_day: LeapDay, found: str) -> None:
    """In a leap year it is itself; in a common year the setting decides."""
    assert day_in_year(date.fromisoformat(day), year, leap_day) == date.fromisoformat(found)


@pytest.mark.parametrize(
    "day, month, found", [(31, 2, "2027-02-28"), (31, 4, "2027-04-30"), (31, 12, "2027-12-31"), (1, 6, "2027-06-01")]
)
def test_a_day_the_month_does_not_have(day: int, month: int, found: str) -> None:
    """The last day of a shorter month is used."""
    assert day_in_month(day, 2027, month) == date.fromisoformat(found)


ZONES = sorted(name for name in available_timezones() if is_zone(name))


def oracle(local: datetime, zone: str) -> datetime:
    """Brute force: the first UTC minute at which a local clock shows this; if skipped, later by the jump."""
    first = datetime.combine(local.date(), local.time(), UTC) - timedelta(hours=27)
    shown = [(moment, local_at(moment, zone)) for moment in (first + n * MINUTE for n in range(54 * 60))]
    for moment, clock in shown:
        if clock == local:
            return moment
    before, jumped = next(
        (moment, clock) for (moment, clock), (_, after) in itertools.pairwise(shown) if clock < local < after
    )
    return before + (local - jumped)


def _transitions() -> list[tuple[str, date]]:
    """Zones and days with a clock change, found by search."""
    found = []
    for zone in (
        "America/New_York",
        "Europe/London",
        "Asia/Beirut",
        "Africa/Cairo",
        "Australia/Lord_Howe",
        "Pacific/Apia",
        "America/Santiago",
        "Asia/Gaza",
        "Africa/Casablanca",
        "Antarctica/Troll",
        "Asia/Pyongyang",
    ):
        day = date(2010, 1, 1)
        while day < date(2026, 1, 1):
            noon = datetime.combine(day, time(12), UTC)
            if (
                noon.astimezone(find_zone(zone)).utcoffset()
                != (noon - timedelta(days=1)).astimezone(find_zone(zone)).utcoffset()
            ):
                found += [(zone, day - timedelta(days=1)), (zone, day)]
            day += timedelta(days=1)
    return found


minutes = st.integers(0, 24 * 60 - 1).map(lambda n: time(n // 60, n % 60))


@settings(max_examples=60)
@given(st.sampled_from(ZONES), st.dates(date(1975, 1, 1), date(2037, 12, 31)), minutes)
def test_any_zone_day_and_time_agrees_with_the_oracle(zone: str, day: date, at: time) -> None:
    """The conversion equals the result of counting minutes."""
    local = datetime.combine(day, at)
    assert instant_of(local, zone) == oracle(local, zone)


@settings(max_examples=80)
@given(st.sampled_from(_transitions()), minutes)
def test_days_on_which_clocks_move_agree_with_the_oracle(where: tuple[str, date], at: time) -> None:
    """The same on days with clock changes."""
    zone, day = where
    local = datetime.combine(day, at)
    assert instant_of(local, zone) == oracle(local, zone)
