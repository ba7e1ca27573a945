"""HTTP endpoints of sender accounts and destination limits; no response contains a secret."""

import asyncio
import socket
from typing import Any

import msgspec
import pytest
from tests.support.builders import Recording
from tests.support.gmail_server import private_pem
from tests.support.http import Browser, open_browser
from tests.support.senders import SEALER, Ways
from tests.support.sessions import until_blocked
from tests.support.smtp_server import Script, smtp_server

from postroom.db.pool import Pool
from postroom.db.room import Room
from postroom.http.asgi import HttpApplication
from postroom.http.auth import Authenticator
from postroom.post.reply import Reply, Stage
from postroom.runtime.aws_credentials import CredentialChain
from postroom.runtime.endpoint import Site
from postroom.senders import store
from postroom.senders.api import ENDPOINTS
from postroom.senders.credentials import open_credentials
from postroom.senders.factory import ProviderAddresses
from postroom.senders.seal import purpose_of
from postroom.senders.service import Tools

PASSWORD = "correct horse battery"
NEW = {
    "email": "news@example.org",
    "display_name": "News",
    "auth_type": "smtp",
    "smtp_host": "127.0.0.1",
    "smtp_port": 2525,
    "smtp_username": "news",
    "smtp_password": PASSWORD,
    "smtp_use_tls": True,
    "daily_limit": 100,
    "batch_size": 10,
    "send_delay_ms": 250,
    "warmup": True,
}


def key_file() -> str:
    """The key file of a service account, as Google gives it out."""
    return msgspec.json.encode({"client_email": "robot@example.org", "private_key": private_pem()}).decode()


async def browser_with(room: Room, factory: Any, *scopes: str, allow_private: bool = True) -> Browser:
    site = Site(ENDPOINTS, tools=(Tools(SEALER, factory, allow_private=allow_private),))
    app = HttpApplication(room, (), auth=Authenticator(room.pool), sites=(site,))
    return await open_browser(room, *scopes, app=app)


@pytest.fixture
async def browser(room: Room) -> Browser:
    return await browser_with(room, ProviderAddresses(allow_private=True))


async def audits(pool: Pool) -> list[tuple[str, str]]:
    async with pool.acquire() as connection:
        rows = await connection.fetch(
            "SELECT action, concat(before::text, after::text) AS said FROM audit_log ORDER BY id"
        )
    return [(row["action"], row["said"]) for row in rows if not row["action"].startswith("key.")]


async def test_account_is_created_changed_and_removed(browser: Browser, pool: Pool) -> None:
    """An account is created, shown, listed, changed, paused, resumed and removed; no audit entry has a secret."""
    made = await browser.post("/v1/senders", json=NEW)
    assert made.status == 201, made.body
    sender = made.json["id"]
    assert (made.json["status"], made.json["warmup_stage"], made.json["warmup_current_limit"]) == ("warming_up", 1, 50)
    assert (made.json["daily_limit"], made.json["batch_size"], made.json["send_delay_ms"]) == (100, 10, 250)
    shown = await browser.get(f"/v1/senders/{sender}")
    listed = await browser.get("/v1/senders")
    assert shown.json == made.json == listed.json["items"][0]
    changed = await browser.ask("PATCH", f"/v1/senders/{sender}", json={"daily_limit": 7, "smtp_password": "other"})
    assert (changed.status, changed.json["daily_limit"], changed.json["smtp_username"]) == (200, 7, "news")
    paused = await browser.post(f"/v1/senders/{sender}/pause?reason=holiday")
    assert (paused.json["status"], paused.json["paused_by"], paused.json["status_reason"]) == (
        "paused",
        "person",
        "holiday",
    )
    assert (await browser.post(f"/v1/senders/{sender}/pause")).status == 200
    resumed = await browser.post(f"/v1/senders/{sender}/resume")
    assert (resumed.json["status"], resumed.json["status_reason"]) == ("warming_up", None)
    removed = await browser.ask("DELETE", f"/v1/senders/{sender}")
    assert (removed.status, removed.json) == (200, {"id": sender})
    assert (await browser.get(f"/v1/senders/{sender}")).status == 404
    log = await audits(pool)
    assert [action for action, _ in log] == [
        "sender.create",
        "sender.change",
        "sender.pause",
        "sender.resume",
        "sender.delete",
    ]
    said = str(log) + str([each.body for each in (made, shown, listed, changed, paused, resumed)])
    assert PASSWORD not in said
    assert "encrypted" not in said


