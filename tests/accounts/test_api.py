"""Accounts over HTTP: statuses, shapes, and what strangers cannot learn."""

from dataclasses import replace
from urllib.parse import quote

import pytest
from tests.support.accounts import KEY, account, sign_up, signed, token, wrong
from tests.support.http import Browser, open_browser

from postroom.accounts import api
from postroom.db.room import Room
from postroom.http.asgi import HttpApplication
from postroom.http.auth import Authenticator
from postroom.runtime.endpoint import Endpoint


def application(room: Room, endpoints: list[Endpoint] = api.ENDPOINTS) -> HttpApplication:
    keyed = replace(room, settings=replace(room.settings, secret_key=KEY))
    return HttpApplication(keyed, endpoints, auth=Authenticator(room.pool))


@pytest.fixture
async def browser(room: Room) -> Browser:
    return await open_browser(room, app=application(room))


async def test_signing_up_is_201(browser: Browser, room: Room) -> None:
    """The answer has the id; the account waits for its activation."""
    answer = await browser.post("/v1/accounts", json={"email": "ada@example.org", "login": "ada"})
    assert answer.status == 201
    assert answer.json == {"id": 1, "email": "ada@example.org", "login": "ada", "status": "provisioned"}
    assert (await account(room.pool, 1))["status"] == "provisioned"


async def test_a_taken_address_is_201_too(browser: Browser, room: Room) -> None:
    """The same shape and the same words, whether or not the address has an account."""
    await sign_up(room.pool, "ada")
    answers = [
        await browser.post("/v1/accounts", json={"email": email, "login": login})
        for email, login in (("ada@example.org", "countess"), ("new@example.org", "new"))
    ]
    assert [answer.status for answer in answers] == [201, 201]
    assert answers[0].json == {"id": 2, "email": "ada@example.org", "login": "countess", "status": "provisioned"}
    assert answers[0].json.keys() == answers[1].json.keys()
    assert answers[0].headers.keys() == answers[1].headers.keys()


async def test_a_taken_login_is_409(browser: Browser, room: Room) -> None:
    """Logins are public."""
    await sign_up(room.pool, "ada")
    answer = await browser.post("/v1/accounts", json={"email": "new@example.org", "login": "ADA"})
    assert (answer.status, answer.json["code"]) == (409, "login_taken")


async def test_wrong_fields_are_400(browser: Browser) -> None:
    """Each is named."""
    answer = await browser.post("/v1/accounts", json={"email": "nonsense", "login": " "})
    assert (answer.status, answer.fields) == (400, ["email", "login"])


async def test_a_sign_up_may_say_its_language(browser: Browser, room: Room) -> None:
    """It is kept with the account and shown; what is no locale is refused by name."""
    body = {"email": "ada@example.org", "login": "ada", "locale": "fr-CA"}
    made = await browser.post("/v1/accounts", json=body)
    assert made.status == 201
    assert (await browser.get(f"/v1/accounts/{made.json['id']}")).json["locale"] == "fr-CA"
    wrong_one = {"email": "bob@example.org", "login": "bob", "locale": "no locale"}
    answer = await browser.post("/v1/accounts", json=wrong_one)
    assert (answer.status, answer.fields) == (400, ["locale"])
    assert await room.pool.fetchval("SELECT count(*) FROM accounts") == 1


async def test_a_secret_is_consumed_once(browser: Browser, room: Room) -> None:
    """200 with action and account in ISO times, then 410."""
    ada = await sign_up(room.pool, "ada")
    secret = await signed(room.pool, ada)
    answer = await browser.post("/v1/tokens/consume", json={"secret": secret})
    assert answer.status == 200
    assert answer.json["action"] == "activation"
    assert (answer.json["account"]["id"], answer.json["account"]["status"]) == (ada, "active")
    assert answer.json["account"]["activated_at"].endswith("Z")
    again = await browser.post("/v1/tokens/consume", json={"secret": secret})
    assert (again.status, again.json["code"]) == (410, "token_used")


