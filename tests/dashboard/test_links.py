"""Sign-in links: once, for ten minutes, on loopback."""

from dataclasses import replace
from urllib.parse import urlsplit

import pytest
from tests.support.command_line import postroom
from tests.support.dashboard import SECRET, Guest, dashboard_app, from_address

from postroom.dashboard.links import SignInLinks, make_link
from postroom.dashboard.session import Sessions
from postroom.db.room import Room
from postroom.errors import SettingInvalid
from postroom.http import operators, service
from postroom.http.model import ApiKey, Role

HOST = {"host": "127.0.0.1:8025"}


@pytest.fixture
async def key(room: Room) -> ApiKey:
    return (await service.ensure_admin_key(room.pool, actor="tests"))[1]


def local(room: Room) -> Guest:
    return Guest(dashboard_app(room), headers=dict(HOST))


def path_of(key: ApiKey, room: Room) -> str:
    return f"/sign-in/link?token={SignInLinks(SECRET, room.name).token(key)}"


async def test_a_link_signs_in_once(room: Room, key: ApiKey) -> None:
    """The first browser has a session, also by way of a page of another site; a second one is refused everywhere."""
    path, guest = path_of(key, room), local(room)
    opened = await guest.get(path, sec_fetch_site="cross-site")
    assert (opened.status, b'http-equiv="refresh"' in opened.body) == (200, True)
    assert (await guest.get("/")).status == 200
    for other in (Guest(guest.app, headers=dict(HOST)), local(room)):
        again = await other.get(path)
        assert (again.status, other.cookie) == (401, None)
    entry = await room.pool.fetchrow("SELECT actor, after FROM audit_log WHERE action = 'dashboard.sign_in'")
    assert (entry["actor"], "link" in str(entry["after"])) == (key.actor, True)


async def test_a_link_is_for_loopback(room: Room, key: ApiKey) -> None:
    """A client or a host name elsewhere, and a proxy in between, are refused and do not use the link up."""
    path, app = path_of(key, room), dashboard_app(room)
    for guest, headers in [
        (Guest(from_address(app, "203.0.113.7"), headers=dict(HOST)), {}),
        (Guest(app, headers={"host": "mail.example.org"}), {}),
        (Guest(app, headers={"host": "[bad"}), {}),
        (Guest(app, headers=dict(HOST)), {"x_forwarded_for": "203.0.113.7"}),
        (Guest(app, headers=dict(HOST)), {"forwarded": "for=203.0.113.7"}),
    ]:
        assert (await guest.get(path, **headers)).status == 403
        assert guest.cookie is None
    for host in ("localhost:8025", "[::1]:8025"):
        assert (await Guest(app, headers={"host": host}).get(path_of(key, room))).status == 200


async def test_a_prefetch_does_not_use_a_link(room: Room, key: ApiKey) -> None:
    """A browser that loads the link ahead, and a HEAD request, get no session; the person does afterwards."""
    path, guest = path_of(key, room), local(room)
    assert (await guest.get(path, sec_purpose="prefetch")).status == 401
    assert (await guest._ask("HEAD", path, b"", {})).status == 401
    assert (await guest.get(path)).status == 200


async def test_a_link_expires_and_cannot_be_forged(room: Room, key: ApiKey, monkeypatch: pytest.MonkeyPatch) -> None:
    """An old link, one of another secret, a session cookie and garbage are refused, and a link is no cookie."""
    monkeypatch.setattr("postroom.dashboard.links.LIFETIME_S", -1)
    expired = SignInLinks(SECRET, room.name).token(key)
    monkeypatch.undo()
    sessions = Sessions(SECRET, room.name)
    cookie = sessions.seal(sessions.begin(key))
    forged = SignInLinks(bytes(32), room.name).token(key)
    guest = local(room)
    for token in (expired, forged, cookie, "", "x.y", "é"):
        assert (await guest.get(f"/sign-in/link?token={token}")).status == 401
    guest.cookie = f"postroom_session={SignInLinks(SECRET, room.name).token(key)}"
    assert (await guest.get("/")).status == 303


async def test_a_link_ends_with_its_owner(room: Room, key: ApiKey) -> None:
    """A link of a key that was revoked, or of an operator who was disabled, is refused."""
    ada = await operators.add_operator(room.pool, "ada@example.org", Role.SUPPORT, actor="tests")
    links = SignInLinks(SECRET, room.name)
    of_key, of_ada = links.token(key), links.token(ada)
    await service.revoke_key(room.pool, key.id, actor="tests")
    await operators.disable_operator(room.pool, ada.id, actor="tests")
    for token in (of_key, of_ada):
        assert (await local(room).get(f"/sign-in/link?token={token}")).status == 401


async def test_making_a_link_is_audited_without_its_token(room: Room, key: ApiKey) -> None:
    """The audit log names the person at the command line and the owner of the session."""
    sealed = replace(room, settings=replace(room.settings, secret_key=SECRET))
    link = await make_link(sealed, key, url="http://127.0.0.1:8025", actor="cli:ada")
    assert (await local(room).get(urlsplit(link)._replace(scheme="", netloc="").geturl())).status == 200
    rows = await room.pool.fetch("SELECT * FROM audit_log")
    assert [row["action"] for row in rows][-2:] == ["dashboard.sign_in_link", "dashboard.sign_in"]
    assert link.partition("token=")[2] not in str(rows)
    with pytest.raises(SettingInvalid, match="POSTROOM_SECRET_KEY"):
        await make_link(replace(room, settings=replace(room.settings, secret_key=None)), key, url="", actor="cli:ada")


async def test_the_command_prints_a_link(room: Room, key: ApiKey) -> None:
    """For the admin key or a named operator; an address that is not on loopback is refused."""
    await operators.add_operator(room.pool, "ada@example.org", Role.SUPPORT, actor="tests")
    settings = {"POSTROOM_DATABASE_URL": room.url, "POSTROOM_SECRET_KEY": SECRET.hex()}
    printed = postroom("sign-in-link", "--operator", "ada@example.org", settings=settings).stdout.strip()
    assert printed.startswith("http://127.0.0.1:8025/sign-in/link?token=")
    guest = local(room)
    assert (await guest.get(printed.removeprefix("http://127.0.0.1:8025"))).status == 200
    assert b"ada@example.org" in (await guest.get("/")).body
    assert (await operators.find_by_email(room.pool, "ada@example.org")).last_sign_in_at is not None
    public = postroom("sign-in-link", settings={**settings, "POSTROOM_HTTP_ADDR": "203.0.113.7:80"})
    assert (public.returncode, "POSTROOM_HTTP_ADDR" in public.stderr) == (1, True)
