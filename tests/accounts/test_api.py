"""Accounts over HTTP: statuses, response bodies, and responses that reveal no account."""

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
    """The response has the id of the new provisioned account."""
    answer = await browser.post("/v1/accounts", json={"email": "ada@example.org", "login": "ada"})
    assert answer.status == 201
    assert answer.json == {"id": 1, "email": "ada@example.org", "login": "ada", "status": "provisioned"}
    assert (await account(room.pool, 1))["status"] == "provisioned"


async def test_a_taken_address_is_201_too(browser: Browser, room: Room) -> None:
    """The response is the same whether or not the address has an account."""
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
    """A taken login is reported, because logins are public."""
    await sign_up(room.pool, "ada")
    answer = await browser.post("/v1/accounts", json={"email": "new@example.org", "login": "ADA"})
    assert (answer.status, answer.json["code"]) == (409, "login_taken")


async def test_wrong_fields_are_400(browser: Browser) -> None:
    """The response names each invalid field."""
    answer = await browser.post("/v1/accounts", json={"email": "nonsense", "login": " "})
    assert (answer.status, answer.fields) == (400, ["email", "login"])


async def test_sign_up_accepts_a_locale(browser: Browser, room: Room) -> None:
    """The locale is stored and returned; an invalid locale is rejected with its field."""
    body = {"email": "ada@example.org", "login": "ada", "locale": "fr-CA"}
    made = await browser.post("/v1/accounts", json=body)
    assert made.status == 201
    assert (await browser.get(f"/v1/accounts/{made.json['id']}")).json["locale"] == "fr-CA"
    wrong_one = {"email": "bob@example.org", "login": "bob", "locale": "no locale"}
    answer = await browser.post("/v1/accounts", json=wrong_one)
    assert (answer.status, answer.fields) == (400, ["locale"])
    assert await room.pool.fetchval("SELECT count(*) FROM accounts") == 1


async def test_a_secret_is_consumed_once(browser: Browser, room: Room) -> None:
    """The first use returns 200 with action and account, the second 410."""
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
    """An expired token is 410 by secret and by code."""
    ada = await sign_up(room.pool, "ada")
    await room.pool.execute("UPDATE tokens SET expires_at = 1")
    by_code = {"email": "ada@example.org", "code": (await token(room.pool, ada))["code"], "action": "activation"}
    for body in ({"secret": await signed(room.pool, ada)}, by_code):
        answer = await browser.post("/v1/tokens/consume", json=body)
        assert (answer.status, answer.json["code"]) == (410, "token_expired")


async def test_unknown_tokens_are_404_and_guesses_429(browser: Browser, room: Room) -> None:
    """Wrong codes for a known and an unknown address get identical responses."""
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
    """Address, code and action consume a token like its secret."""
    ada = await sign_up(room.pool, "ada", status="active")
    await browser.post("/v1/password-recoveries", json={"email": "ada@example.org"})
    code = (await token(room.pool, ada))["code"]
    body = {"email": "ada@example.org", "code": code, "action": "password_recovery"}
    answer = await browser.post("/v1/tokens/consume", json=body)
    assert (answer.status, answer.json["action"]) == (200, "password_recovery")


@pytest.mark.parametrize("written", ["ada@Exämple.ORG", " ada@xn--exmple-cua.org "])
async def test_spellings_of_an_address_are_one_account(browser: Browser, room: Room, written: str) -> None:
    """Code, token request and search work with every spelling of the address."""
    made = await browser.post("/v1/accounts", json={"email": "ada@exämple.org", "login": "ada"})
    assert made.json["email"] == "ada@xn--exmple-cua.org"
    code = (await token(room.pool, made.json["id"]))["code"]
    answer = await browser.post("/v1/tokens/consume", json={"email": written, "code": code, "action": "activation"})
    assert answer.status == 200
    await browser.post("/v1/password-recoveries", json={"email": written})
    assert (await token(room.pool, made.json["id"]))["action"] == "password_recovery"
    found = await browser.get(f"/v1/accounts?email={quote(written)}")
    assert [item["id"] for item in found.json["items"]] == [made.json["id"]]


