"""Sign-in by a code that is mailed to an operator."""

import asyncio
import re
from dataclasses import replace

import pytest
from tests.support.dashboard import Guest, dashboard_app, from_address, text_of
from tests.support.http import open_browser

from postroom.app import run_worker
from postroom.dashboard.codes import ATTEMPTS, MAILS_PER_ADDRESS, MAILS_PER_CLIENT
from postroom.db.room import Room
from postroom.http import operators
from postroom.http.model import Operator, Role
from postroom.inbox.reader import read_message
from postroom.runtime.peers import GUESSES

ADA = "ada@example.org"


@pytest.fixture
async def ada(room: Room) -> Operator:
    return await operators.add_operator(room.pool, ADA, Role.SUPPORT, actor="tests")


@pytest.fixture
def guest(room: Room) -> Guest:
    return Guest(dashboard_app(room))


async def mailed_code(room: Room) -> str:
    """Deliver waiting mail into the inbox and read the code of the newest message."""
    await run_worker(room, stop=asyncio.Event(), until_empty=True)
    raw = await room.pool.fetchval("SELECT raw FROM inbox_messages ORDER BY id DESC LIMIT 1")
    found = re.search(r"\d{4} \d{4}", read_message(raw).text or "")
    assert found is not None
    return found[0]


async def queued_code(room: Room) -> str:
    """The code of the newest delivery that waits."""
    code: str = await room.pool.fetchval(
        "SELECT variables->>'code' FROM delivery_payloads ORDER BY delivery_id DESC LIMIT 1"
    )
    return code


async def test_an_operator_signs_in_with_a_mailed_code(room: Room, guest: Guest, ada: Operator) -> None:
    """The mail is an ordinary delivery; the code opens a session that the audit log records under the person."""
    asked = await guest.post("/sign-in/code", {"email": " Ada@Example.ORG ", "next": "/deliveries"})
    assert (asked.status, asked.headers["location"]) == (303, "/sign-in/code?next=%2Fdeliveries")
    assert {"HttpOnly", "SameSite=strict", "Max-Age=600"} <= set(asked.headers["set-cookie"].split("; "))
    assert "eight digits" in text_of(await guest.get(asked.headers["location"]))
    code = await mailed_code(room)
    entered = await guest.post("/sign-in/redeem", {"code": code.replace(" ", ""), "next": "/deliveries"})
    assert (entered.status, entered.headers["location"]) == (303, "/deliveries")
    page = await guest.get("/")
    assert (page.status, ADA in text_of(page)) == (200, True)
    entry = await room.pool.fetchrow("SELECT actor, subject, after FROM audit_log WHERE action = 'dashboard.sign_in'")
    assert tuple(entry)[:2] == (f"operator:{ADA}", f"operator:{ADA}")
    assert (await operators.find_by_email(room.pool, ADA)).last_sign_in_at is not None


async def test_a_code_works_once_and_only_in_its_browser(room: Room, guest: Guest, ada: Operator) -> None:
    """Another browser with the same code, and the same browser a second time, are refused."""
    await guest.post("/sign-in/code", {"email": ADA})
    code, other = await queued_code(room), Guest(guest.app)
    await other.post("/sign-in/code", {"email": "eve@example.org"})
    again = Guest(guest.app, guest.cookie)
    assert (await other.post("/sign-in/redeem", {"code": code})).status == 401
    assert (await Guest(guest.app).post("/sign-in/redeem", {"code": code})).status == 401
    assert (await guest.post("/sign-in/redeem", {"code": code})).status == 303
    used = await again.post("/sign-in/redeem", {"code": code})
    assert (used.status, "was used" in text_of(used)) == (401, True)


async def test_a_code_expires(room: Room, guest: Guest, ada: Operator) -> None:
    """Ten minutes later the right code is refused."""
    await guest.post("/sign-in/code", {"email": ADA})
    await room.pool.execute("UPDATE sign_in_codes SET expires_at = now()")
    assert (await guest.post("/sign-in/redeem", {"code": await queued_code(room)})).status == 401


async def test_five_wrong_attempts_void_a_code(room: Room, guest: Guest, ada: Operator) -> None:
    """The right code is refused after them, also if they were sent at once."""
    await guest.post("/sign-in/code", {"email": ADA})
    code = await queued_code(room)
    wrong = [guest.post("/sign-in/redeem", {"code": f"{n:08}"}) for n in range(ATTEMPTS)]
    assert {response.status for response in await asyncio.gather(*wrong)} == {401}
    assert (await guest.post("/sign-in/redeem", {"code": code})).status == 401