async def test_an_expired_token_is_410(browser: Browser, room: Room) -> None:
    """By secret and by code."""
    ada = await sign_up(room.pool, "ada")
    await room.pool.execute("UPDATE tokens SET expires_at = 1")
    by_code = {"email": "ada@example.org", "code": (await token(room.pool, ada))["code"], "action": "activation"}
    for body in ({"secret": await signed(room.pool, ada)}, by_code):
        answer = await browser.post("/v1/tokens/consume", json=body)
        assert (answer.status, answer.json["code"]) == (410, "token_expired")


async def test_unknown_tokens_are_404_and_guesses_429(browser: Browser, room: Room) -> None:
    """A wrong code at a known and at an unknown address: the same answers, byte for byte."""
    ada = await sign_up(room.pool, "ada")
    code = wrong((await token(room.pool, ada))["code"])
    answers = {}
    for email in ("ada@example.org", "nobody@example.org"):
        body = {"email": email, "code": code, "action": "activation"}
        answers[email] = [await browser.post("/v1/tokens/consume", json=body) for _ in range(6)]
        assert [answer.status for answer in answers[email]] == [404] * 5 + [429]
    known, unknown = ([answer.body for answer in found] for found in answers.values())
    assert known == unknown
    assert (await browser.post("/v1/tokens/consume", json={"secret": "x" * 86})).status == 404


async def test_consuming_by_code(browser: Browser, room: Room) -> None:
    """Address, code and action together are as good as the secret."""
    ada = await sign_up(room.pool, "ada", status="active")
    await browser.post("/v1/password-recoveries", json={"email": "ada@example.org"})
    code = (await token(room.pool, ada))["code"]
    body = {"email": "ada@example.org", "code": code, "action": "password_recovery"}
    answer = await browser.post("/v1/tokens/consume", json=body)
    assert (answer.status, answer.json["action"]) == (200, "password_recovery")


@pytest.mark.parametrize("written", ["ada@Exämple.ORG", " ada@xn--exmple-cua.org "])
async def test_an_address_is_one_however_it_is_written(browser: Browser, room: Room, written: str) -> None:
    """Signed up in one way, the code works, another can be asked for, and the account is found in every other."""
    made = await browser.post("/v1/accounts", json={"email": "ada@exämple.org", "login": "ada"})
    assert made.json["email"] == "ada@xn--exmple-cua.org"
    code = (await token(room.pool, made.json["id"]))["code"]
    answer = await browser.post("/v1/tokens/consume", json={"email": written, "code": code, "action": "activation"})
    assert answer.status == 200
    await browser.post("/v1/password-recoveries", json={"email": written})
    assert (await token(room.pool, made.json["id"]))["action"] == "password_recovery"
    found = await browser.get(f"/v1/accounts?email={quote(written)}")
    assert [item["id"] for item in found.json["items"]] == [made.json["id"]]


async def test_an_address_written_in_sql_is_found_as_it_was_written(browser: Browser, room: Room) -> None:
    """An application may keep a domain in its own script: a recovery finds it, its code works, a listing shows it."""
    ada = await sign_up(room.pool, "ada", email="ada@exämple.org", status="active")
    assert (await browser.post("/v1/password-recoveries", json={"email": "ada@exämple.org"})).status == 202
    code = (await token(room.pool, ada))["code"]
    body = {"email": "Ada@exämple.org", "code": code, "action": "password_recovery"}
    assert (await browser.post("/v1/tokens/consume", json=body)).json["account"]["id"] == ada
    found = await browser.get(f"/v1/accounts?email={quote('ada@exämple.org')}")
    assert [item["id"] for item in found.json["items"]] == [ada]


async def test_what_is_no_code_is_no_guess(browser: Browser, room: Room) -> None:
    """Five digits and nothing after them; a slip of the keyboard costs nobody a guess."""
    for code in ("12345\n", "1234", "123456", "1234x"):
        body = {"email": "ada@example.org", "code": code, "action": "activation"}
        assert (await browser.post("/v1/tokens/consume", json=body)).status == 400
    assert await room.pool.fetchval("SELECT count(*) FROM address_limits") == 0


@pytest.mark.parametrize("body", [{}, {"email": "a@example.org"}, {"secret": "x", "code": "12345"}])
async def test_half_a_token_is_400(browser: Browser, body: dict[str, str]) -> None:
    """A secret, or all three of address, code and action."""
    assert (await browser.post("/v1/tokens/consume", json=body)).status == 400