async def test_unicode_domain_stored_by_sql_is_found(browser: Browser, room: Room) -> None:
    """Recovery, code and search find an account whose Unicode domain an application stored."""
    ada = await sign_up(room.pool, "ada", email="ada@exämple.org", status="active")
    assert (await browser.post("/v1/password-recoveries", json={"email": "ada@exämple.org"})).status == 202
    code = (await token(room.pool, ada))["code"]
    body = {"email": "Ada@exämple.org", "code": code, "action": "password_recovery"}
    assert (await browser.post("/v1/tokens/consume", json=body)).json["account"]["id"] == ada
    found = await browser.get(f"/v1/accounts?email={quote('ada@exämple.org')}")
    assert [item["id"] for item in found.json["items"]] == [ada]


async def test_malformed_code_does_not_count_as_a_guess(browser: Browser, room: Room) -> None:
    """A code that is not exactly five digits is rejected and not counted."""
    for code in ("12345\n", "1234", "123456", "1234x"):
        body = {"email": "ada@example.org", "code": code, "action": "activation"}
        assert (await browser.post("/v1/tokens/consume", json=body)).status == 400
    assert await room.pool.fetchval("SELECT count(*) FROM address_limits") == 0


@pytest.mark.parametrize("body", [{}, {"email": "a@example.org"}, {"secret": "x", "code": "12345"}])
async def test_incomplete_token_is_400(browser: Browser, body: dict[str, str]) -> None:
    """A request needs a secret, or all three of address, code and action."""
    assert (await browser.post("/v1/tokens/consume", json=body)).status == 400


@pytest.mark.parametrize("path", ["/v1/password-recoveries", "/v1/activations"])
async def test_token_request_is_202_for_every_address(browser: Browser, room: Room, path: str) -> None:
    """Known and unknown addresses get identical responses."""
    ada = await sign_up(room.pool, "ada")
    before = (await token(room.pool, ada))["id"]
    known = await browser.post(path, json={"email": "ada@example.org"})
    unknown = await browser.post(path, json={"email": "nobody@example.org"})
    assert (known.status, known.body) == (unknown.status, unknown.body) == (202, b'{"status":"accepted"}')
    assert (await token(room.pool, ada))["id"] > before


async def test_suspending_and_unsuspending(browser: Browser, room: Room) -> None:
    """Both return 200 with the changed account."""
    ada = await sign_up(room.pool, "ada", status="active")
    suspended = await browser.post(f"/v1/accounts/{ada}/suspend")
    assert (suspended.status, suspended.json["status"]) == (200, "suspended")
    back = await browser.post(f"/v1/accounts/{ada}/unsuspend")
    assert (back.status, back.json["status"], back.json["suspended_at"]) == (200, "active", None)
    assert (await browser.post("/v1/accounts/99/suspend")).status == 404


async def test_reissuing_an_activation(browser: Browser, room: Room) -> None:
    """Reissuing is 202 for a provisioned account, 409 for an active one."""
    ada = await sign_up(room.pool, "ada")
    assert (await browser.post(f"/v1/accounts/{ada}/activation")).status == 202
    assert await room.pool.fetchval("SELECT count(*) FROM tokens") == 2
    await browser.post("/v1/tokens/consume", json={"secret": await signed(room.pool, ada)})
    assert (await browser.post(f"/v1/accounts/{ada}/activation")).status == 409


async def test_reading_and_listing_accounts(browser: Browser, room: Room) -> None:
    """An account is read by id, and accounts are listed in pages."""
    ids = [await sign_up(room.pool, name) for name in ("ada", "bob")]
    page = (await browser.get("/v1/accounts?limit=1&status=provisioned")).json
    assert [item["id"] for item in page["items"]] == [ids[1]]
    rest = (await browser.get(f"/v1/accounts?limit=1&cursor={page['next_cursor']}")).json
    assert [item["id"] for item in rest["items"]] == [ids[0]]
    assert (await browser.get(f"/v1/accounts/{ids[0]}")).json["login"] == "ada"
    assert (await browser.get("/v1/accounts/99")).status == 404