async def test_the_secret_is_stored_sealed(browser: Browser, pool: Pool) -> None:
    """AES-256-GCM with the key's id in the value."""
    await browser.post("/v1/senders", json=NEW)
    async with pool.acquire() as connection:
        row = await connection.fetchrow("SELECT id, smtp_password_encrypted, credentials_key_id FROM sender_accounts")
    assert row["smtp_password_encrypted"].startswith(f"local:{row['credentials_key_id']}:")
    opened = await SEALER.open(row["smtp_password_encrypted"], purpose=purpose_of("smtp", row["id"]))
    assert opened.decode() == PASSWORD


@pytest.mark.parametrize(
    "auth_type, delay",
    [("smtp", 100), ("gmail", 400), ("ses", 0)],
)
async def test_defaults_by_type(browser: Browser, auth_type: str, delay: int) -> None:
    """The defaults are 2000 mails a day, 50 per claim, and the delay of the type."""
    body: dict[str, Any] = {"email": "a@example.org", "auth_type": auth_type}
    by_type: dict[str, dict[str, Any]] = {
        "smtp": {"smtp_host": "mail.example.org", "smtp_port": 587},
        "gmail": {"gmail_subject_email": "a@example.org", "gmail_credentials": key_file()},
        "ses": {"ses_region": "eu-west-1", "ses_access_key_id": "AK", "ses_secret_access_key": "SK"},
    }
    body |= by_type[auth_type]
    made = await browser.post("/v1/senders", json=body)
    assert made.status == 201, made.body
    assert (made.json["daily_limit"], made.json["batch_size"], made.json["send_delay_ms"]) == (2000, 50, delay)


async def test_an_ses_account_needs_no_key(browser: Browser, pool: Pool) -> None:
    """Without one, workers use their own AWS credentials; half a key is refused."""
    body = {"email": "a@example.org", "auth_type": "ses", "ses_region": "eu-west-1"}
    made = await browser.post("/v1/senders", json=body)
    assert made.status == 201, made.body
    async with pool.acquire() as connection:
        sealed = await store.find_sender(connection, id=made.json["id"])
    assert sealed is not None
    assert isinstance(await open_credentials(sealed, SEALER), CredentialChain)
    half = await browser.post("/v1/senders", json={**body, "email": "b@example.org", "ses_access_key_id": "AK"})
    assert half.status == 400


@pytest.mark.parametrize(
    "changes, fields",
    [
        ({"email": "nobody"}, ["email"]),
        ({"auth_type": "pigeon"}, ["auth_type"]),
        ({"smtp_host": None}, ["smtp_host"]),
        ({"smtp_host": "a host"}, ["smtp_host"]),
        ({"smtp_port": None}, ["smtp_port"]),
        ({"smtp_password": None}, ["smtp_password"]),
        ({"smtp_username": None}, ["smtp_username"]),
        ({"smtp_host": "mail.example.org", "smtp_use_tls": False}, ["smtp_use_tls"]),
        ({"gmail_subject_email": "a@example.org"}, ["gmail_subject_email"]),
        ({"display_name": "New\nBcc: x@example.org"}, ["display_name"]),
        ({"daily_limit": 0}, ["daily_limit"]),
        ({"lanes": []}, ["lanes"]),
        ({"lanes": ["fast"]}, ["lanes[0]"]),
        ({"surprise": 1}, ["surprise"]),
        (
            {"auth_type": "gmail", "smtp_host": None, "smtp_port": None, "smtp_username": None, "smtp_password": None},
            ["gmail_subject_email", "gmail_credentials"],
        ),
    ],
)
async def test_invalid_fields_are_named(browser: Browser, changes: dict[str, Any], fields: list[str]) -> None:
    """Every invalid field is named, and nothing is stored."""
    refused = await browser.post("/v1/senders", json={**NEW, **changes})
    assert refused.status in (400, 422)
    assert refused.fields == fields
    assert PASSWORD.encode() not in refused.body
    assert (await browser.get("/v1/senders")).json["items"] == []


