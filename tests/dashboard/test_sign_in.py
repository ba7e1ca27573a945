"""Coming in, staying in, going out."""

from dataclasses import replace
from ipaddress import ip_network
from urllib.parse import quote

import aiohttp
import pytest
from tests.support.builders import a_mail, accepted, state_of
from tests.support.dashboard import Guest, dashboard_app, open_guest, text_of
from tests.support.refusals import count_sign_ins, logged_refusals
from tests.support.served import served

from postroom.dashboard.request import local_path
from postroom.db.room import Room
from postroom.delivery.model import DeliveryState
from postroom.http.auth import new_key
from postroom.http.service import create_key, list_keys, revoke_key
from postroom.runtime.peers import GUESSES

PAGES = ["/", "/deliveries", "/deliveries/1", "/deliveries/1/preview", "/dead-letters"]
PAGES += ["/inbox", "/inbox/1", "/inbox/1/preview", "/inbox/1/raw"]
FORMS = ["/deliveries/1/cancel", "/deliveries/1/retry", "/deliveries/1/resend", "/deliveries/mass-actions"]
FORMS += ["/dead-letters/1/settle", "/sign-out"]


@pytest.fixture
def guest(room: Room) -> Guest:
    return Guest(dashboard_app(room))


async def test_every_page_asks_who_is_there(guest: Guest) -> None:
    """Without a session each page leads to the door, and from there back to itself."""
    for path in PAGES:
        response = await guest.get(path)
        assert (path, response.status) == (path, 303)
        to = "/sign-in" if path == "/" else f"/sign-in?next={quote(path, safe='')}"
        assert response.headers["location"] == to


async def test_every_form_asks_who_is_there(guest: Guest) -> None:
    """Without a session nothing is done, and the answer says so; a script is refused as well."""
    for path in FORMS:
        response = await guest.post(path, {})
        assert (path, response.status) == (path, 401)
        assert "Nothing was done" in text_of(response)
    assert (await guest.get("/live")).status == 401


async def test_a_key_opens_a_session(room: Room, guest: Guest) -> None:
    """The cookie is for this host only, out of reach of scripts and other sites, and holds nothing of the key."""
    key, row = await create_key(room.pool, "ada", scopes=["deliveries:read"], actor="tests")
    response = await guest.sign_in(f"  {key}\n", next="/deliveries?status=sent")
    assert (response.status, response.headers["location"]) == (303, "/deliveries?status=sent")
    cookie = response.headers["set-cookie"]
    assert {"HttpOnly", "Path=/", "SameSite=strict"} <= set(cookie.split("; "))
    assert "Secure" not in cookie
    assert key[3:] not in cookie
    assert row.prefix not in cookie
    assert (await guest.get("/deliveries")).status == 200
    assert (await guest.get("/sign-in")).headers["location"] == "/"
    audit = await room.pool.fetchrow("SELECT actor, subject FROM audit_log WHERE action = 'dashboard.sign_in'")
    assert tuple(audit) == (f"key:{row.id}:ada", f"key:{row.id}")


async def test_behind_https_the_cookie_is_secure(room: Room) -> None:
    """A public URL with https makes the cookie travel by https only, and only from this host."""
    public = replace(room, settings=replace(room.settings, public_url="https://post.example.org"))
    guest = await open_guest(public)
    assert guest.cookie is not None
    assert guest.cookie.startswith("__Host-postroom_session=")
    page = await guest.get("/")
    assert (page.status, page.headers["strict-transport-security"]) == (200, "max-age=31536000")


async def test_a_wrong_key_opens_nothing(guest: Guest) -> None:
    """Every invalid key gets the same response without a cookie."""
    for key in ["", "pr_short", "é" * 46, new_key(), "Bearer " + new_key(), "x" * 5000]:
        response = await guest.sign_in(key)
        assert (key, response.status) == (key, 401)
        assert "not a key of this room" in text_of(response)
        assert guest.cookie is None


