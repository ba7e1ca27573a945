"""The pages about the installation: health, workers, keys, audit log, settings, archive."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from tests.support.builders import a_mail, accepted
from tests.support.dashboard import Guest, dashboard_app, open_guest, text_of
from tests.support.http import Browser, a_key

from postroom.dashboard.audit import subject_page
from postroom.dashboard.listing import pairs
from postroom.dashboard.system import shown_settings, without_password
from postroom.db.room import Room
from postroom.delivery import service
from postroom.rooms.service import find_rooms, servers_of
from postroom.runtime.finding import fail, ok
from postroom.settings import Settings


@pytest.fixture
async def guest(room: Room) -> Guest:
    return await open_guest(room)


async def test_health_lists_problems_first(room: Room) -> None:
    """Each finding with its advice; a failed check stands above a passed one."""

    async def examine() -> list[object]:
        return [ok("clock", "in step"), fail("workers", "no worker runs", "start one")]

    guest = await open_guest(room, app=dashboard_app(room, examine=examine))  # type: ignore[arg-type] # findings
    text = text_of(await guest.get("/health"))
    assert text.index("no worker runs") < text.index("in step")
    assert "start one" in text


async def test_silent_workers_are_called_lost(room: Room, guest: Guest) -> None:
    """A worker that has not reported for a lease is lost; one that sleeps in every lane reports once a minute."""
    await room.pool.execute(
        "INSERT INTO workers (pid, host, seen_at, asleep) VALUES (1, 'old', now() - interval '1 day', '{}'),"
        " (2, 'new', now(), '{bulk}'),"
        " (3, 'idle', now() - interval '90 s', enum_range(NULL::delivery_lane))"
    )
    text = text_of(await guest.get("/workers"))
    assert "new sleeping" in text
    assert "idle sleeping" in text
    assert "old lost" in text


async def test_keys_are_created_shown_once_and_revoked(room: Room, guest: Guest) -> None:
    """A new key works, is on no page afterwards, and stops working when it is revoked; both are audited."""
    made = await guest.submit("/keys/new", "/keys/new", name="shop", **{"scope.deliveries:read": "on"})
    key = made.body.decode().partition('id="made">')[2].partition("<")[0]
    browser = Browser(guest.app, key)
    assert (await browser.get("/v1/deliveries")).status == 200
    listing = await guest.get("/keys")
    assert "shop" in text_of(listing)
    assert key not in listing.body.decode()
    done = await guest.submit("/keys", "/keys/2/revoke")
    assert "The key shop is revoked." in text_of(await guest.get(done.headers["location"]))
    assert (await browser.get("/v1/deliveries")).status == 401
    log = text_of(await guest.get("/audit?action=key"))
    assert "key:1:operator key.create key:2" in log
    assert "key:1:operator key.revoke key:2" in log


async def test_a_key_cannot_give_what_it_does_not_have(room: Room) -> None:
    """The form offers the scopes of the own key only, and a forged one is refused; wrong names are explained."""
    guest = await open_guest(room, "deliveries:read", "keys:manage", name="manager")
    form = await guest.get("/keys/new")
    assert b"scope.deliveries:read" in form.body
    assert b"scope.senders:manage" not in form.body
    forged = await guest.submit("/keys/new", "/keys/new", name="x", **{"scope.*": "on"})
    assert forged.status == 403
    for fields in [{"name": "a b", "scope.keys:manage": "on"}, {"name": "fine"}]:
        wrong = await guest.submit("/keys/new", "/keys/new", **fields)
        assert (wrong.status, b'role="alert"' in wrong.body) == (400, True)


async def test_the_audit_log_is_filtered_by_every_field(room: Room, guest: Guest) -> None:
    """Actor, action or its group, subject, and time in the viewer's zone; subjects lead to their pages."""
    [one, two] = await accepted(room.pool, a_mail(), a_mail())
    await service.cancel(room.pool, one, actor="cli:ada")
    await service.cancel(room.pool, two, actor="cli:bob")
    by_ada = await guest.get("/audit?actor=cli%3Aada")
    assert f'<a href="/deliveries/{one}">'.encode() in by_ada.body
    assert b"cli:bob" not in by_ada.body
    assert text_of(await guest.get("/audit?action=delivery")).count("delivery.cancel") == 2
    assert "cli:bob" in text_of(await guest.get(f"/audit?subject=delivery%3A{two}"))
    await guest.submit("/preferences", "/preferences", zone="Asia/Kolkata")
    local = await room.pool.fetchval(
        "SELECT to_char(max(at) AT TIME ZONE 'Asia/Kolkata' + interval '1 minute', 'YYYY-MM-DD\"T\"HH24:MI')"
        " FROM audit_log"
    )
    assert "cli:ada" in text_of(await guest.get(f"/audit?before={local}"))
    assert "Nothing matches these filters." in text_of(await guest.get(f"/audit?from={local}"))
    assert (await guest.get("/audit?from=yesterday")).status == 400


