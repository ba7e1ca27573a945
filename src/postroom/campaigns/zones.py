"""When it is a given time of day somewhere. Pure; the only place in campaigns that turns local time into instants."""

from collections.abc import Iterable
from datetime import UTC, datetime, time, timedelta
from functools import cache
from zoneinfo import ZoneInfo, available_timezones

OWN_ZONE = ""
"""Stands for the campaign's zone: whoever brings none, or none that exists."""


@cache
def known_zones() -> frozenset[str]:
    return frozenset(available_timezones())


def zone_named(written: str) -> str:
    """The zone somebody wrote, or the campaign's own if there is none of that name."""
    return written if written in known_zones() else OWN_ZONE


def next_local(local_time: time, time_zone: str, *, since: datetime) -> datetime:
    """The first instant from `since` on at which clocks there show `local_time`.

    A time that the clocks skip is taken as if they had not yet been moved, so it falls as much later as they jump; one
    that comes twice is taken the first time.
    """
    zone = ZoneInfo(time_zone)
    day = since.astimezone(zone).date() - timedelta(days=1)
    while True:
        moment = datetime.combine(day, local_time, zone).astimezone(UTC)
        if moment >= since:
            return moment
        day += timedelta(days=1)


def due_times(
    time_zones: Iterable[str], *, local_time: time | None, own_zone: str, since: datetime
) -> dict[str, datetime]:
    """When each zone has its turn: all at once, or each at its own time of day."""
    if local_time is None:
        return dict.fromkeys(time_zones, since)
    return {name: next_local(local_time, name or own_zone, since=since) for name in time_zones}