@pytest.mark.parametrize("path", ["/v1/password-recoveries", "/v1/activations"])
async def test_asking_for_a_token_is_202_for_everybody(browser: Browser, room: Room, path: str) -> None:
    """Known and unknown addresses get the same answer, byte for byte."""
    ada = await sign_up(room.pool, "ada")
    before = (await token(room.pool, ada))["id"]
    known = await browser.post(path, json={"email": "ada@example.org"})
    unknown = await browser.post(path, json={"email": "nobody@example.org"})
    assert (known.status, known.body) == (unknown.status, unknown.body) == (202, b'{"status":"accepted"}')
    assert (await token(room.pool, ada))["id"] > before


async def test_suspending_and_unsuspending(browser: Browser, room: Room) -> None:
    """200 with the account as it is now."""
    ada = await sign_up(room.pool, "ada", status="active")
    suspended = await browser.post(f"/v1/accounts/{ada}/suspend")
    assert (suspended.status, suspended.json["status"]) == (200, "suspended")
    back = await browser.post(f"/v1/accounts/{ada}/unsuspend")
    assert (back.status, back.json["status"], back.json["suspended_at"]) == (200, "active", None)
    assert (await browser.post("/v1/accounts/99/suspend")).status == 404


async def test_reissuing_an_activation(browser: Browser, room: Room) -> None:
    """202 while the account waits, 409 once it does not."""
    ada = await sign_up(room.pool, "ada")
    assert (await browser.post(f"/v1/accounts/{ada}/activation")).status == 202
    assert await room.pool.fetchval("SELECT count(*) FROM tokens") == 2
    await browser.post("/v1/tokens/consume", json={"secret": await signed(room.pool, ada)})
    assert (await browser.post(f"/v1/accounts/{ada}/activation")).status == 409


async def test_looking(browser: Browser, room: Room) -> None:
    """One account, and pages of them."""
    ids = [await sign_up(room.pool, name) for name in ("ada", "bob")]
    page = (await browser.get("/v1/accounts?limit=1&status=provisioned")).json
    assert [item["id"] for item in page["items"]] == [ids[1]]
    rest = (await browser.get(f"/v1/accounts?limit=1&cursor={page['next_cursor']}")).json
    assert [item["id"] for item in rest["items"]] == [ids[0]]
    assert (await browser.get(f"/v1/accounts/{ids[0]}")).json["login"] == "ada"
    assert (await browser.get("/v1/accounts/99")).status == 404


async def test_the_key_of_a_sign_up_form_cannot_look_around(room: Room) -> None:
    """accounts:write signs up, and neither reads nor suspends."""
    browser = await open_browser(room, "accounts:write", app=application(room))
    assert (await browser.post("/v1/accounts", json={"email": "a@example.org", "login": "a"})).status == 201
    assert (await browser.get("/v1/accounts")).status == 403
    assert (await browser.post("/v1/accounts/1/suspend")).status == 403


# ── the pages behind the links ────────────────────────────────────────────────────────────────────────────────────────


async def test_opening_a_link_changes_nothing(browser: Browser, room: Room) -> None:
    """Scanners and previews open links; the page has a button, loads nothing and is not kept."""
    ada = await sign_up(room.pool, "ada")
    secret = await signed(room.pool, ada)
    public = Browser(browser.app)
    page = await public.get(f"/activate?token={secret}&utm_source=mail")
    assert page.status == 200
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert f'<form method="post" action="?token={secret}">' in page.body.decode()
    assert page.headers["referrer-policy"] == "no-referrer"
    assert page.headers["cache-control"] == "no-store"
    assert "default-src 'none'" in page.headers["content-security-policy"]
    await public.ask("HEAD", f"/activate?token={secret}")
    assert (await account(room.pool, ada))["status"] == "provisioned"


async def test_the_button_activates(browser: Browser, room: Room) -> None:
    """Posting what the page's form posts activates; a second time says that it was used."""
    ada = await sign_up(room.pool, "ada")
    target = f"/activate?token={await signed(room.pool, ada)}"
    form = {"content-type": "application/x-www-form-urlencoded", "accept": "text/html,*/*;q=0.8"}
    done = await Browser(browser.app).post(target, headers=form)
    assert (done.status, "Your account is active" in done.body.decode()) == (200, True)
    assert (await account(room.pool, ada))["status"] == "active"
    again = await Browser(browser.app).post(target, headers=form)
    assert (again.status, "has been used" in again.body.decode()) == (410, True)


