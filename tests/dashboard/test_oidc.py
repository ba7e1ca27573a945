"""Sign-in at an OpenID Connect provider, which is Authlib's server on loopback."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import aiohttp
import pytest
from playwright.async_api import Browser, expect
from tests.support.dashboard import SECRET, Guest, dashboard_app, open_page, text_of
from tests.support.http import Response, served
from tests.support.oidc_provider import ADA, CLIENT_ID, CLIENT_SECRET, Provider, running_provider

from postroom.dashboard.oidc import oidc_provider, person_of
from postroom.db.room import Room
from postroom.errors import SettingInvalid
from postroom.http import operators
from postroom.http.model import OperatorOrigin, Role
from postroom.runtime.endpoint import Receive, Scope, Send
from postroom.settings import Settings, read_settings

ROLES = (("mail-admins", "admin"), ("helpdesk", "support"))


@pytest.fixture(scope="module")
def shared() -> Iterator[Provider]:
    with running_provider() as provider:
        yield provider


@pytest.fixture
def provider(shared: Provider, monkeypatch: pytest.MonkeyPatch) -> Provider:
    """The provider; changes of a test are undone."""
    monkeypatch.setenv("AUTHLIB_INSECURE_TRANSPORT", "1")
    shared.person, shared.alg, shared.is_signed, shared.is_key_published = dict(ADA), "RS256", True, True
    shared.asks_first = False
    return shared


def with_oidc(room: Room, provider: Provider, **changes: Any) -> Room:
    given: dict[str, Any] = {
        "oidc_issuer": provider.url,
        "oidc_client_id": CLIENT_ID,
        "oidc_client_secret": CLIENT_SECRET,
        "oidc_roles": ROLES,
        **changes,
    }
    return replace(room, settings=replace(room.settings, **given))


async def at_provider(address: str) -> dict[str, str]:
    """Open the address at the provider; the parameters with which it sends the browser back."""
    async with aiohttp.ClientSession() as client, client.get(address, allow_redirects=False) as answer:
        assert answer.status == 302, await answer.text()
        back = urlsplit(answer.headers["location"])
    assert back.path == "/sign-in/oidc/callback"
    return {name: values[0] for name, values in parse_qs(back.query).items()}


async def begun(guest: Guest, to: str = "/") -> dict[str, str]:
    sent = await guest.get(f"/sign-in/oidc?next={to}")
    assert sent.status == 303, text_of(sent)
    return await at_provider(sent.headers["location"])


def callback(parameters: dict[str, str]) -> str:
    return "/sign-in/oidc/callback?" + "&".join(f"{name}={value}" for name, value in parameters.items())


async def entered(guest: Guest, to: str = "/") -> Response:
    return await guest.get(callback(await begun(guest, to)), sec_fetch_site="cross-site")


@pytest.mark.parametrize("alg", ["RS256", "ES256"])
async def test_a_person_with_a_mapped_role_signs_in(room: Room, provider: Provider, alg: str) -> None:
    """The provider verifies PKCE and the client; the person becomes an operator, and the audit log has both steps."""
    provider.alg = alg
    guest = Guest(dashboard_app(with_oidc(room, provider)))
    assert b"Sign in with 127.0.0.1" in (await guest.get("/sign-in")).body
    answer = await entered(guest, "/deliveries")
    assert (answer.status, b'url=/deliveries"' in answer.body) == (200, True), text_of(answer)
    assert "SameSite=strict" in answer.headers["set-cookie"]
    assert "ada@example.org" in text_of(await guest.get("/"))
    made = await operators.find_by_email(room.pool, "ada@example.org")
    assert (made.role, made.origin) == (Role.ADMIN, OperatorOrigin.OIDC)
    rows = await room.pool.fetch("SELECT actor, action FROM audit_log ORDER BY id")
    assert [tuple(row) for row in rows] == [
        ("operator:ada@example.org", "operator.add"),
        ("operator:ada@example.org", "operator.identity"),
        ("operator:ada@example.org", "dashboard.sign_in"),
    ]


async def test_a_browser_keeps_its_cookies_on_the_way_through_another_site(
    chromium: Browser, room: Room, provider: Provider
) -> None:
    """The provider's page is another site: its link carries the cookie of the flow, and no strict one."""
    apps = [dashboard_app(room)]

    async def newest(scope: Scope, receive: Receive, send: Send) -> None:
        await apps[-1](scope, receive, send)

    provider.asks_first = True
    async with served(newest) as url, open_page(chromium) as page:
        here = url.replace("127.0.0.1", "localhost")
        apps.append(dashboard_app(with_oidc(room, provider, public_url=here)))
        await page.goto(f"{here}/deliveries")
        await page.get_by_role("link", name="Sign in with").click()
        await page.get_by_role("link", name="Agree").click()
        await page.wait_for_url(f"{here}/deliveries")
        await expect(page.get_by_title("Signed in as operator:ada@example.org")).to_be_attached()