async def test_an_unknown_address_gets_the_same_answer_and_no_mail(room: Room, guest: Guest, ada: Operator) -> None:
    """Unknown, disabled and OIDC operators look like Ada from outside; only Ada gets mail."""
    off = await operators.add_operator(room.pool, "off@example.org", Role.ADMIN, actor="tests")
    await operators.disable_operator(room.pool, off.id, actor="tests")
    await room.pool.execute("INSERT INTO operators (email, role, origin) VALUES ('sso@example.org', 'admin', 'oidc')")
    answers = []
    for email in (ADA, "eve@example.org", off.email, "sso@example.org"):
        other = Guest(guest.app)
        asked = await other.post("/sign-in/code", {"email": email})
        refused = await other.post("/sign-in/redeem", {"code": "0000 0000"})
        shown = re.sub(r"postroom_sign_in_code=[^;]+", "", asked.headers["set-cookie"])
        answers.append((asked.status, asked.headers["location"], shown, refused.status, refused.body))
    assert len(set(answers)) == 1
    sent = await room.pool.fetch("SELECT email FROM delivery_recipients")
    assert [row["email"] for row in sent] == [ADA]
    rows = await room.pool.fetch("SELECT attempts, operator_id FROM sign_in_codes ORDER BY created_at")
    assert [tuple(row) for row in rows] == [(1, ada.id), (1, None), (1, None), (1, None)]


async def test_an_address_gets_a_limited_number_of_mails(room: Room, guest: Guest, ada: Operator) -> None:
    """Further requests get the usual answer without a mail, for an hour; another address is not affected."""
    for _ in range(MAILS_PER_ADDRESS + 2):
        assert (await guest.post("/sign-in/code", {"email": ADA})).status == 303
    assert await room.pool.fetchval("SELECT count(*) FROM deliveries") == MAILS_PER_ADDRESS
    assert (await guest.post("/sign-in/redeem", {"code": await queued_code(room)})).status == 401
    await room.pool.execute("UPDATE sign_in_codes SET created_at = created_at - interval '61 minutes'")
    await guest.post("/sign-in/code", {"email": ADA})
    assert await room.pool.fetchval("SELECT count(*) FROM deliveries") == MAILS_PER_ADDRESS + 1


async def test_strangers_lock_no_operator_out_of_a_known_network(room: Room, ada: Operator) -> None:
    """Requests from elsewhere do not count in a network from which the operator has signed in."""
    app = dashboard_app(replace(room, settings=replace(room.settings, transport="noop")))
    home, cafe, eve = (Guest(from_address(app, f"203.0.113.{number}")) for number in (7, 8, 9))
    await home.post("/sign-in/code", {"email": ADA})
    assert (await home.post("/sign-in/redeem", {"code": await queued_code(room)})).status == 303
    for _ in range(MAILS_PER_ADDRESS):
        await eve.post("/sign-in/code", {"email": ADA})
    before = await room.pool.fetchval("SELECT count(*) FROM deliveries")
    await cafe.post("/sign-in/code", {"email": ADA})
    assert await room.pool.fetchval("SELECT count(*) FROM deliveries") == before
    for _ in range(MAILS_PER_ADDRESS):
        await home.post("/sign-in/code", {"email": ADA})
    assert await room.pool.fetchval("SELECT count(*) FROM deliveries") == before + MAILS_PER_ADDRESS - 1


async def test_a_client_requests_a_limited_number_of_codes(room: Room, ada: Operator) -> None:
    """Concurrent requests cannot exceed the limit; a client at another address is not affected."""
    app = dashboard_app(replace(room, settings=replace(room.settings, transport="noop")))
    here, there = Guest(from_address(app, "203.0.113.7")), Guest(from_address(app, "203.0.113.8"))
    asked = [here.post("/sign-in/code", {"email": f"p{n}@example.org"}) for n in range(MAILS_PER_CLIENT + 3)]
    statuses = [response.status for response in await asyncio.gather(*asked)]
    assert (statuses.count(303), statuses.count(429)) == (MAILS_PER_CLIENT, 3)
    assert (await there.post("/sign-in/code", {"email": ADA})).status == 303