async def test_sign_ins_and_refusals_are_counted_and_refusals_logged(room: Room, guest: Guest) -> None:
    """By way: an API key, a mailed code, a link. No log line has a part of a key."""
    key, _row = await create_key(room.pool, "ada", scopes=["*"], actor="tests")
    before = count_sign_ins("key", "accepted"), count_sign_ins("key", "refused")
    with logged_refusals() as refused:
        await guest.sign_in(new_key())
        await guest.sign_in(new_key())
        await guest.post("/sign-in/redeem", {"code": "1234 5678"}, host="localhost")
        await guest.get("/sign-in/link?token=a", host="localhost")
        await guest.sign_in(key)
    assert refused == [("key", "unauthenticated"), ("code", "wrong_code"), ("link", "used_or_expired")]
    assert (count_sign_ins("key", "accepted"), count_sign_ins("key", "refused")) == (before[0] + 1, before[1] + 2)


async def test_a_key_without_the_scope_opens_nothing(room: Room, guest: Guest) -> None:
    """To look, a key needs deliveries:read."""
    key, _row = await create_key(room.pool, "sender", scopes=["deliveries:write"], actor="tests")
    response = await guest.sign_in(key)
    assert response.status == 403
    assert "deliveries:read" in text_of(response)
    assert guest.cookie is None


async def test_guessing_is_answered_with_a_pause(room: Room, guest: Guest, monkeypatch: pytest.MonkeyPatch) -> None:
    """After too many wrong keys another wrong one is 429; the right one still opens a session."""
    monkeypatch.setattr("postroom.runtime.peers.GUESS_WINDOW_S", 3600.0)
    key, _row = await create_key(room.pool, "ada", scopes=["*"], actor="tests")
    for _ in range(GUESSES):
        assert (await guest.sign_in(new_key())).status == 401
    response = await guest.sign_in(new_key())
    assert response.status == 429
    assert int(response.headers["retry-after"]) > 0
    assert (await guest.sign_in(key)).status == 303


