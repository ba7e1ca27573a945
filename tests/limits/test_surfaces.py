"""Limits on the command line, in the dashboard and in the doctor."""

from datetime import UTC, datetime, timedelta

from tests.support.command_line import answer, postroom
from tests.support.dashboard import open_guest, text_of

from postroom.cli import room_checks
from postroom.db.room import Room
from postroom.events.audit import list_audit
from postroom.http import service as keys
from postroom.limits import service
from postroom.runtime.finding import Severity

SOON = datetime.now(UTC) + timedelta(days=3)


async def test_doctor_names_keys_that_expire_soon(room: Room) -> None:
    """Two weeks before and after; revoked keys and others are left out."""
    async with room.pool.acquire() as connection:
        assert (await room_checks.examine_keys(connection)).verdict is Severity.OK
        for name, days in (("late", 3), ("gone", -1), ("distant", 40)):
            limits = {"expires_at": datetime.now(UTC) + timedelta(days=days, hours=1)}
            await keys.create_key(room.pool, name, scopes=["*"], actor="tests", limits=limits)
        found = await room_checks.examine_keys(connection)
    assert found.verdict is Severity.WARN
    assert found.found == "gone expired before 23 h; late expires in 3 d"
    assert "postroom keys change" in (found.advice or "")


async def test_doctor_reports_the_limits_of_the_room(room: Room) -> None:
    """None, within them, clients over the quota, and closed."""
    async with room.pool.acquire() as connection:
        assert (await room_checks.examine_room(connection)).found == "none"
        await service.set_room_limits(room.pool, {"daily_quota": 10}, actor="tests")
        assert (await room_checks.examine_room(connection)).found == "0 mails sent today of 10"
        await connection.execute("SELECT take_allowance('room', NULL, 10, 10, 10)")
        found = await room_checks.examine_room(connection)
        assert (found.verdict, "clients get 429" in found.found) == (Severity.WARN, True)
        await service.set_room_limits(room.pool, {"expires_at": datetime(2026, 1, 1, tzinfo=UTC)}, actor="tests")
        assert (await room_checks.examine_room(connection)).found == "closed since 2026-01-01 00:00 UTC"


async def test_key_page_shows_use_and_changes_limits(room: Room) -> None:
    """Bars of today, a form that keeps rejected values, an audited change, and the state in the list."""
    guest = await open_guest(room)
    limits = {"daily_quota": 10, "rate_per_minute": 5, "from_domains": ["shop.example"]}
    _key, row = await keys.create_key(room.pool, "shop", scopes=["deliveries:write"], actor="tests", limits=limits)
    await room.pool.execute("SELECT take_allowance($1, 5, 10, 4, 4)", f"key:{row.id}")
    path = f"/keys/{row.id}"
    text = text_of(await guest.get(path))
    assert "Mails today, UTC Mails today 4 of 10" in text
    assert "4 of 10" in text_of(await guest.get("/keys"))
    bad = await guest.submit(path, path, daily_quota="many", expires_at="", rate_per_minute="", from_domains="")
    assert (bad.status, b'value="many"' in bad.body) == (400, True)
    done = await guest.submit(
        path,
        path,
        daily_quota="20",
        expires_at=f"{SOON:%Y-%m-%d}",
        rate_per_minute="",
        from_domains="a.example\nb.example",
    )
    assert "The limits of shop are saved." in text_of(await guest.get(done.headers["location"]))
    changed = await keys.get_key(room.pool, row.id)
    assert (changed.daily_quota, changed.rate_per_minute) == (20, None)
    assert changed.from_domains == ("a.example", "b.example")
    assert "shop expires soon" in text_of(await guest.get("/keys"))
    [entry, _made], _more = await list_audit(room.pool, subject=f"key:{row.id}", limit=10)
    assert (entry.action, entry.actor) == ("key.change", "key:1:operator")


async def test_new_key_form_sets_limits_and_the_list_names_the_quota_of_the_room(room: Room) -> None:
    """The fields of limits are part of the form; a quota of the room stands above the list."""
    guest = await open_guest(room)
    await service.set_room_limits(room.pool, {"daily_quota": 100}, actor="tests")
    fields = {"name": "shop", "scope.deliveries:write": "on", "daily_quota": "7"}
    assert (await guest.submit("/keys/new", "/keys/new", **fields)).status == 200
    assert (await keys.get_key(room.pool, 2)).daily_quota == 7
    assert "have 100 mails per UTC day; 0 are used" in text_of(await guest.get("/keys"))


async def test_session_of_an_expired_key_ends(room: Room) -> None:
    """The next page asks to sign in."""
    guest = await open_guest(room, name="operator")
    assert (await guest.get("/keys")).status == 200
    await keys.change_key(room.pool, 1, {"expires_at": datetime(2026, 1, 1, tzinfo=UTC)}, actor="tests")
    assert (await guest.get("/keys")).status != 200


async def test_commands_set_limits(room: Room, database_url: str) -> None:
    """`keys create`, `keys change` and `rooms limit`; words remove a limit."""
    settings = {"POSTROOM_DATABASE_URL": database_url}
    options = (
        "--expires",
        "2030-01-31T00:00:00Z",
        "--rate",
        "60",
        "--daily-quota",
        "500",
        "--from-domain",
        "a.example",
    )
    made = answer(
        postroom("keys", "create", "shop", "--scope", "deliveries:write", *options, "--json", settings=settings)
    )
    assert (made["rate_per_minute"], made["daily_quota"], made["from_domains"]) == (60, 500, ["a.example"])
    removed = ("--expires", "never", "--rate", "0", "--from-domain", "any")
    changed = answer(postroom("keys", "change", str(made["id"]), *removed, "--json", settings=settings))
    assert (changed["expires_at"], changed["rate_per_minute"], changed["daily_quota"]) == (None, None, 500)
    assert changed["from_domains"] == []
    limited = answer(postroom("rooms", "limit", room.name, "--daily-quota", "9", "--json", settings=settings))
    assert (limited["daily_quota"], limited["room_today"], limited["sent_today"]) == (9, 0, 0)
    shown = postroom("rooms", "limit", room.name, settings=settings)
    assert "daily quota" in shown.stdout
    assert "none" not in shown.stdout
    assert "no limits" in postroom("rooms", "limit", room.name, "--daily-quota", "0", settings=settings).stdout
