"""The schedule: days by zone, late and failed messages, people, and the preview of the next message."""

from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
from tests.support.dashboard import Guest, open_guest, text_of
from tests.support.schedule import person

from postroom.db.room import Room
from postroom.schedule import service
from postroom.schedule.model import SchedulePolicy, User

POLICY = SchedulePolicy()


@pytest.fixture
async def guest(room: Room) -> Guest:
    return await open_guest(room)


async def soon(room: Room, days: int = 3, **fields: str) -> User:
    """A person whose birthday is some days from now."""
    day = (datetime.now(UTC) + timedelta(days=days)).date()
    who = person(date_of_birth=day.replace(year=1992, day=min(day.day, 28)), email="ada@example.org", **fields)
    return await service.create_user(room.pool, who, policy=POLICY, actor="tests")


async def actions_of(room: Room) -> list[str]:
    rows = await room.pool.fetch("SELECT action FROM audit_log WHERE actor <> 'tests' AND action ~ '^(sched|user)'")
    return [row["action"] for row in rows]


async def test_the_coming_days_are_counted_by_zone(room: Room, guest: Guest) -> None:
    """A chart of thirty days with a series for each of the largest zones, and the messages, soonest first."""
    assert "No message is planned" in text_of(await guest.get("/schedule"))
    zones = ("Europe/London", "Europe/London", "Asia/Tokyo", "America/Lima", "Africa/Cairo", "Asia/Dubai")
    for days, zone in enumerate(zones, start=2):
        await soon(room, days, timezone=zone)
    page = await guest.get("/schedule")
    text = text_of(page)
    assert page.body.count(b'<rect class="touch"') == 30
    assert "Europe/London 2" in text
    assert "other zones" in text
    assert "All 5 zones" in text
    assert "birthday Hey, Ada Lovelace" in text
    assert (await guest.get("/schedule?status=odd")).status == 400


async def test_late_and_failed_messages_are_listed(room: Room, guest: Guest) -> None:
    user = await soon(room)
    await room.pool.execute(
        "INSERT INTO scheduled_events (user_id, status, target_timestamp_utc, target_timestamp_local, target_timezone,"
        " idempotency_key, delivery_payload, executed_at, failure_reason, late_by)"
        " VALUES ($1, 'FAILED', now() - interval '1 day', now() - interval '1 day', 'UTC', 'x', '{}', now(),"
        " 'suppressed: complaint', '2 hours')",
        user.id,
    )
    for query in ("status=failed", "late=yes", "kind=birthday"):
        text = text_of(await guest.get(f"/schedule?{query}"))
        assert (query, "suppressed: complaint" in text, "2 h" in text) == (query, True, True)
    assert "suppressed: complaint" not in text_of(await guest.get("/schedule"))
    await room.pool.execute(
        "UPDATE scheduled_events SET target_timestamp_utc = now() - interval '1 hour',"
        " planned_at = now() - interval '1 day' WHERE status = 'PENDING'"
    )
    assert "1 message is due and not handed over, the oldest for 1 h" in text_of(await guest.get("/schedule"))


async def test_a_person_shows_the_next_message(room: Room, guest: Guest) -> None:
    """The mail as it would be sent now, rendered from its template; or the reason why it cannot be."""
    user = await soon(room)
    path = f"/people/{user.id}"
    page = text_of(await guest.get(path))
    assert "Subject" in page
    assert "Ada" in page
    frame = await guest.get(f"{path}/preview")
    assert (frame.status, b"Ada" in frame.body, "sandbox" in frame.headers["content-security-policy"]) == (
        200,
        True,
        True,
    )
    await service.add_occasion(
        room.pool, user.id, "REMINDER", rule={"at": "2030-01-01T09:00"}, message="Renew", policy=POLICY, actor="tests"
    )
    assert "reminder Renew" in text_of(await guest.get(path))
    assert "Ada Lovelace" in text_of(await guest.get("/people?email=ADA%40example.org"))
    assert "Nothing matches" in text_of(await guest.get("/people?email=nobody%40example.org"))
    await room.pool.execute("UPDATE users SET template = 'gone' WHERE id = $1", user.id)
    assert "It cannot be rendered:" in text_of(await guest.get(path))
    await room.pool.execute("UPDATE users SET email = NULL WHERE id = $1", user.id)
    assert "it's your birthday" in text_of(await guest.get(path))  # as JSON to the capture inbox
    assert (await guest.get(f"{path}/preview")).status == 404
    assert (await guest.get(f"/people/{uuid4()}")).status == 404


async def test_a_message_is_moved_and_cancelled(room: Room, guest: Guest) -> None:
    """A move needs a future local time; a cancellation plans the next occurrence; a stale form changes nothing."""
    user = await soon(room)
    path = f"/people/{user.id}"
    event_id = await room.pool.fetchval("SELECT id FROM scheduled_events")
    move = f"{path}/events/{event_id}/move"
    at = (datetime.now(UTC) + timedelta(days=9)).strftime("%Y-%m-%dT10:30")
    done = await guest.submit(move, move, at=at, version="1")
    assert "The message moved to" in text_of(await guest.get(done.headers["location"]))
    assert (await guest.submit(move, move, at=at, version="1")).status == 409
    for wrong in ({"at": "x", "version": "2"}, {"at": "2020-01-01T09:00", "version": "2"}):
        assert (wrong, (await guest.submit(move, move, **wrong)).status) == (wrong, 400)
    cancel = f"{path}/events/{event_id}/cancel"
    assert (await guest.submit(path, cancel, version="x")).status == 400
    assert (await guest.submit(path, cancel, version="1")).status == 409
    await guest.submit(path, cancel, version="2")
    assert "cancelled: by key:" in text_of(await guest.get(path))
    await guest.submit(path, f"{path}/delete")
    assert (await guest.get(path)).status == 404
    assert await actions_of(room) == ["scheduled_event.move", "scheduled_event.cancel", "user.delete"]


async def test_the_schedule_needs_its_scopes(room: Room) -> None:
    user = await soon(room)
    path = f"/people/{user.id}"
    event_id = await room.pool.fetchval("SELECT id FROM scheduled_events")
    posts = [f"{path}/delete", f"{path}/events/{event_id}/move", f"{path}/events/{event_id}/cancel"]
    reader = await open_guest(room, "deliveries:read", "users:read", name="reader")
    page = text_of(await reader.get(path))
    assert "Cancel this message" not in page
    assert "Delete…" not in page
    token = {"token": await reader.token("/")}
    operator = await open_guest(room, name="all")
    other = await open_guest(room, "deliveries:read", name="other")
    for each in posts:
        assert (each, (await reader.post(each, token)).status) == (each, 403)
        assert (each, (await operator.post(each, {"token": "forged"})).status) == (each, 403)
    for each in ("/schedule", "/people", path, f"{path}/preview"):
        assert (each, (await other.get(each)).status) == (each, 403)