async def test_scope_accounts_write_cannot_read_accounts(room: Room) -> None:
    """A key with accounts:write can sign up, but neither read nor suspend."""
    browser = await open_browser(room, "accounts:write", app=application(room))
    assert (await browser.post("/v1/accounts", json={"email": "a@example.org", "login": "a"})).status == 201
    assert (await browser.get("/v1/accounts")).status == 403
    assert (await browser.post("/v1/accounts/1/suspend")).status == 403


# ── the pages behind the links ────────────────────────────────────────────────────────────────────────────────────────


async def test_opening_a_link_changes_nothing(browser: Browser, room: Room) -> None:
    """A GET only shows a button; the page loads no resources and is not cached."""
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
    """Posting the form activates the account; a second post reports that the link was used."""
    ada = await sign_up(room.pool, "ada")
    target = f"/activate?token={await signed(room.pool, ada)}"
    form = {"content-type": "application/x-www-form-urlencoded", "accept": "text/html,*/*;q=0.8"}
    done = await Browser(browser.app).post(target, headers=form)
    assert (done.status, "Your account is active" in done.body.decode()) == (200, True)
    assert (await account(room.pool, ada))["status"] == "active"
    again = await Browser(browser.app).post(target, headers=form)
    assert (again.status, "has been used" in again.body.decode()) == (410, True)


async def test_activation_link_is_invalid_at_recover(browser: Browser, room: Room) -> None:
    """The secret of an activation is rejected at /recover, by GET and by POST."""
    ada = await sign_up(room.pool, "ada")
    secret = await signed(room.pool, ada)
    public = Browser(browser.app)
    assert (await public.get(f"/recover?token={secret}")).status == 404
    assert (await public.post(f"/recover?token={secret}")).status == 404
    assert (await public.get("/activate")).status == 404
    assert (await token(room.pool, ada))["consumed_at"] is None


async def test_expired_link_shows_a_page(browser: Browser, room: Room) -> None:
    """The page still opens; its button reports, in the reader's language, that the link has expired."""
    ada = await sign_up(room.pool, "ada")
    await room.pool.execute("UPDATE tokens SET expires_at = 1")
    page = await Browser(browser.app).post(
        f"/activate?token={await signed(room.pool, ada)}", headers={"accept-language": "fr-FR,fr;q=0.9"}
    )
    assert page.status == 410
    assert "Ce lien a expiré" in page.body.decode()
    assert '<html lang="fr">' in page.body.decode()


async def test_the_recovery_button_consumes(browser: Browser, room: Room) -> None:
    """The button consumes the token and does not change the status."""
    ada = await sign_up(room.pool, "ada", status="active")
    await browser.post("/v1/password-recoveries", json={"email": "ada@example.org"})
    target = f"/recover?token={await signed(room.pool, ada)}"
    assert (await Browser(browser.app).get(target)).status == 200
    assert (await Browser(browser.app).post(target)).status == 200
    assert (await token(room.pool, ada))["consumed_at"] is not None
    assert (await account(room.pool, ada))["status"] == "active"


@pytest.mark.parametrize("path", ["/activate", "/recover"])
async def test_link_of_a_suspended_account_reports_it(browser: Browser, room: Room, path: str) -> None:
    """A valid link of a suspended account reports the suspension."""
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
async def test_damaged_link_shows_a_page(browser: Browser, method: str, query: str) -> None:
    """An invalid link shows an HTML page with status 404."""
    page = await Browser(browser.app).ask(method, f"/activate?{query}")
    assert (page.status, page.headers["content-type"]) == (404, "text/html; charset=utf-8")
    assert "This link does not work" in page.body.decode()


async def test_page_does_not_echo_the_token(browser: Browser) -> None:
    """A page does not contain a forged token."""
    page = await Browser(browser.app).get("/activate?token=%3Cscript%3E")
    assert page.status == 404
    assert b"script" not in page.body


async def test_without_a_key_every_secret_is_404(room: Room) -> None:
    """A process without a key rejects every secret instead of failing."""
    ada = await sign_up(room.pool, "ada")
    app = HttpApplication(room, api.ENDPOINTS, auth=Authenticator(room.pool))
    browser = await open_browser(room, app=app)
    secret = await signed(room.pool, ada)
    assert (await browser.post("/v1/tokens/consume", json={"secret": secret})).status == 404
    assert (await browser.get(f"/activate?token={secret}")).status == 404
