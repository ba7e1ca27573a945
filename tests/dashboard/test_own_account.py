"""One's own sessions, the second factor, and signing in again before sensitive actions."""

import base64
import re
import time
from dataclasses import replace

import pytest
from tests.support.dashboard import SECRET, Guest, dashboard_app, from_address, hidden_fields, open_guest, text_of
from tests.support.http import Response
from tests.support.refusals import logged_refusals

from postroom.dashboard.links import SignInLinks
from postroom.dashboard.session import FRESH_S, Sessions
from postroom.db.room import Room
from postroom.http import operators
from postroom.http.model import ApiKey, Operator, Role
from postroom.http.second_factor import MOST_TRIES
from postroom.http.service import list_keys
from postroom.http.sessions import browser_of, list_sessions
from postroom.http.totp import STEP_S, code_at
from postroom.runtime.endpoint import ASGIApp

ADA = "ada@example.org"
FIREFOX = "Mozilla/5.0 (X11; Linux x86_64; rv:133.0) Gecko/20100101 Firefox/133.0"


@pytest.fixture
async def ada(room: Room) -> Operator:
    return await operators.add_operator(room.pool, ADA, Role.ADMIN, actor="tests")


@pytest.fixture
async def app(room: Room) -> ASGIApp:
    return dashboard_app(replace(room, settings=replace(room.settings, transport="noop")))


async def by_code(room: Room, app: ASGIApp, *, client: str = "203.0.113.7") -> tuple[Guest, Response]:
    """A browser that has entered the mailed code, and the answer to it."""
    guest = Guest(from_address(app, client), headers={"user-agent": FIREFOX})
    await guest.post("/sign-in/code", {"email": ADA})
    code = "SELECT variables->>'code' FROM delivery_payloads WHERE variables ? 'code' ORDER BY delivery_id DESC LIMIT 1"
    return guest, await guest.post("/sign-in/redeem", {"code": await room.pool.fetchval(code), "next": "/deliveries"})


async def notices(room: Room) -> list[str]:
    rows = await room.pool.fetch(
        "SELECT p.variables->>'event' AS event FROM deliveries AS d JOIN delivery_payloads AS p ON p.delivery_id = d.id"
        " WHERE d.template_id = 'operator-notice' AND EXISTS (SELECT FROM delivery_recipients AS r"
        " WHERE r.delivery_id = d.id AND r.email = $1) ORDER BY d.id",
        ADA,
    )
    return [row["event"] for row in rows]