async def test_the_mapped_role_follows_the_claim(room: Room, provider: Provider) -> None:
    """A changed group changes the role with the next sign-in; a person without a mapped group is refused then."""
    app = dashboard_app(with_oidc(room, provider))
    await entered(Guest(app))
    provider.person = {**ADA, "groups": "helpdesk"}
    assert (await entered(Guest(app))).status == 200
    assert (await operators.find_by_email(room.pool, "ada@example.org")).role is Role.SUPPORT
    provider.person = {**ADA, "groups": ["staff"]}
    refused = await entered(Guest(app))
    assert (refused.status, "is not an operator here" in text_of(refused)) == (403, True)


async def test_an_added_operator_keeps_the_role_and_a_disabled_one_is_refused(room: Room, provider: Provider) -> None:
    """The role that a person gave is stronger than the claim, and disabling is stronger than the provider."""
    app = dashboard_app(with_oidc(room, provider))
    ada = await operators.add_operator(room.pool, "ada@example.org", Role.READ_ONLY, actor="tests")
    guest = Guest(app)
    assert (await entered(guest)).status == 200
    assert (await guest.get("/suppressions/new")).status == 403
    await operators.disable_operator(room.pool, ada.id, actor="tests")
    assert (await entered(Guest(app))).status == 403
    assert (await guest.get("/")).status == 303


async def test_another_account_with_the_same_address_is_refused(room: Room, provider: Provider) -> None:
    """A provider gives the mailbox of someone who left to another person: the role is not inherited."""
    app = dashboard_app(with_oidc(room, provider))
    assert (await entered(Guest(app))).status == 200
    provider.person = {**ADA, "sub": "248289761002"}
    refused = await entered(Guest(app))
    assert (refused.status, "Another account of the provider" in text_of(refused)) == (403, True)
    provider.person = dict(ADA)
    assert (await entered(Guest(app))).status == 200


async def test_an_operator_follows_the_installation_to_another_provider(room: Room, provider: Provider) -> None:
    """Account ids belong to a provider: the first sign-in at the new one is kept instead."""
    app = dashboard_app(with_oidc(room, provider))
    assert (await entered(Guest(app))).status == 200
    await room.pool.execute("UPDATE operators SET oidc_issuer = 'https://former.example', oidc_subject = '7'")
    assert (await entered(Guest(app))).status == 200
    kept = await room.pool.fetchrow("SELECT oidc_issuer, oidc_subject FROM operators")
    assert tuple(kept) == (provider.url, ADA["sub"])


async def test_an_unknown_person_is_refused(room: Room, provider: Provider) -> None:
    """Without an operator and without a mapped role there is no session, and no row."""
    guest = Guest(dashboard_app(with_oidc(room, provider, oidc_roles=())))
    refused = await entered(guest)
    assert (refused.status, "ada@example.org is not an operator here." in text_of(refused)) == (403, True)
    assert (await guest.get("/")).status == 303
    assert await room.pool.fetchval("SELECT count(*) FROM operators") == 0


@pytest.mark.parametrize(
    "claims, reason",
    [
        ({"iss": "https://evil.example"}, "issued by another provider"),
        ({"aud": ["another-client"]}, "for another client"),
        ({"aud": [CLIENT_ID, "another-client"]}, "for another client"),
        ({"azp": "another-client"}, "for another client"),
        ({"nonce": "of another sign-in"}, "belongs to another sign-in"),
        ({"exp": 1}, "has expired"),
        ({"iat": 99_999_999_999}, "not valid yet"),
        ({"nbf": 99_999_999_999}, "not valid yet"),
        ({"exp": "soon"}, "no valid times"),
        ({"email_verified": False}, "verified e-mail address"),
        ({"email": None}, "verified e-mail address"),
        ({"email": "ada"}, "invalid address"),
        ({"email_verified": 1}, "verified e-mail address"),
        ({"email": "\u212aate@example.org"}, "invalid address"),
        ({"email": "kat\u00e9@example.org"}, "invalid address"),
        ({"email": "kate@example\uff0eorg"}, "invalid address"),
        ({"sub": None}, "account id"),
    ],
    ids=lambda value: str(value)[:30],
)
async def test_a_token_with_a_wrong_claim_is_refused(
    room: Room, provider: Provider, claims: dict[str, Any], reason: str
) -> None:
    """Each wrong claim is named, opens no session and creates no operator."""
    provider.person = {**ADA, **claims}
    guest = Guest(dashboard_app(with_oidc(room, provider)))
    refused = await entered(guest)
    assert (refused.status, reason in text_of(refused)) == (403, True), text_of(refused)
    assert (await guest.get("/")).status == 303
    assert await room.pool.fetchval("SELECT count(*) FROM operators") == 0


async def test_a_token_without_a_signature_or_of_an_unknown_key_is_refused(room: Room, provider: Provider) -> None:
    """`alg: none` and HS256 are no signatures of the provider, nor is one by a key that it does not publish."""
    app = dashboard_app(with_oidc(room, provider))
    provider.is_signed = False
    for alg, reason in (
        ("none", "not signed with RS256"),
        ("HS256", "not signed with RS256"),
        ("RS256", "not by a key"),
    ):
        provider.alg = alg
        assert reason in text_of(await entered(Guest(app)))
    provider.is_signed, provider.is_key_published = True, False
    assert "not by a key of the provider" in text_of(await entered(Guest(app)))


