"""People in the dashboard: create, edit, occasions, and the scopes that they need."""

from datetime import UTC, datetime, timedelta

import pytest
from tests.support.dashboard import Guest, hidden_fields, open_guest, text_of
from tests.support.schedule import person

from postroom.db.room import Room
from postroom.schedule import service
from postroom.schedule.model import SchedulePolicy

ADA = {
    "first_name": "Ada",
    "last_name": "Lovelace",
    "date_of_birth": "1990-12-10",
    "timezone": "Europe/London",
    "email": "ada@example.org",
}


@pytest.fixture
async def guest(room: Room) -> Guest:
    return await open_guest(room)


async def actions_of(room: Room) -> list[tuple[str, str]]:
    rows = await room.pool.fetch(
        "SELECT action, after::text FROM audit_log WHERE action LIKE 'user.%' OR action LIKE 'occasion.%' ORDER BY id"
    )
    return [(row["action"], row["after"] or "") for row in rows]


async def created(guest: Guest) -> str:
    """The page of a person whom the form has created."""
    done = await guest.submit("/people/new", "/people/new", **ADA)
    return done.headers["location"].partition("?")[0]


async def test_a_person_is_created_and_edited(room: Room, guest: Guest) -> None:
    """Wrong fields keep the form; an edit moves planned messages; a form of an older version changes nothing."""
    wrong = await guest.submit("/people/new", "/people/new", **{**ADA, "timezone": "Europe/Atlantis"})
    assert (wrong.status, "Europe/Atlantis" in wrong.body.decode(), "timezone:" in text_of(wrong)) == (400, True, True)
    assert (await guest.submit("/people/new", "/people/new", **{**ADA, "date_of_birth": "soon"})).status == 400
    assert '<option value="Asia/Tokyo">' in (await guest.get("/people/new")).body.decode()
    path = await created(guest)
    assert "Europe/London" in text_of(await guest.get(path))
    stale = hidden_fields(await guest.get(f"{path}/edit"))
    moved = {**ADA, "timezone": "Asia/Tokyo", "locale": "fr"}
    done = await guest.post(f"{path}/edit", {**stale, **moved})
    assert "The person is saved; 1 planned message moved." in text_of(await guest.get(done.headers["location"]))
    assert (await guest.post(f"{path}/edit", {**stale, **ADA})).status == 409
    assert "Asia/Tokyo" in text_of(await guest.get(path))
    assert await actions_of(room) == [("user.create", ""), ("user.update", '{"fields": ["locale", "timezone"]}')]


async def test_occasions_are_added_and_removed(room: Room, guest: Guest) -> None:
    """Each kind has the fields of its rule; the page of the person shows what is planned."""
    path = await created(guest)
    new = f"{path}/occasions/new"
    day = datetime.now(UTC).date() + timedelta(days=9)
    rules = (
        ("reminder", {"at": f"{day}T09:30", "message": "Renew the pass"}),
        ("anniversary", {"date": f"{day}", "days_before": "2", "message": "Five years"}),
        ("recurring", {"every": "week", "start": f"{day}", "weekdays": "Mon, thu", "at": "08:15"}),
        ("recurring", {"every": "month", "start": f"{day}", "day": "31", "until": f"{day + timedelta(days=99)}"}),
    )
    for kind, fields in rules:
        asked = await guest.get(f"{new}?kind={kind}")
        done = await guest.post(new, {**hidden_fields(asked), **fields})
        assert (kind, done.status) == (kind, 303)
    shown = text_of(await guest.get(path))
    for text in ("Renew the pass", "Five years", "days before 2", "weekdays mon thu", "day 31"):
        assert text in shown
    for kind, fields in (("reminder", {"at": "2020-01-01T09:00"}), ("recurring", {"every": "day", "start": "x"})):
        assert (await guest.submit(f"{new}?kind={kind}", new, kind=kind, **fields)).status == 400
    assert (await guest.get(f"{new}?kind=birthday")).status == 400
    occasion = await room.pool.fetchval("SELECT id FROM user_occasions WHERE event_type = 'REMINDER'")
    await guest.submit(path, f"{path}/occasions/{occasion}/remove")
    assert "Renew the pass" not in text_of(await guest.get(path))
    assert (await guest.submit(path, f"{path}/occasions/{occasion}/remove")).status == 404
    assert [action for action, _after in await actions_of(room)][1:] == ["occasion.add"] * 4 + ["occasion.remove"]


async def test_people_need_their_scope(room: Room) -> None:
    """A reader sees no button, and no form of it is accepted."""
    user = await service.create_user(room.pool, person(), policy=SchedulePolicy(), actor="tests")
    path = f"/people/{user.id}"
    reader = await open_guest(room, "deliveries:read", "users:read", name="reader")
    for page in ("/people", path):
        assert b"/new" not in (await reader.get(page)).body
        assert b"/edit" not in (await reader.get(page)).body
    token = {"token": await reader.token("/")}
    for each in ("/people/new", f"{path}/edit", f"{path}/occasions/new", f"{path}/occasions/{user.id}/remove"):
        assert (each, (await reader.post(each, token)).status) == (each, 403)
    for each in ("/people/new", f"{path}/edit", f"{path}/occasions/new"):
        assert (each, (await reader.get(each)).status) == (each, 403)