async def test_a_mailbox_is_an_account_once(browser: Browser) -> None:
    """A mailbox has one account, in any spelling."""
    assert (await browser.post("/v1/senders", json=NEW)).status == 201
    again = await browser.post("/v1/senders", json={**NEW, "email": "NEWS@example.org"})
    assert (again.status, again.json["code"]) == (409, "sender_exists")


def test_scopes() -> None:
    """Reading needs `senders:read`, everything else `senders:manage`."""
    needed = {(endpoint.method, endpoint.scope) for endpoint in ENDPOINTS}
    assert {scope for method, scope in needed if method == "GET"} == {"senders:read"}
    assert {scope for method, scope in needed if method != "GET"} == {"senders:manage"}


async def test_a_change_keeps_what_it_does_not_name(browser: Browser, pool: Pool) -> None:
    """A new limit keeps the secret; removing a login removes its password."""
    sender = (await browser.post("/v1/senders", json=NEW)).json["id"]

    async def secret() -> str | None:
        async with pool.acquire() as connection:
            found: str | None = await connection.fetchval("SELECT smtp_password_encrypted FROM sender_accounts")
        return found

    before = await secret()
    await browser.ask("PATCH", f"/v1/senders/{sender}", json={"batch_size": 3})
    assert await secret() == before
    await browser.ask("PATCH", f"/v1/senders/{sender}", json={"smtp_username": None})
    assert await secret() is None


async def test_concurrent_changes_of_two_fields_are_both_kept(browser: Browser, pool: Pool) -> None:
    """Each change writes the whole row, so the second reads it only after the first has committed."""
    sender = (await browser.post("/v1/senders", json=NEW)).json["id"]
    async with pool.acquire() as holder, holder.transaction():
        await holder.execute("SELECT FROM sender_accounts FOR UPDATE")
        changes = [
            asyncio.create_task(browser.ask("PATCH", f"/v1/senders/{sender}", json=change))
            for change in ({"batch_size": 3}, {"notes": "moved"})
        ]
        await until_blocked(pool, len(changes))
    await asyncio.gather(*changes)
    found = (await browser.get(f"/v1/senders/{sender}")).json
    assert (found["batch_size"], found["notes"]) == (3, "moved")


@pytest.mark.parametrize(
    "change",
    [{"smtp_host": "127.0.0.2"}, {"smtp_port": 2526}, {"smtp_username": "other"}, {"smtp_use_tls": False}],
    ids=repr,
)
async def test_another_server_needs_the_password_again(browser: Browser, change: dict[str, Any]) -> None:
    """A stored password is sent only to the server and user it was given for."""
    sender = (await browser.post("/v1/senders", json=NEW)).json["id"]
    refused = await browser.ask("PATCH", f"/v1/senders/{sender}", json=change)
    assert (refused.status, refused.fields) == (400, ["smtp_password"])
    assert (await browser.get(f"/v1/senders/{sender}")).json["smtp_host"] == "127.0.0.1"
    given = await browser.ask("PATCH", f"/v1/senders/{sender}", json={**change, "smtp_password": "other"})
    assert given.status == 200, given.body