async def test_wrong_codes_of_a_client_are_answered_with_a_pause(
    room: Room, guest: Guest, ada: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After too many wrong codes a right one is not tried either: a code is short enough to guess."""
    monkeypatch.setattr("postroom.runtime.peers.GUESS_WINDOW_S", 3600.0)
    for _ in range(GUESSES):
        assert (await guest.post("/sign-in/redeem", {"code": "1"})).status == 401
    await guest.post("/sign-in/code", {"email": ADA})
    paused = await guest.post("/sign-in/redeem", {"code": await queued_code(room)})
    assert (paused.status, int(paused.headers["retry-after"]) > 0) == (429, True)


async def test_captured_codes_are_for_loopback(room: Room, ada: Operator) -> None:
    """Everyone who reads the inbox could read the code: from another host, a captured code is not offered."""
    app = dashboard_app(room)
    assert room.settings.transport == "capture"
    for client, shown in (("203.0.113.7", False), ("127.0.0.1", True), ("::1", True)):
        guest = Guest(from_address(app, client))
        assert (b"/sign-in/code" in (await guest.get("/sign-in")).body) is shown
        assert (await guest.post("/sign-in/code", {"email": ADA})).status == (303 if shown else 403)
    off = Guest(dashboard_app(replace(room, settings=replace(room.settings, sign_in_codes=False))))
    assert b"/sign-in/code" not in (await off.get("/sign-in")).body
    assert (await off.post("/sign-in/code", {"email": ADA})).status == 403


async def test_sign_in_forms_of_other_sites_are_refused(guest: Guest, ada: Operator) -> None:
    """A site cannot make a browser request a code or sign in with one; an invalid address is named."""
    for path in ("/sign-in/code", "/sign-in/redeem"):
        assert (await guest.post(path, {"email": ADA}, sec_fetch_site="cross-site")).status == 403
        assert (await guest.post(path, {"email": ADA}, origin="https://evil.example")).status == 403
    for email in ("", "ada", "Ada <ada@example.org>", "a@b.org\r\nbcc: c@d.org"):
        wrong = await guest.post("/sign-in/code", {"email": email})
        assert (wrong.status, b'role="alert"' in wrong.body) == (400, True)


async def test_a_code_is_nowhere_but_in_its_mail(
    room: Room, guest: Guest, ada: Operator, capfd: pytest.CaptureFixture[str]
) -> None:
    """Neither the audit log, the log, the API nor the tables of the dashboard hold it."""
    await guest.post("/sign-in/code", {"email": ADA})
    code = await mailed_code(room)
    digits = code.replace(" ", "")
    await guest.post("/sign-in/redeem", {"code": code})
    browser = await open_browser(room, app=guest.app)
    answers = [(await browser.get(path)).body.decode() for path in ("/v1/deliveries", "/v1/deliveries/1", "/v1/audit")]
    answers += [(await guest.get(path)).body.decode() for path in ("/deliveries/1", "/deliveries")]
    answers += [str(await room.pool.fetch(f"SELECT * FROM {table}")) for table in ("audit_log", "sign_in_codes")]
    printed = "".join(capfd.readouterr())
    for text in (*answers, printed):
        assert code not in text
        assert digits not in text


async def test_disabling_an_operator_ends_sessions_in_all_processes(room: Room, guest: Guest, ada: Operator) -> None:
    """The next request is refused by another process too; enabling does not revive the session, removing ends it."""
    copy = Guest(dashboard_app(room))

    async def enter() -> None:
        await guest.post("/sign-in/code", {"email": ADA})
        assert (await guest.post("/sign-in/redeem", {"code": await queued_code(room)})).status == 303
        copy.cookie = guest.cookie
        assert (await copy.get("/")).status == 200

    await enter()
    await operators.disable_operator(room.pool, ada.id, actor="tests")
    assert (await copy.get("/")).status == 303
    await operators.enable_operator(room.pool, ada.id, actor="tests")
    assert (await guest.get("/")).status == 303
    await enter()
    await operators.remove_operator(room.pool, ada.id, actor="tests")
    assert (await copy.get("/")).status == 303


async def test_a_code_of_an_operator_who_was_disabled_meanwhile_is_refused(
    room: Room, guest: Guest, ada: Operator
) -> None:
    """The check happens when the code is entered."""
    await guest.post("/sign-in/code", {"email": ADA})
    await operators.disable_operator(room.pool, ada.id, actor="tests")
    assert (await guest.post("/sign-in/redeem", {"code": await queued_code(room)})).status == 401


async def test_a_changed_role_holds_from_the_next_request_on(room: Room, guest: Guest, ada: Operator) -> None:
    """An open session has the scopes of the role that its operator has now."""
    await guest.post("/sign-in/code", {"email": ADA})
    await guest.post("/sign-in/redeem", {"code": await queued_code(room)})
    assert (await guest.get("/settings")).status == 403
    await operators.change_role(room.pool, ada.id, Role.READ_ONLY, actor="tests")
    assert (await guest.get("/settings")).status == 200
    assert (await guest.get("/suppressions/new")).status == 403
