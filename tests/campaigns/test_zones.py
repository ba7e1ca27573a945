"""Local time to instants."""

import zoneinfo
from datetime import UTC, datetime, time, timedelta

import pytest

from postroom.campaigns.zones import due_times, zone_named
from postroom.runtime.zones import next_local

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
def test_the_next_nine_in_the_morning_is_within_a_day(zone: str, expected: datetime) -> None:
    """Everywhere, at the first one that is not past."""
    found = next_local(time(9), zone, since=START)
    assert found == expected
    assert START <= found < START + timedelta(days=1)


def test_the_moment_itself_counts() -> None:
    """Nine o'clock at nine o'clock is now."""
    assert next_local(time(12), "UTC", since=START) == START


def test_a_time_the_clocks_skip_falls_as_much_later() -> None:
    """Berlin, 31 March 2030: half past two is half past three."""
    since = datetime(2030, 3, 30, 23, 30, tzinfo=UTC)
    assert next_local(time(2, 30), "Europe/Berlin", since=since) == datetime(2030, 3, 31, 1, 30, tzinfo=UTC)


def test_a_time_that_comes_twice_is_taken_the_first_time() -> None:
    """Berlin, 27 October 2030: half past two in summer time."""
    since = datetime(2030, 10, 26, 22, 30, tzinfo=UTC)
    assert next_local(time(2, 30), "Europe/Berlin", since=since) == datetime(2030, 10, 27, 0, 30, tzinfo=UTC)


def test_a_zone_nobody_knows_is_the_campaign_s() -> None:
    """And so is none."""
    assert [zone_named(name) for name in ("Moon/Base", "", "Europe/Rome")] == ["", "", "Europe/Rome"]
    due = due_times(["", "Asia/Tokyo"], local_time=time(9), own_zone="Asia/Tokyo", since=START)
    assert due[""] == due["Asia/Tokyo"]


def test_zones_come_from_the_package_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """The host's zones are not read, and abbreviations are no zones: all processes agree."""
    monkeypatch.setattr(zoneinfo, "TZPATH", ("/nowhere",))
    assert zone_named("Europe/Rome") == "Europe/Rome"
    assert (zone_named("EST"), zone_named("posixrules")) == ("", "")


def test_without_a_local_time_everybody_goes_at_once() -> None:
    """Whatever their zones."""
    assert set(due_times(["", "Asia/Tokyo"], local_time=None, own_zone="UTC", since=START).values()) == {START}