class App:
    """An authenticator app that knows a secret, and shows a later code each time."""

    def __init__(self, secret: bytes) -> None:
        self._secret, self._last = secret, 0

    def code(self) -> str:
        self._last = max(int(time.time()) // STEP_S, self._last + 1)
        return code_at(self._secret, self._last)


async def set_up(guest: Guest) -> tuple[App, list[str]]:
    """Add the account of the page to an app; the app and the recovery codes."""
    page = await guest.get("/second-factor")
    found = re.search(r"<pre[^>]*>([A-Z2-7]+)</pre>", page.body.decode())
    assert found is not None, text_of(page)
    app = App(base64.b32decode(found[1]))
    done = await guest.post("/second-factor", {**hidden_fields(page), "code": app.code()})
    assert done.status == 200, text_of(done)
    return app, re.findall(r"\b(?:[a-z2-7]{4}-){3}[a-z2-7]{4}\b", done.body.decode())


def aged(room: Room, owner: Operator | ApiKey, seconds: int) -> str:
    """The cookie of a session that began some time ago and is in use."""
    past = Sessions(SECRET, room.name, now=lambda: time.time() - seconds).begin(owner)
    now = Sessions(SECRET, room.name)
    return f"postroom_session={now.seal(replace(past, seen=int(time.time())))}"


# ── sessions ───────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_own_sessions_are_listed_and_ended(room: Room, app: ASGIApp, ada: Operator) -> None:
    """An operator sees every browser that is signed in, and ends one in every process; others' do not appear."""
    (here, _), (there, _) = [await by_code(room, app, client=f"203.0.113.{number}") for number in (7, 8)]
    eve = await open_guest(room, app=app)
    page = await here.get("/sessions")
    for text in ("Firefox on Linux", "203.0.113.7", "203.0.113.8", "this one"):
        assert text in text_of(page)
    assert "203.0.113.8" not in text_of(await eve.get("/sessions"))
    [(other)] = re.findall(r'action="(/sessions/[^/"]+/end)"', page.body.decode())
    assert (await eve.submit("/", other)).status == 303
    assert (await there.get("/")).status == 200
    assert (await here.submit("/sessions", other)).status == 303
    assert ((await there.get("/")).status, (await here.get("/")).status) == (303, 200)
    assert "203.0.113.8" not in text_of(await here.get("/sessions"))
    ended = "SELECT actor FROM audit_log WHERE action = 'dashboard.end_sessions'"
    assert [row["actor"] for row in await room.pool.fetch(ended)] == [f"operator:{ADA}"]


async def test_sessions_of_an_operator_end_for_an_administrator(room: Room, app: ASGIApp, ada: Operator) -> None:
    """All of them, also those that no list has; the operator can sign in again."""
    guest, _ = await by_code(room, app)
    assert len(await list_sessions(room.pool, ada)) == 1
    await operators.end_sessions(room.pool, ada.id, actor="tests")
    assert (await guest.get("/")).status == 303
    assert await list_sessions(room.pool, await operators.find_by_email(room.pool, ADA)) == []
    again, _ = await by_code(room, app)
    assert (await again.get("/")).status == 200


async def test_a_sign_in_from_a_new_place_is_mailed(room: Room, app: ASGIApp, ada: Operator) -> None:
    """Not the first one of an operator, and each network once."""
    for client, mailed in (("203.0.113.7", 0), ("203.0.113.7", 0), ("203.0.113.8", 1), ("203.0.113.8", 1)):
        await by_code(room, app, client=client)
        assert await notices(room) == ["sign_in"] * mailed
    told = await room.pool.fetchval("SELECT variables FROM delivery_payloads WHERE variables->>'event' = 'sign_in'")
    assert '"client": "203.0.113.8"' in told
    assert "Firefox on Linux" in told


@pytest.mark.parametrize(
    "agent, name",
    [
        (FIREFOX, "Firefox on Linux"),
        ("Mozilla/5.0 (Windows NT 10.0) AppleWebKit/537.36 Chrome/131.0 Safari/537.36 Edg/131.0", "Edge on Windows"),
        ("Mozilla/5.0 (Linux; Android 15) AppleWebKit/537.36 Chrome/131.0 Mobile Safari/537.36", "Chrome on Android"),
        ("Mozilla/5.0 (Macintosh; Intel Mac OS X 14_7) Version/18.1 Safari/605.1.15", "Safari on macOS"),
        ("curl/8.11", "unknown"),
        ("", "unknown"),
    ],
)
def test_browsers_are_named_by_family_and_system(agent: str, name: str) -> None:
    """Enough to recognise one's own."""
    assert browser_of(agent) == name


# ── signing in again ───────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_key_with_every_scope_needs_a_fresh_sign_in(room: Room, app: ASGIApp, ada: Operator) -> None:
    """A browser that was left alone gives no lasting right to everything; a key with fewer scopes is made."""
    guest = Guest(app, aged(room, ada, FRESH_S + 1))
    assert "sign in again" in text_of(await guest.get("/keys/new"))
    refused = await guest.submit("/keys/new", "/keys/new", name="all", **{"scope.*": "on"})
    assert (refused.status, "Nothing was done" in text_of(refused)) == (403, True)
    assert (await guest.submit("/keys/new", "/keys/new", name="less", **{"scope.stats:read": "on"})).status == 200
    asked = await guest.get("/sign-in?again=1&next=/keys/new")
    assert (asked.status, "sign in again" in text_of(asked)) == (200, True)
    former = guest.cookie
    token = SignInLinks(SECRET, room.name).token(ada)
    await guest.get(f"/sign-in/link?token={token}", host="127.0.0.1")
    assert (await Guest(app, former).get("/")).status == 303, "the former session of the browser has ended"
    assert (await guest.submit("/keys/new", "/keys/new", name="all", **{"scope.*": "on"})).status == 200
    assert [key.name for key in (await list_keys(room.pool))[0]] == ["all", "less"]


@pytest.mark.parametrize(
    "page, action, fields",
    [
        ("/operators/new", "/operators/new", {"email": "bob@example.org", "role": "admin"}),
        ("/second-factor", "/second-factor", {"code": "123456"}),
        ("/second-factor", "/second-factor/remove", {}),
        ("/second-factor", "/second-factor/recovery-codes", {}),
    ],
)
async def test_changes_of_authenticators_need_a_fresh_sign_in(
    room: Room, app: ASGIApp, ada: Operator, page: str, action: str, fields: dict[str, str]
) -> None:
    """An admin has every right, and a second factor decides who signs in."""
    guest = Guest(app, aged(room, ada, FRESH_S + 1))
    refused = await guest.submit(page, action, **fields)
    assert (refused.status, "Nothing was done" in text_of(refused)) == (403, True)


# ── the second factor ──────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_mailed_code_needs_the_app_once_it_is_set_up(room: Room, app: ASGIApp, ada: Operator) -> None:
    """A wrong code opens nothing, the present code of the app does, once; a notice was mailed."""
    owner, _ = await by_code(room, app)
    phone, _codes = await set_up(owner)
    assert await notices(room) == ["second_factor_set"]
    guest, asked = await by_code(room, app)
    assert asked.headers["location"] == "/sign-in/second-factor?next=%2Fdeliveries"
    assert (await guest.get("/")).status == 303
    with logged_refusals() as refused:
        wrong = await guest.post("/sign-in/second-factor", {"code": "000000"})
    assert (wrong.status, refused) == (401, [("second_factor", "wrong_code")])
    code = phone.code()
    copied = Guest(guest.app, guest.cookie)
    entered = await guest.post("/sign-in/second-factor", {"code": f"{code[:3]} {code[3:]}", "next": "/deliveries"})
    assert (entered.status, entered.headers["location"]) == (303, "/deliveries")
    assert (await guest.get("/keys")).status == 200
    assert (await copied.post("/sign-in/second-factor", {"code": phone.code()})).status == 401
    again, _ = await by_code(room, app)
    assert (await again.post("/sign-in/second-factor", {"code": code})).status == 401
    entry = "SELECT after FROM audit_log WHERE action = 'dashboard.sign_in' ORDER BY id DESC LIMIT 1"
    assert await room.pool.fetchval(entry) == '{"by": "code", "second_factor": "app"}'


async def test_a_recovery_code_works_once(room: Room, app: ASGIApp, ada: Operator) -> None:
    """In any case of letters; the operator gets a mail, and new codes end the former ones."""
    owner, _ = await by_code(room, app)
    _phone, codes = await set_up(owner)
    assert len(set(codes)) == 10
    for code, status in ((codes[0].upper(), 303), (codes[0], 401)):
        guest, _ = await by_code(room, app)
        assert (await guest.post("/sign-in/second-factor", {"code": code})).status == status
    assert await notices(room) == ["second_factor_set", "recovery_code_used"]
    assert "9 recovery codes are unused" in text_of(await owner.get("/second-factor"))
    renewed = await owner.submit("/second-factor", "/second-factor/recovery-codes")
    assert codes[1] not in text_of(renewed)
    guest, _ = await by_code(room, app)
    assert (await guest.post("/sign-in/second-factor", {"code": codes[1]})).status == 401
    stored = str(await room.pool.fetch("SELECT totp_secret, recovery_hashes FROM operators"))
    assert codes[2] not in stored


async def test_wrong_codes_of_an_operator_are_limited(room: Room, app: ASGIApp, ada: Operator) -> None:
    """From however many addresses: six digits could be guessed otherwise. After an hour the right code works."""
    owner, _ = await by_code(room, app)
    phone, _codes = await set_up(owner)
    guest, _ = await by_code(room, app)
    for number in range(MOST_TRIES):
        eve = Guest(from_address(app, f"198.51.100.{number}"), guest.cookie)
        assert (await eve.post("/sign-in/second-factor", {"code": "000000"})).status == 401
    code = phone.code()
    assert (await guest.post("/sign-in/second-factor", {"code": code})).status == 429
    await room.pool.execute("UPDATE operators SET totp_wrong_since = now() - interval '61 minutes'")
    assert (await guest.post("/sign-in/second-factor", {"code": code})).status == 303


async def test_a_link_needs_no_second_factor(room: Room, app: ASGIApp, ada: Operator) -> None:
    """It comes from the machine of the server, and helps after the loss of a phone."""
    owner, _ = await by_code(room, app)
    await set_up(owner)
    guest = Guest(app)
    token = SignInLinks(SECRET, room.name).token(await operators.find_by_email(room.pool, ADA))
    assert (await guest.get(f"/sign-in/link?token={token}", host="127.0.0.1")).status == 200
    assert (await guest.submit("/second-factor", "/second-factor/remove")).status == 303
    assert (await operators.find_by_email(room.pool, ADA)).second_factor_since is None
    assert (await notices(room))[-1] == "second_factor_removed"


async def test_a_secret_of_another_session_is_not_set_up(room: Room, app: ASGIApp, ada: Operator) -> None:
    """A page is for the session that loaded it, so no secret can be planted; a wrong code stores nothing."""
    (one, _), (other, _) = await by_code(room, app), await by_code(room, app)
    page = await one.get("/second-factor")
    planted = {**hidden_fields(page), "token": await other.token("/second-factor"), "code": "123456"}
    assert "too old" in text_of(await other.post("/second-factor", planted))
    wrong = await one.post("/second-factor", {**hidden_fields(page), "code": "000000"})
    assert (wrong.status, "present code" in text_of(wrong)) == (400, True)
    assert (await operators.find_by_email(room.pool, ADA)).second_factor_since is None


async def test_keys_and_operators_need_a_second_factor_after_a_mailed_code(
    room: Room, app: ASGIApp, ada: Operator
) -> None:
    """A mailbox alone does not lead to all rights; other pages open, and the setting can switch it off."""
    guest, _ = await by_code(room, app)
    for path in ("/keys", "/operators"):
        assert (await guest.get(path)).headers["location"] == "/second-factor"
        refused = await guest.submit("/", f"{path}/new", name="x", email="eve@example.org", role="support")
        assert (refused.status, "second factor" in text_of(refused)) == (403, True)
    assert (await guest.get("/deliveries")).status == 200
    await set_up(guest)
    assert (await guest.get("/keys")).status == 200
    optional = replace(room, settings=replace(room.settings, second_factor="optional", transport="noop"))
    await room.pool.execute("UPDATE operators SET second_factor_since = NULL, totp_secret = NULL, totp_key_id = NULL")
    free, _ = await by_code(room, dashboard_app(optional))
    assert (await free.get("/keys")).status == 200


async def test_an_api_key_has_no_second_factor(room: Room, app: ASGIApp) -> None:
    """It is a secret of 256 bits, and belongs to no person."""
    guest = await open_guest(room, app=app)
    page = await guest.get("/second-factor")
    assert (page.status, "belongs to an API key" in text_of(page)) == (200, True)
    assert (await guest.submit("/", "/second-factor", code="1")).status == 403