async def test_only_the_browser_that_began_can_finish(room: Room, provider: Provider) -> None:
    """Another browser, a changed state, a changed cookie, an error, another issuer and a second use are refused."""
    app = dashboard_app(with_oidc(room, provider))
    guest = Guest(app)
    parameters = await begun(guest)
    other = Guest(app)
    await begun(other)
    assert guest.cookie is not None
    wrong = [
        (Guest(app), parameters),
        (other, parameters),
        (Guest(app, guest.cookie), {**parameters, "state": "x"}),
        (Guest(app, guest.cookie + "x"), parameters),
        (Guest(app, "postroom_oidc=é.é"), parameters),
        (Guest(app, guest.cookie), {**parameters, "iss": "https://evil.example"}),
        (Guest(app, guest.cookie), {"state": parameters["state"], "error": "access_denied"}),
        (Guest(app, guest.cookie), {**parameters, "code": "x"}),
    ]
    for browser, query in wrong:
        assert (query, (await browser.get(callback(query))).status) == (query, 403)
    copy = Guest(app, guest.cookie)
    assert (await guest.get(callback(parameters))).status == 200
    assert (await copy.get(callback(parameters))).status == 403


async def test_no_secret_is_logged_or_audited(
    room: Room, provider: Provider, capfd: pytest.CaptureFixture[str]
) -> None:
    """Neither the client secret, nor codes and tokens; the pages of settings do not show the secret either."""
    guest = Guest(dashboard_app(with_oidc(room, provider)))
    parameters = await begun(guest)
    await guest.get(callback(parameters))
    await Guest(guest.app).get(callback(parameters))
    page = await guest.get("/settings?q=OIDC")
    audit = str(await room.pool.fetch("SELECT * FROM audit_log"))
    for text in (text_of(page), audit, "".join(capfd.readouterr())):
        assert CLIENT_SECRET not in text
        assert parameters["code"] not in text
        assert parameters["state"] not in text


async def test_a_provider_that_cannot_be_trusted_is_not_used(room: Room, provider: Provider) -> None:
    """A discovery document of another issuer, and a provider that does not answer, end on the sign-in page."""
    for issuer in (provider.url.replace("127.0.0.1", "localhost"), "http://127.0.0.1:1"):
        guest = Guest(dashboard_app(with_oidc(room, provider, oidc_issuer=issuer)))
        refused = await guest.get("/sign-in/oidc")
        assert (refused.status, b'role="alert"' in refused.body) == (502, True)
    off = Guest(dashboard_app(room))
    assert b"/sign-in/oidc" not in (await off.get("/sign-in")).body
    assert (await off.get("/sign-in/oidc")).status == 404


def test_settings_that_would_admit_strangers_are_refused() -> None:
    """A role for everyone needs domains, an issuer needs https and a client id; roles must exist."""
    safe = Settings(oidc_issuer="https://login.example.org", oidc_client_id="postroom")
    assert oidc_provider(safe, SECRET, room="postroom") is not None
    unsafe: list[tuple[dict[str, Any], str]] = [
        ({"oidc_client_id": None}, "CLIENT_ID"),
        ({"oidc_issuer": "http://login.example.org"}, "ISSUER"),
        ({"oidc_roles": (("*", "read-only"),)}, "DOMAINS"),
    ]
    for changes, variable in unsafe:
        with pytest.raises(SettingInvalid, match=variable):
            oidc_provider(replace(safe, **changes), SECRET, room="postroom")
    for value in ("staff=root", "staff", "=admin"):
        with pytest.raises(SettingInvalid, match="POSTROOM_OIDC_ROLES"):
            read_settings({"POSTROOM_OIDC_ROLES": value})
    with pytest.raises(SettingInvalid, match="openid"):
        read_settings({"POSTROOM_OIDC_SCOPES": "email"})


@pytest.mark.parametrize(
    "claims, role",
    [
        ({"groups": ["helpdesk"]}, Role.SUPPORT),
        ({"groups": ["helpdesk", "mail-admins"]}, Role.ADMIN),
        ({"groups": ["*"]}, Role.READ_ONLY),
        ({"groups": [{"mail-admins": 1}, 7, None]}, Role.READ_ONLY),
        ({}, Role.READ_ONLY),
    ],
)
def test_the_first_role_that_fits_is_given(claims: dict[str, Any], role: Role) -> None:
    """In the order of the setting; a claim cannot name the star."""
    settings = Settings(oidc_domains=("example.org",), oidc_roles=(*ROLES, ("*", "read-only")))
    person = {"iss": "https://login.example.org", "sub": "7", "email": "ada@Example.org", "email_verified": "true"}
    assert person_of({**person, **claims}, settings)[1] is role
    nested = replace(settings, oidc_role_claim="realm_access.roles")
    assert person_of({**ADA, "realm_access": {"roles": ["helpdesk"]}}, nested)[1] is Role.SUPPORT
