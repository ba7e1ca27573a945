"""Keys, scopes and what is remembered of them."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.support.http import Browser, open_browser
from tests.support.refusals import count_sign_ins, logged_refusals

from postroom.db.pool import Pool
from postroom.db.room import Room
from postroom.errors import ScopeMissing, Unauthenticated, WrongKeysTooOften
from postroom.http import service, store
from postroom.http.auth import CACHE_S, CACHE_SIZE, WRONG_KEYS, Authenticator, hash_key, looks_like_key, new_key
from postroom.http.model import SCOPES, ApiKey


class Monotonic:
    """A clock set by the test."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


async def _made(pool: Pool, *scopes: str, name: str = "ci") -> tuple[str, int]:
    key, row = await service.create_key(pool, name, scopes=scopes, actor="tests")
    return key, row.id


@pytest.mark.parametrize(
    "authorization",
    [
        None,
        "",
        "Bearer",
        "Bearer ",
        "Bearer pr_short",
        "Bearer xx_" + "a" * 43,
        "Basic cHJfOg==",
        "Bearer pr_" + "é" * 43,
        "Bearer pr_" + "a" * 43,
        "pr_" + "a" * 43,
    ],
)
async def test_request_without_a_valid_key_is_rejected(browser: Browser, authorization: str | None) -> None:
    """A missing, malformed or unknown key answers 401 as a problem, and says how to come in."""
    browser.key = None
    headers = {} if authorization is None else {"authorization": authorization}
    response = await browser.get("/v1/deliveries", headers=headers)
    assert response.status == 401
    assert response.json["code"] == "unauthenticated"
    assert response.headers["content-type"] == "application/problem+json"
    assert response.headers["www-authenticate"].startswith("Bearer")


async def test_a_refused_key_is_logged(room: Room) -> None:
    """With the reason, also for a key that lacks a scope; a request without a key is no sign-in."""
    reader, wrong = await open_browser(room, "deliveries:read"), "pr_" + "a" * 43
    for key, told in ((reader.key, [("api", "scope_missing")]), (wrong, [("api", "unauthenticated")]), (None, [])):
        before = count_sign_ins("api", "refused")
        with logged_refusals() as refused:
            await Browser(reader.app, key=key).ask("DELETE", "/v1/keys/1")
        assert refused == told
        assert count_sign_ins("api", "refused") == before + len(told)


@pytest.mark.parametrize(
    "method,path,scope",
    [
        ("POST", "/v1/deliveries", "deliveries:write"),
        ("POST", "/v1/deliveries/batch", "deliveries:write"),
        ("POST", "/v1/login-codes", "deliveries:write"),
        ("GET", "/v1/deliveries", "deliveries:read"),
        ("GET", "/v1/deliveries/1", "deliveries:read"),
        ("GET", "/v1/deliveries/1/attempts", "deliveries:read"),
        ("POST", "/v1/deliveries/1/cancel", "deliveries:operate"),
        ("POST", "/v1/deliveries/1/retry", "deliveries:operate"),
        ("POST", "/v1/deliveries/1/resend", "deliveries:operate"),
        ("GET", "/v1/dead-letters", "deliveries:read"),
        ("POST", "/v1/mass-actions", "deliveries:operate"),
        ("POST", "/v1/dead-letters/1/settle", "deliveries:operate"),
        ("GET", "/v1/templates", "templates:read"),
        ("POST", "/v1/templates/welcome/preview", "templates:read"),
        ("GET", "/v1/templates/welcome/versions", "templates:read"),
        ("POST", "/v1/templates/publish", "templates:write"),
        ("GET", "/v1/inbox", "inbox:read"),
        ("GET", "/v1/inbox/1", "inbox:read"),
        ("GET", "/v1/inbox/1/raw", "inbox:read"),
        ("DELETE", "/v1/inbox", "inbox:write"),
        ("GET", "/v1/keys", "keys:manage"),
        ("POST", "/v1/keys", "keys:manage"),
        ("DELETE", "/v1/keys/999", "keys:manage"),
    ],
)
async def test_each_endpoint_needs_its_scope(room: Room, method: str, path: str, scope: str) -> None:
    """A key with every scope but the right one gets 403 naming the scope; with it, it gets further."""
    others = [s for s in SCOPES if s != scope]
    outsider = await open_browser(room, *others, name="outsider")
    refused = await outsider.ask(method, path)
    assert refused.status == 403
    assert scope in refused.json["detail"]
    insider = await open_browser(room, scope, name="insider")
    assert (await insider.ask(method, path)).status not in (401, 403)


async def test_a_revoked_key_stops_at_once_where_it_was_revoked(browser: Browser, room: Room) -> None:
    """Revoking through the API ends the key for the next request of the same process."""
    other = await open_browser(room, "deliveries:read", name="other", app=browser.app)
    assert (await other.get("/v1/deliveries")).status == 200
    found = (await browser.get("/v1/keys")).json["items"]
    [key_id] = [key["id"] for key in found if key["name"] == "other"]
    assert (await browser.ask("DELETE", f"/v1/keys/{key_id}")).status == 200
    assert (await other.get("/v1/deliveries")).status == 401
    assert (await browser.ask("DELETE", f"/v1/keys/{key_id}")).status == 404


