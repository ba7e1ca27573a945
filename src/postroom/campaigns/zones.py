"""When each time zone of a campaign is due. Pure."""

from collections.abc import Iterable
from datetime import datetime, time

from postroom.runtime.zones import is_zone, next_local

OWN_ZONE = ""
"""Stands for the campaign's zone: that of recipients without a zone, or with an unknown one."""


def zone_named(written: str) -> str:
    """The zone of this name, or the campaign's own if there is none."""
    return written if is_zone(written) else OWN_ZONE


def due_times(
    time_zones: Iterable[str], *, local_time: time | None, own_zone: str, since: datetime
) -> dict[str, datetime]:
    """When each zone is due: all at once, or each at its own time of day."""
    if local_time is None:
        return dict.fromkeys(time_zones, since)
    return {name: next_local(local_time, name or own_zone, since=since) for name in time_zones}
