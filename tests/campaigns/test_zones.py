"""Conversion of local times to instants."""

import zoneinfo
from datetime import UTC, datetime, time, timedelta

import pytest

from postroom.campaigns.zones import due_times
from postroom.runtime.zones import is_zone, next_local

START = datetime(2030, 6, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    "zone, expected",
    [
        ("UTC", datetime(2030, 6, 2, 9, tzinfo=UTC)),
        ("Asia/Tokyo", datetime(2030, 6, 2, 0, tzinfo=UTC)),
        ("America/New_York", datetime(2030, 6, 1, 13, tzinfo=UTC)),
        ("Pacific/Kiritimati", datetime(2030, 6, 1, 19, tzinfo=UTC)),
        ("Pacific/Pago_Pago", datetime(2030, 6, 1, 20, tzinfo=UTC)),
        ("Asia/Kathmandu", datetime(2030, 6, 2, 3, 15, tzinfo=UTC)),
    ],
)
def test_next_local_time_is_within_a_day(zone: str, expected: datetime) -> None:
    """In every zone the next 09:00 is within a day and not in the past."""
    found = next_local(time(9), zone, since=START)
    assert found == expected
    assert START <= found < START + timedelta(days=1)


def test_current_moment_is_due() -> None:
    """09:00 at 09:00 is due now."""
    assert next_local(time(12), "UTC", since=START) == START


def test_time_skipped_by_daylight_saving_moves_later() -> None:
    """Berlin, 31 March 2030: 02:30 becomes 03:30."""
    since = datetime(2030, 3, 30, 23, 30, tzinfo=UTC)
    assert next_local(time(2, 30), "Europe/Berlin", since=since) == datetime(2030, 3, 31, 1, 30, tzinfo=UTC)


def test_repeated_local_time_uses_the_first() -> None:
    """Berlin, 27 October 2030: 02:30 is in summer time."""
    since = datetime(2030, 10, 26, 22, 30, tzinfo=UTC)
    assert next_local(time(2, 30), "Europe/Berlin", since=since) == datetime(2030, 10, 27, 0, 30, tzinfo=UTC)


def test_recipient_without_a_zone_uses_the_campaigns() -> None:
    """An empty zone is due with the campaign's own."""
    due = due_times(["", "Asia/Tokyo"], local_time=time(9), own_zone="Asia/Tokyo", since=START)
    assert due[""] == due["Asia/Tokyo"]


def test_zones_come_from_the_package_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Zones of the host and abbreviations are ignored, so that all processes agree."""
    monkeypatch.setattr(zoneinfo, "TZPATH", ("/nowhere",))
    assert [is_zone(name) for name in ("Europe/Rome", "EST", "posixrules")] == [True, False, False]


def test_without_a_local_time_all_zones_are_due_at_once() -> None:
    """Without a local time, all zones have the same due time."""
    assert set(due_times(["", "Asia/Tokyo"], local_time=None, own_zone="UTC", since=START).values()) == {START}
