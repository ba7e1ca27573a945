"""Conversion between local time and instants. The only module that does it.

The rules follow RFC 5545. A local time that a clock skips (a gap) is read with the offset before the gap, so it
is as much later as the clock jumps; a local time that a clock shows twice (an overlap) is the first of the two. A day
that a zone skipped is a long gap, and its morning is the next day's. Zones come from the package `tzdata` only, never
from the host, so that all processes with the same packages agree.

PostgreSQL's AT TIME ZONE takes the later of two, so no statement converts times.
"""

import re
from datetime import UTC, datetime, time, timedelta
from functools import lru_cache
from importlib.resources import files
from zoneinfo import ZoneInfo

import tzdata  # type: ignore[import-untyped]  # only data

ZONE_VERSION: str = tzdata.IANA_VERSION

_ZONE = re.compile(r"UTC|Etc/GMT[+-][0-9]{1,2}|[A-Z][A-Za-z_]*(?:/[A-Z][A-Za-z_-]*){1,2}")


class UnknownZone(ValueError):  # noqa: N818 - a condition, like the leaves of errors.py
    """There is no such time zone."""


@lru_cache(maxsize=1024)
def find_zone(name: str) -> ZoneInfo:
    """The zone `Area/City` or `UTC`; abbreviations and offsets such as EST or Foo+3 are rejected."""
    if _ZONE.fullmatch(name) is None:
        raise UnknownZone(name)
    path = files("tzdata.zoneinfo").joinpath(*name.split("/"))
    try:
        with path.open("rb") as file:
            return ZoneInfo.from_file(file, key=name)
    except (OSError, ValueError) as error:
        raise UnknownZone(name) from error


@lru_cache(maxsize=1024)  # unknown names too: a file may repeat one in every line
def is_zone(name: str) -> bool:
    try:
        find_zone(name)
    except UnknownZone:
        return False
    return True


def instant_of(local: datetime, zone: str) -> datetime:
    """The instant, in UTC, of a local time in the zone; see the rules above."""
    # fold=0 implements both rules: the offset before a gap, the first of an overlap.
    return local.replace(tzinfo=find_zone(zone), fold=0).astimezone(UTC)


def local_at(moment: datetime, zone: str) -> datetime:
    """The local time in the zone at an instant, without tzinfo."""
    return moment.astimezone(find_zone(zone)).replace(tzinfo=None, fold=0)


def next_local(local_time: time, zone: str, *, since: datetime) -> datetime:
    """The first instant from `since` on at which the local time in the zone is `local_time`; see the rules above."""
    day = local_at(since, zone).date() - timedelta(days=1)
    while (moment := instant_of(datetime.combine(day, local_time), zone)) < since:
        day += timedelta(days=1)
    return moment