async def test_a_link_leads_to_its_own_page_only(browser: Browser, room: Room) -> None:
    """An activation's secret is refused at /recover, to look at and to use."""
    ada = await sign_up(room.pool, "ada")
    secret = await signed(room.pool, ada)
    public = Browser(browser.app)
    assert (await public.get(f"/recover?token={secret}")).status == 404
    assert (await public.post(f"/recover?token={secret}")).status == 404
    assert (await public.get("/activate")).status == 404
    assert (await token(room.pool, ada))["consumed_at"] is None


async def test_a_late_click_is_told_so(browser: Browser, room: Room) -> None:
    """The page itself still opens; the button says that the link has expired, in the reader's language."""
    ada = await sign_up(room.pool, "ada")
    await room.pool.execute("UPDATE tokens SET expires_at = 1")
    page = await Browser(browser.app).post(
        f"/activate?token={await signed(room.pool, ada)}", headers={"accept-language": "fr-FR,fr;q=0.9"}
    )
    assert page.status == 410
    assert "Ce lien a expiré" in page.body.decode()
    assert '<html lang="fr">' in page.body.decode()


async def test_the_recovery_button_consumes(browser: Browser, room: Room) -> None:
    """The token is used, and the status is as it was."""
    ada = await sign_up(room.pool, "ada", status="active")
    await browser.post("/v1/password-recoveries", json={"email": "ada@example.org"})
    target = f"/recover?token={await signed(room.pool, ada)}"
    assert (await Browser(browser.app).get(target)).status == 200
    assert (await Browser(browser.app).post(target)).status == 200
    assert (await token(room.pool, ada))["consumed_at"] is not None
    assert (await account(room.pool, ada))["status"] == "active"


@pytest.mark.parametrize("path", ["/activate", "/recover"])
async def test_who_is_suspended_is_told_so(browser: Browser, room: Room, path: str) -> None:
    """A right link of a suspended account promises nothing that is not so."""
    ada = await sign_up(room.pool, "ada", status="provisioned" if path == "/activate" else "active")
    if path == "/recover":
        await browser.post("/v1/password-recoveries", json={"email": "ada@example.org"})
    await room.pool.execute("UPDATE accounts SET status = 'suspended'")
    target = f"{path}?token={await signed(room.pool, ada)}"
    page = await Browser(browser.app).post(target, headers={"accept-language": "fr"})
    assert (page.status, "<h1>Votre compte est suspendu</h1>" in page.body.decode()) == (200, True)
    assert "actif" not in page.body.decode()
    assert (await account(room.pool, ada))["status"] == "suspended"


@pytest.mark.parametrize("query", [f"token={'x' * 300}", "token=a&token=b", "token=%ff", "%ff=1", "token"])
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_a_link_that_was_mangled_leads_to_a_page(browser: Browser, method: str, query: str) -> None:
    """People see a sentence, whatever a mail program made of the link."""
    page = await Browser(browser.app).ask(method, f"/activate?{query}")
    assert (page.status, page.headers["content-type"]) == (404, "text/html; charset=utf-8")
    assert "This link does not work" in page.body.decode()


async def test_a_page_never_repeats_what_it_was_given(browser: Browser) -> None:
    """A forged token is not echoed."""
    page = await Browser(browser.app).get("/activate?token=%3Cscript%3E")
    assert page.status == 404
    assert b"script" not in page.body


async def test_without_a_key_no_secret_is_known(room: Room) -> None:
    """A process that has no key refuses every secret instead of failing."""
    ada = await sign_up(room.pool, "ada")
    app = HttpApplication(room, api.ENDPOINTS, auth=Authenticator(room.pool))
    browser = await open_browser(room, app=app)
    secret = await signed(room.pool, ada)
    assert (await browser.post("/v1/tokens/consume", json={"secret": secret})).status == 404
    assert (await browser.get(f"/activate?token={secret}")).status == 404
