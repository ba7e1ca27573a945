"""Due times of a campaign's time zones. Pure."""

from collections.abc import Iterable
from datetime import datetime, time

from postroom.runtime.zones import next_local

OWN_ZONE = ""
"""The campaign's own zone, for recipients without a zone."""


def due_times(
    time_zones: Iterable[str], *, local_time: time | None, own_zone: str, since: datetime
) -> dict[str, datetime]:
    """The due time of each zone: the same for all, or a local time of day."""
    if local_time is None:
        return dict.fromkeys(time_zones, since)
    return {name: next_local(local_time, name or own_zone, since=since) for name in time_zones}