@pytest.mark.parametrize(
    "fields, change, secret",
    [
        (
            {"auth_type": "gmail", "gmail_subject_email": "a@example.org"},
            {"gmail_subject_email": "ceo@example.org"},
            "gmail_credentials",
        ),
        (
            {"auth_type": "ses", "ses_region": "eu-west-1", "ses_access_key_id": "A", "ses_secret_access_key": "B"},
            {"ses_region": "us-east-1"},
            "ses_secret_access_key",
        ),
    ],
)
async def test_another_mailbox_or_region_needs_the_secret_again(
    browser: Browser, fields: dict[str, Any], change: dict[str, Any], secret: str
) -> None:
    """Gmail and SES accounts follow the same rule."""
    key = {"gmail_credentials": key_file()} if fields["auth_type"] == "gmail" else {}
    sender = (await browser.post("/v1/senders", json={"email": "a@example.org", **fields, **key})).json["id"]
    refused = await browser.ask("PATCH", f"/v1/senders/{sender}", json=change)
    assert (refused.status, refused.fields) == (400, [secret])


@pytest.mark.parametrize(
    "uri", ["http://127.0.0.1:9/internal", "https://evil.example/token", "https://oauth2.googleapis.com@evil.example/"]
)
async def test_tokens_come_from_google(browser: Browser, uri: str) -> None:
    """A key file cannot name another token server."""
    file = {"client_email": "robot@example.org", "private_key": private_pem(), "token_uri": uri}
    account = {"email": "a@example.org", "auth_type": "gmail", "gmail_subject_email": "a@example.org"}
    refused = await browser.post(
        "/v1/senders", json={**account, "gmail_credentials": msgspec.json.encode(file).decode()}
    )
    assert (refused.status, refused.fields) == (400, ["gmail_credentials"])


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "10.0.0.5", "192.168.1.1", "::1", "169.254.169.254"])
async def test_accounts_do_not_reach_into_the_private_network(room: Room, host: str) -> None:
    """Private addresses need POSTROOM_SENDERS_ALLOW_PRIVATE; metadata addresses are always rejected."""
    strict = await browser_with(room, ProviderAddresses(), allow_private=False)
    refused = await strict.post("/v1/senders", json={**NEW, "smtp_host": host})
    assert (refused.status, refused.fields) == (400, ["smtp_host"])
    lenient = await browser_with(room, ProviderAddresses(allow_private=True))
    allowed = await lenient.post("/v1/senders", json={**NEW, "smtp_host": host})
    assert allowed.status == (400 if host == "169.254.169.254" else 201)