async def test_a_key_revoked_elsewhere_is_remembered_for_seconds_only(pool: Pool) -> None:
    """Another process's revocation holds here once the memory of the key has run out."""
    clock = Monotonic()
    auth = Authenticator(pool, monotonic=clock)
    key, key_id = await _made(pool, "inbox:read")
    await auth.authenticate(f"Bearer {key}", "inbox:read")
    await service.revoke_key(pool, key_id, actor="tests")
    await auth.authenticate(f"Bearer {key}", "inbox:read")
    clock.now += CACHE_S
    with pytest.raises(Unauthenticated):
        await auth.authenticate(f"Bearer {key}", "inbox:read")


async def test_scopes_are_checked_on_remembered_keys_too(pool: Pool) -> None:
    """The cache holds the key, not the result of the scope check."""
    auth = Authenticator(pool)
    key, _key_id = await _made(pool, "inbox:read")
    await auth.authenticate(f"Bearer {key}", "inbox:read")
    with pytest.raises(ScopeMissing):
        await auth.authenticate(f"Bearer {key}", "keys:manage")


async def test_the_memory_of_keys_is_bounded(pool: Pool) -> None:
    """No number of keys makes the cache grow beyond its size."""
    auth = Authenticator(pool)
    key, _key_id = await _made(pool, "*")
    row = await auth.authenticate(f"Bearer {key}", "inbox:read")
    auth._known = {hash_key(str(number)): (0.0, row) for number in range(CACHE_SIZE)}
    await auth.authenticate(f"Bearer {key}", "inbox:read")
    assert len(auth._known) == 1


async def test_use_is_noted_at_most_once_a_minute(pool: Pool) -> None:
    """`last_used_at` is written by the first use, left alone within the minute, and written again after it."""
    key, key_id = await _made(pool, "*")

    async def used() -> datetime | None:
        await Authenticator(pool).authenticate(f"Bearer {key}", "inbox:read")
        moment: datetime | None = await pool.fetchval("SELECT last_used_at FROM api_keys WHERE id = $1", key_id)
        return moment

    first = await used()
    assert first is not None
    assert await used() == first
    long_ago = datetime.now(UTC) - timedelta(minutes=5)
    await pool.execute("UPDATE api_keys SET last_used_at = $2 WHERE id = $1", key_id, long_ago)
    assert await used() > first  # type: ignore[operator] # it was set above


async def test_only_a_hash_of_the_key_is_stored(pool: Pool) -> None:
    """Neither the table nor the audit log holds the key; the table holds its SHA-256."""
    key, key_id = await _made(pool, "*")
    stored = await pool.fetchrow("SELECT key_hash, api_keys::text AS whole FROM api_keys WHERE id = $1", key_id)
    audit = await pool.fetch("SELECT audit_log::text AS whole FROM audit_log")
    assert stored["key_hash"] == hash_key(key)
    assert all(key not in row["whole"] for row in [stored, *audit])
    assert audit


def test_keys_are_long_and_different() -> None:
    """A key is `pr_` and 256 bits of chance."""
    keys = {new_key() for _ in range(100)}
    assert len(keys) == 100
    assert all(looks_like_key(key) and len(key) == 46 for key in keys)


async def test_wrong_keys_are_limited_by_address(room: Room) -> None:
    """After 100 wrong keys in a minute an address gets 429 for further ones; a valid key passes at once."""
    clock = Monotonic()
    auth = Authenticator(room.pool, monotonic=clock)
    key, _id = await _made(room.pool, "*")
    other, _id = await _made(room.pool, "*", name="other")
    await auth.authenticate(f"Bearer {key}", "deliveries:read", client="192.0.2.1")
    for _ in range(WRONG_KEYS):
        with pytest.raises(Unauthenticated):
            await auth.authenticate(f"Bearer {new_key()}", "deliveries:read", client="192.0.2.1")
    with pytest.raises(WrongKeysTooOften):
        await auth.authenticate(f"Bearer {new_key()}", "deliveries:read", client="192.0.2.1")
    await auth.authenticate(f"Bearer {other}", "deliveries:read", client="192.0.2.1")
    with pytest.raises(Unauthenticated):
        await auth.authenticate(f"Bearer {new_key()}", "deliveries:read", client="192.0.2.2")
    clock.now += CACHE_S + 1
    await auth.authenticate(f"Bearer {key}", "deliveries:read", client="192.0.2.1")
    clock.now += 60
    with pytest.raises(Unauthenticated):
        await auth.authenticate(f"Bearer {new_key()}", "deliveries:read", client="192.0.2.1")


async def test_wrong_keys_are_looked_up_with_one_statement_at_a_time(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys that are tried at the same time share statements, and each gets its own answer."""
    auth, statements = Authenticator(pool), 0
    key, _id = await _made(pool, "*")
    find = store.find_keys

    async def counted(connection: Any, **values: Any) -> Any:
        nonlocal statements
        statements += 1
        return await find(connection, **values)

    monkeypatch.setattr(store, "find_keys", counted)
    tried = [new_key() for _ in range(100)]
    tried[50] = key
    answers = await asyncio.gather(
        *(auth.authenticate(f"Bearer {each}", "deliveries:read", client="192.0.2.1") for each in tried),
        return_exceptions=True,
    )
    assert [isinstance(answer, ApiKey) for answer in answers] == [each == key for each in tried]
    assert statements < 5