async def test_guesses_count_by_the_client_behind_the_proxy(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind a trusted proxy X-Forwarded-For tells clients apart; from anybody else it is ignored."""
    monkeypatch.setattr("postroom.runtime.peers.GUESS_WINDOW_S", 3600.0)
    behind = replace(room, settings=replace(room.settings, trusted_proxies=(ip_network("127.0.0.1/32"),)))
    for place, status in ((behind, 401), (room, 429)):
        async with served(dashboard_app(place)) as url, aiohttp.ClientSession(url) as client:
            for _ in range(GUESSES):
                await _guess(client, forwarded_for="203.0.113.1")
            assert await _guess(client, forwarded_for="203.0.113.2") == status


async def _guess(client: aiohttp.ClientSession, *, forwarded_for: str) -> int:
    headers = {"x-forwarded-for": forwarded_for}
    async with client.post("/sign-in", data={"key": new_key()}, headers=headers) as answer:
        return answer.status


@pytest.mark.parametrize(
    "asked",
    [
        *("//evil.example", "https://evil.example", "/\\evil.example", "\\\\evil", "/%5cx\r\nx: y"),
        *("javascript:alert(1)", "", None, "/" + "x" * 2000, "/deliveries\n", "evil.example"),
    ],
)
def test_signing_in_never_leads_elsewhere(asked: str | None) -> None:
    """The way back is a path of ours or the overview."""
    assert local_path(asked) == "/"


def test_signing_in_leads_back() -> None:
    """A page with its filters is found again."""
    assert local_path("/deliveries?recipient=a%40b.org&status=sent") == "/deliveries?recipient=a%40b.org&status=sent"


async def test_a_revoked_key_loses_its_session(room: Room) -> None:
    """The request after the revocation is refused."""
    guest = await open_guest(room)
    assert (await guest.get("/")).status == 200
    [key], _cursor = await list_keys(room.pool)
    await revoke_key(room.pool, key.id, actor="tests")
    assert (await guest.get("/")).status == 303


async def test_a_session_is_worth_what_its_key_is_worth_now(room: Room) -> None:
    """A key that lost its scope, or another one under the same id, does not carry the session on."""
    guest = await open_guest(room)
    for change in ["scopes = '{inbox:read}'", "scopes = '{*}', created_at = now() - interval '1 day'"]:
        assert (await guest.get("/")).status == 200
        before = await room.pool.fetchrow("SELECT scopes, created_at FROM api_keys")
        await room.pool.execute(f"UPDATE api_keys SET {change}")
        assert (change, (await guest.get("/")).status) == (change, 303)
        await room.pool.execute("UPDATE api_keys SET scopes = $1, created_at = $2", *before)


async def test_signing_out_ends_the_session(room: Room) -> None:
    """The cookie is taken back, and a copy of it is worth nothing, in another process either."""
    guest = await open_guest(room)
    copy = Guest(dashboard_app(room), guest.cookie)
    assert (await copy.get("/")).status == 200
    response = await guest.submit("/", "/sign-out")
    assert response.headers["location"] == "/sign-in"
    assert "Max-Age=0" in response.headers["set-cookie"]
    assert (await copy.get("/")).status == 303


async def test_only_sessions_that_have_not_expired_are_remembered(room: Room) -> None:
    """Signing out removes the rows of sessions that expired in the meantime."""
    guest, other = await open_guest(room), await open_guest(room, name="other")
    await guest.submit("/", "/sign-out")
    await room.pool.execute("UPDATE ended_sessions SET expires_at = now() - interval '1 second'")
    await other.submit("/", "/sign-out")
    assert await room.pool.fetchval("SELECT count(*) FROM ended_sessions WHERE expires_at > now()") == 1
    assert await room.pool.fetchval("SELECT count(*) FROM ended_sessions") == 1


async def test_a_used_session_is_renewed(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page writes the cookie again once it is old enough; live figures do not."""
    guest = await open_guest(room)
    assert "set-cookie" not in (await guest.get("/")).headers
    monkeypatch.setattr("postroom.dashboard.session.RENEWED_AFTER_S", -1)
    assert "set-cookie" in (await guest.get("/deliveries")).headers


async def test_a_form_without_its_token_does_nothing(room: Room) -> None:
    """A cookie alone moves nothing, nor does a made-up token or one of another session."""
    guest = await open_guest(room)
    other = await open_guest(room, name="other", app=guest.app)
    [delivery_id] = await accepted(room.pool, a_mail())
    for fields in ({}, {"token": ""}, {"token": "wrong"}, {"token": await other.token("/")}):
        response = await guest.post(f"/deliveries/{delivery_id}/cancel", fields)
        assert response.status == 403
    assert await state_of(room.pool, delivery_id) is DeliveryState.QUEUED


async def test_forms_of_other_sites_are_refused(room: Room) -> None:
    """A form counts only if the browser does not say it came from elsewhere, even with the right token."""
    guest = await open_guest(room)
    [delivery_id] = await accepted(room.pool, a_mail())
    form, path = {"token": await guest.token("/")}, f"/deliveries/{delivery_id}/retry"
    for headers, status in [
        ({"sec_fetch_site": "cross-site"}, 403),
        ({"sec_fetch_site": "same-site"}, 403),
        ({"origin": "https://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"sec_fetch_site": "same-origin"}, 303),
        ({"origin": "http://room.example.org"}, 303),
    ]:
        assert (headers, (await guest.post(path, form, **headers)).status) == (headers, status)
    assert (await guest.post("/sign-in", {}, sec_fetch_site="cross-site")).status == 403


async def test_a_form_is_small_and_a_form(room: Room) -> None:
    """Other media types and endless bodies are refused before they are understood."""
    guest = await open_guest(room)
    assert (await guest.post("/sign-out", {}, **{"content-type": "application/json"})).status == 415
    assert (await guest.post("/sign-out", {"token": "x" * 70_000})).status == 413
    assert (await guest.post("/sign-out", {str(number): "" for number in range(60)})).status == 400