async def test_a_name_that_leads_inside_is_not_connected_to(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server name that resolves to loopback is reported, and no connection is made."""
    async with smtp_server(Script(users={"news": PASSWORD})) as server:
        inside = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", server.port))]
        real = socket.getaddrinfo
        monkeypatch.setattr(
            socket, "getaddrinfo", lambda host, *a, **k: inside if host == "mail.shop.example" else real(host, *a, **k)
        )
        browser = await browser_with(room, ProviderAddresses())
        asked = {**NEW, "smtp_host": "mail.shop.example", "smtp_port": server.port}
        sender = (await browser.post("/v1/senders", json=asked)).json["id"]
        tried = await browser.post(f"/v1/senders/{sender}/test")
        assert server.visits == []
    assert "POSTROOM_SENDERS_ALLOW_PRIVATE=1" in tried.json["steps"][-1]["detail"]


async def test_a_raised_limit_lets_a_paused_account_go_on(browser: Browser, pool: Pool) -> None:
    """An account paused at its limit returns to its warm-up."""
    sender = (await browser.post("/v1/senders", json={**NEW, "warmup_limits": [80, 90]})).json["id"]
    async with pool.acquire() as connection:
        await connection.execute(
            "UPDATE sender_accounts SET daily_sent = 70, daily_limit = 70, status = 'paused_limit_reached',"
            " resume_status = 'warming_up'"
        )
    raised = await browser.ask("PATCH", f"/v1/senders/{sender}", json={"daily_limit": 75})
    assert (raised.json["status"], raised.json["resume_status"]) == ("warming_up", None)
    lowered = await browser.ask("PATCH", f"/v1/senders/{sender}", json={"daily_limit": 60})
    assert (lowered.json["status"], lowered.json["resume_status"]) == ("paused_limit_reached", "warming_up")
    ended = await browser.ask("PATCH", f"/v1/senders/{sender}", json={"warmup": False, "daily_limit": 500})
    assert (ended.json["status"], ended.json["warmup_current_limit"]) == ("active", None)


async def test_a_trial_that_succeeds(room: Room) -> None:
    """The trial connects, logs in and sends; a plain connection is not reported as secure."""
    browser = await browser_with(room, ProviderAddresses(allow_private=True))
    async with smtp_server(Script(users={"news": PASSWORD})) as server:
        sender = (await browser.post("/v1/senders", json={**NEW, "smtp_port": server.port})).json["id"]
        tried = await browser.post(f"/v1/senders/{sender}/test")
        [message] = server.messages
    assert tried.json["ok"], tried.body
    assert [step["name"] for step in tried.json["steps"]] == [
        "credentials", "connect", "log in", "sender", "recipient", "content", "taken",
    ]  # fmt: skip
    assert (message.sender, message.recipients, message.user) == ("news@example.org", ("news@example.org",), "news")


async def test_a_trial_that_fails_says_where(room: Room) -> None:
    """With a wrong password the login step fails, and the account is unchanged."""
    browser = await browser_with(room, ProviderAddresses(allow_private=True))
    async with smtp_server(Script(users={"news": "another"})) as server:
        sender = (await browser.post("/v1/senders", json={**NEW, "smtp_port": server.port})).json["id"]
        tried = await browser.post(f"/v1/senders/{sender}/test")
    assert not tried.json["ok"]
    last = tried.json["steps"][-1]
    assert (last["name"], last["ok"], last["detail"]) == ("log in", False, "535 5.7.8 wrong credentials")
    assert (await browser.get(f"/v1/senders/{sender}")).json["status"] == "warming_up"


async def test_trial_reports_the_reply_of_the_transport(room: Room) -> None:
    """The trial reports the reply of the transport as text."""
    way = Recording(Reply(Stage.CONNECT, text="connection refused"))
    browser = await browser_with(room, lambda _account, _credentials: way)
    sender = (await browser.post("/v1/senders", json=NEW)).json["id"]
    tried = await browser.post(f"/v1/senders/{sender}/test")
    assert tried.json["steps"][-1] == {"name": "connect", "ok": False, "detail": "connection refused"}


async def test_destinations(browser: Browser, pool: Pool) -> None:
    """Limits are set, listed and removed, and each step is audited."""
    put = await browser.ask("PUT", "/v1/domains/Example.org", json={"max_connections": 5, "messages_per_second": 2.5})
    assert (put.status, put.json["domain"], put.json["messages_per_second"]) == (200, "example.org", 2.5)
    assert [item["domain"] for item in (await browser.get("/v1/domains")).json["items"]] == ["example.org"]
    assert (await browser.ask("PUT", "/v1/domains/example.org", json={})).fields == ["max_connections"]
    assert (await browser.ask("DELETE", "/v1/domains/example.org")).json == {"domain": "example.org"}
    assert (await browser.ask("DELETE", "/v1/domains/example.org")).status == 404
    assert [action for action, _ in await audits(pool)] == ["domain.put", "domain.delete"]


async def test_pages(browser: Browser) -> None:
    """Three accounts, two to a page."""
    for n in range(3):
        await browser.post("/v1/senders", json={**NEW, "email": f"{n}@example.org"})
    first = (await browser.get("/v1/senders?limit=2")).json
    second = (await browser.get(f"/v1/senders?limit=2&cursor={first['next_cursor']}")).json
    assert [len(first["items"]), len(second["items"]), second["next_cursor"]] == [2, 1, None]


def test_ways_are_recorded() -> None:
    """The support's factory makes one way per account."""
    assert Ways().sent("nobody@example.org") == 0