async def test_settings_show_no_secret(room: Room, guest: Guest) -> None:
    """Values in force with their meaning; of secrets only that they are set."""
    page = await guest.get("/settings?q=DATABASE_URL")
    assert "POSTROOM_DATABASE_URL set, not shown set URL of the PostgreSQL database" in text_of(page)
    assert room.url.encode() not in page.body
    settings = replace(Settings(), secret_key=b"s" * 32, smtp_relay="smtp://ada:hunter2@relay.example:587")
    shown = {each.variable: each.value for each in shown_settings(settings)}
    assert shown["POSTROOM_SECRET_KEY"] == shown["POSTROOM_SMTP_RELAY"] == "set, not shown"
    assert "hunter2" not in str(shown)
    assert (shown["POSTROOM_ARCHIVE_AFTER"], shown["POSTROOM_ACCOUNT_MAIL"]) == ("90d", "on")
    assert without_password("nats://ada:hunter2@nats.example:4222/x") == "nats://…@nats.example:4222/x"


async def test_system_pages_need_their_scopes(room: Room) -> None:
    """A key that reads deliveries has no link to them, and no page."""
    guest = await open_guest(room, "deliveries:read", name="reader")
    home = await guest.get("/")
    _key, row = await a_key(room, "other", "*")
    for path in ["/health", "/workers", "/keys", "/keys/new", "/audit", "/settings", "/archive"]:
        assert f'href="{path}"'.encode() not in home.body
        assert (path, (await guest.get(path)).status) == (path, 403)
    token = {"token": await guest.token("/")}
    for path in ["/keys/new", f"/keys/{row.id}/revoke"]:
        assert (path, (await guest.post(path, token)).status) == (path, 403)


def test_subjects_and_values_are_written_for_people() -> None:
    """Only subjects with a page are links; objects are pairs, without JSON's braces."""
    assert [subject_page(text) for text in ("delivery:42", "delivery:x", "key:7")] == ["/deliveries/42", None, None]
    person = "0192d3b4-5c6d-7e8f-9a0b-1c2d3e4f5a6b"
    assert [subject_page(f"user:{each}") for each in (person, "7", "../keys")] == [f"/people/{person}", None, None]
    changed = {"scope": "all", "until": None, "n": [1]}
    assert pairs(changed) == [("scope", "all"), ("until", "null"), ("n", "[1]")]
    assert pairs(changed, is_brief=True) == [("scope", "all"), ("n", "[1]")]
    assert (pairs(None), pairs([1])) == (None, [("", "[1]")])


async def test_storage_lists_finished_backups(room: Room, tmp_path: Path) -> None:
    """Those of this room, newest first. One without a manifest is unfinished and not shown."""
    folder = await room.pool.fetchval("SELECT archive_folder()")
    for name in (
        f"{folder}/postroom-20300101T000000Z.backup",
        "before-migrate/postroom-20310101T000000Z.backup",
        "before-migrate/annex-20320101T000000Z.backup",
    ):
        for file in (tmp_path / name, tmp_path / f"{name}.manifest.json"):
            file.parent.mkdir(exist_ok=True, parents=True)
            file.touch()
    (tmp_path / f"{folder}/postroom-20330101T000000Z.backup").touch()
    stored = replace(room, settings=replace(room.settings, backup_url=str(tmp_path)))
    guest = await open_guest(stored, app=dashboard_app(stored))
    shown = text_of(await guest.get("/storage/backups"))
    assert 0 < shown.index("20310101") < shown.index("20300101")
    assert "annex" not in shown
    assert "2033" not in shown


async def test_storage_lists_partitions_and_rooms(room: Room) -> None:
    """Each partition with its table and size; the rooms that discovery finds, if the dashboard may list them."""
    discover = partial(find_rooms, servers_of(room), inspecting=True)
    guest = await open_guest(room, app=dashboard_app(room, discover=discover))
    shown = text_of(await guest.get("/storage"))
    assert "attempts attempts_default all other rows" in shown
    assert "delivery_steps delivery_steps_default" in shown
    await room.pool.execute("CREATE SCHEMA annex; CREATE TABLE annex.restoring ()")
    rooms = text_of(await guest.get("/storage/rooms"))
    assert "annex default restoring" in rooms
    assert f"{room.name} default ready 00" in rooms
    tenant = await open_guest(room)
    assert (await tenant.get("/storage/rooms")).status == 404
    assert "/storage/rooms" not in (await tenant.get("/storage")).body.decode()
    reader = await open_guest(room, "deliveries:read")
    assert (await reader.get("/storage")).status == 403
