"""Civil time: what somebody's clock and calendar say, and which instant that is. The one place that converts.

The rules are those of RFC 5545. A local time that a clock skips (a gap) is read with the offset before the gap, so it
falls as much later as the clock jumped; a local time that a clock shows twice (an overlap) is the first of the two. A
day that a zone left out altogether is a long gap, and its morning is the next day's. Zones come from the package
`tzdata` and from nowhere else, so that every process with the same packages agrees, and one version tells them all.

PostgreSQL would decide otherwise (AT TIME ZONE takes the later of two), and so converts nothing here.
"""

import re
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from importlib.resources import files
from zoneinfo import ZoneInfo

import tzdata  # type: ignore[import-untyped]

ZONE_VERSION: str = tzdata.IANA_VERSION

_ZONE = re.compile(r"UTC|Etc/GMT[+-][0-9]{1,2}|[A-Z][A-Za-z_]*(?:/[A-Z][A-Za-z_-]*){1,2}")


class LeapDay(StrEnum):
    """When somebody born on 29 February has a birthday in a common year."""

    MARCH_1 = "mar1"
    FEBRUARY_28 = "feb28"


class UnknownZone(ValueError):  # noqa: N818 - a condition, like the leaves of errors.py
    """There is no such time zone."""


@lru_cache(maxsize=1024)
def find_zone(name: str) -> ZoneInfo:
    """The zone `Area/City` or `UTC`; abbreviations and offsets such as EST or Foo+3 are no place and refused."""
    if _ZONE.fullmatch(name) is None:
        raise UnknownZone(name)
    path = files("tzdata.zoneinfo").joinpath(*name.split("/"))
    try:
        with path.open("rb") as file:
            return ZoneInfo.from_file(file, key=name)
    except (OSError, ValueError) as error:
        raise UnknownZone(name) from error


def is_zone(name: str) -> bool:
    try:
        find_zone(name)
    except UnknownZone:
        return False
    return True


def instant_of(local: datetime, zone: str) -> datetime:
    """The instant, in UTC, at which a clock in the zone shows this local time; see the rules above."""
    # fold=0 is both rules at once: the offset before a gap, the first of an overlap.
    return local.replace(tzinfo=find_zone(zone), fold=0).astimezone(UTC)


def local_at(moment: datetime, zone: str) -> datetime:
    """What a clock in the zone shows at an instant, without a zone."""
    return moment.astimezone(find_zone(zone)).replace(tzinfo=None, fold=0)


def day_in_year(day: date, year: int, leap_day: LeapDay) -> date:
    """The same day in another year. Always from the original day, never from last year's."""
    try:
        return day.replace(year=year)
    except ValueError:  # 29 February in a common year
        return date(year, 3, 1) if leap_day is LeapDay.MARCH_1 else date(year, 2, 28)


def day_in_month(day: int, year: int, month: int) -> date:
    """That day of a month, or the month's last if it is shorter."""
    following = date(year + month // 12, month % 12 + 1, 1)
    return min(date(year, month, 1) + timedelta(days=day - 1), following - timedelta(days=1))
