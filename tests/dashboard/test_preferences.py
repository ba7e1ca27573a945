"""A viewer's preferences: time zone, colors and rows, kept in a cookie."""

from datetime import UTC, datetime, timedelta

import pytest
from tests.support.builders import a_mail, accepted
from tests.support.dashboard import open_guest, text_of

from postroom.dashboard.preferences import Viewer, read_viewer, zones
from postroom.db.room import Room


async def test_times_are_shown_in_the_chosen_zone(room: Room) -> None:
    """A zone of the list changes every time that is shown, the title names it, and the other preferences stay."""
    guest = await open_guest(room)
    [delivery_id] = await accepted(room.pool, a_mail(send_at=datetime(2030, 7, 1, 12, tzinfo=UTC)))
    assert "2030-07-01 12:00:00 UTC" in text_of(await guest.get(f"/deliveries/{delivery_id}"))
    saved = await guest.submit("/preferences", "/preferences", zone="Asia/Kolkata", back="/deliveries?status=queued")
    assert saved.headers["location"].startswith("/deliveries?status=queued&done=The+preferences")
    await guest.submit("/preferences", "/preferences", rows="dense", theme="dark")
    page = await guest.get(f"/deliveries/{delivery_id}")
    assert "2030-07-01 17:30:00 IST" in text_of(page)
    assert b'title="2030-07-01 17:30:00 Asia/Kolkata (UTC+05:30)"' in page.body
    assert b'<html lang="en" data-theme="dark" data-rows="dense">' in page.body


async def test_unknown_preferences_are_rejected(room: Room) -> None:
    """A value outside the lists is an error of the form, and is ignored in a cookie."""
    guest = await open_guest(room)
    for fields in [{"zone": "Mars/Base"}, {"zone": "../../etc"}, {"theme": "pink"}, {"rows": "<b>"}]:
        assert (fields, (await guest.submit("/preferences", "/preferences", **fields)).status) == (fields, 400)
    elsewhere = await guest.submit("/preferences", "/preferences", zone="UTC", back="//evil.example/")
    assert elsewhere.headers["location"].startswith("/?done=")


@pytest.mark.parametrize("cookie", [None, "", "zone=Mars/Base", "theme=pink&rows=9", "x" * 5000, "zone=%00", "=&=;"])
def test_an_invalid_cookie_means_the_defaults(cookie: str | None) -> None:
    """A cookie is input like any other."""
    assert read_viewer(cookie) == Viewer()


def test_every_listed_zone_can_be_chosen() -> None:
    """The list holds areas with a city, and UTC first."""
    assert zones()[0] == "UTC"
    assert {"Europe/Berlin", "America/Argentina/Buenos_Aires"} < set(zones())


async def test_sentences_in_addresses_are_sealed(room: Room) -> None:
    """The author of a link cannot make a page say something."""
    guest = await open_guest(room)
    for query in ["done=Pay+here", "done=Pay+here&seal=AAAAAAAAAAAAAAAA", "done=&seal="]:
        assert "Pay here" not in text_of(await guest.get(f"/deliveries?{query}"))


async def test_recent_times_are_relative(room: Room) -> None:
    """A list says how long ago; the exact time is in the title."""
    guest = await open_guest(room)
    [delivery_id] = await accepted(room.pool, a_mail())
    moment = datetime.now(UTC) - timedelta(hours=3, minutes=5)
    await room.pool.execute("UPDATE deliveries SET created_at = $2 WHERE id = $1", delivery_id, moment)
    page = await guest.get("/deliveries")
    assert "3 h ago" in text_of(page)
    assert f'title="{moment:%Y-%m-%d %H:%M:%S} UTC (UTC+00:00)"'.encode() in page.body
