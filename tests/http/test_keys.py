"""API keys: made, listed, revoked, audited."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from tests.support.http import Browser, open_browser

from postroom.db.pool import Pool
from postroom.db.room import Room
from postroom.errors import BadInput, KeyNotFound
from postroom.events.audit import list_audit
from postroom.http import service
from postroom.http.asgi import build_app
from postroom.http.model import SCOPES


async def test_a_key_is_shown_once(browser: Browser, room: Room) -> None:
    """The answer to its creation holds the key; no listing does, and it works."""
    made = await browser.post("/v1/keys", json={"name": "ci", "scopes": ["inbox:read"]})
    assert made.status == 201
    assert made.headers["cache-control"] == "no-store"
    key = made.json["key"]
    listed = await browser.get("/v1/keys")
    assert key.encode() not in listed.body
    assert listed.json["items"][0]["prefix"] == key[:11]
    assert (await Browser(browser.app, key).get("/v1/inbox")).status == 200


@pytest.mark.parametrize(
    "body,field",
    [
        ({"name": "", "scopes": ["*"]}, "name"),
        ({"name": "two words", "scopes": ["*"]}, "name"),
        ({"name": "a" * 64, "scopes": ["*"]}, "name"),
        ({"name": "ci", "scopes": []}, "scopes"),
        ({"name": "ci", "scopes": ["everything"]}, "scopes"),
        ({"name": "ci"}, "scopes"),
        ({"name": "ci", "scopes": ["*"], "key": "pr_mine"}, "key"),
    ],
)
async def test_a_bad_key_is_refused_by_field(browser: Browser, body: object, field: str) -> None:
    """An invalid field of a new key is named, and no key is created."""
    response = await browser.post("/v1/keys", json=body)
    assert response.status == 400
    assert response.fields[0].startswith(field)
    assert len((await browser.get("/v1/keys")).json["items"]) == 1


async def test_the_service_checks_what_the_surface_checks(pool: Pool) -> None:
    """The command line cannot make a key that the API would refuse."""
    with pytest.raises(BadInput) as bad:
        await service.create_key(pool, "two words", scopes=["nonsense"], actor="tests")
    assert [error.field for error in bad.value.errors] == ["name", "scopes[0]"]
    with pytest.raises(BadInput):
        await service.create_key(pool, "ci", scopes=[], actor="tests")


async def test_a_key_cannot_give_what_it_does_not_have(room: Room) -> None:
    """A key that manages keys does not rise above its own scopes."""
    manager = await open_browser(room, "keys:manage", "inbox:read", name="manager")
    assert (await manager.post("/v1/keys", json={"name": "a", "scopes": ["inbox:read"]})).status == 201
    assert (await manager.post("/v1/keys", json={"name": "b", "scopes": ["deliveries:write"]})).status == 403
    assert (await manager.post("/v1/keys", json={"name": "c", "scopes": ["*"]})).status == 403


async def test_revoking_is_audited_and_final(pool: Pool) -> None:
    """The audit log records who revoked a key; a key is revoked once."""
    _key, row = await service.create_key(pool, "ci", scopes=["*"], actor="cli:ada")
    await service.revoke_key(pool, row.id, actor="cli:bob")
    with pytest.raises(KeyNotFound):
        await service.revoke_key(pool, row.id, actor="cli:bob")
    entries, _more = await list_audit(pool, subject=f"key:{row.id}", limit=10)
    assert [(entry.actor, entry.action) for entry in entries] == [("cli:bob", "key.revoke"), ("cli:ada", "key.create")]


async def test_one_admin_key_however_many_start_at_once(pool: Pool) -> None:
    """Processes that start together make one admin key, and only its maker sees it."""
    made = await asyncio.gather(*(service.ensure_admin_key(pool, actor="cli:up") for _ in range(5)))
    assert len({row.id for _key, row in made}) == 1
    assert sum(key is not None for key, _row in made) == 1
    assert made[0][1].allows("keys:manage")


async def test_keys_are_listed_in_pages(browser: Browser, pool: Pool) -> None:
    """Pages follow each other without gap or repetition."""
    for number in range(4):
        await service.create_key(pool, f"k{number}", scopes=["*"], actor="tests")
    names, cursor = [], ""
    while cursor is not None:
        page = (await browser.get(f"/v1/keys?limit=2{cursor and f'&cursor={cursor}'}")).json
        names += [key["name"] for key in page["items"]]
        cursor = page["next_cursor"]
    assert names == ["k3", "k2", "k1", "k0", "tests"]


async def test_a_key_revokes_only_what_it_could_make(room: Room) -> None:
    """A key that has scopes beyond those of the caller stays; one within them goes."""
    manager = await open_browser(room, "keys:manage", "deliveries:read")
    _key, mighty = await service.create_key(room.pool, "mighty", scopes=["*"], actor="tests")
    _key, writer = await service.create_key(room.pool, "writer", scopes=["deliveries:write"], actor="tests")
    _key, reader = await service.create_key(room.pool, "reader", scopes=["deliveries:read"], actor="tests")
    for row in (mighty, writer):
        assert (await manager.ask("DELETE", f"/v1/keys/{row.id}")).status == 403
    assert (await manager.ask("DELETE", f"/v1/keys/{reader.id}")).status == 200
    async with room.pool.acquire() as connection:
        assert await connection.fetchval("SELECT count(*) FROM api_keys WHERE revoked_at IS NOT NULL") == 1


async def test_a_key_that_expires_makes_no_key_that_lasts_longer(room: Room) -> None:
    """A key of five minutes cannot prolong itself, neither by another key nor by a change."""
    end = datetime.now(UTC) + timedelta(minutes=5)
    key, row = await service.create_key(room.pool, "short", scopes=["*"], actor="tests", limits={"expires_at": end})
    browser = Browser(build_app(room), key=key)
    for expiry in ({}, {"expires_at": (end + timedelta(seconds=1)).isoformat()}):
        refused = await browser.post("/v1/keys", json={"name": "long", "scopes": ["*"], **expiry})
        assert (refused.status, refused.json["errors"][0]["field"]) == (400, "expires_at")
    prolonged = await browser.ask("PATCH", f"/v1/keys/{row.id}", json={"expires_at": None})
    assert (prolonged.status, prolonged.json["errors"][0]["field"]) == (400, "expires_at")
    within = {"name": "shorter", "scopes": ["deliveries:read"], "expires_at": end.isoformat()}
    assert (await browser.post("/v1/keys", json=within)).status == 201


async def test_a_key_may_have_every_scope_by_name(room: Room) -> None:
    """The limit of the list is the number of scopes."""
    browser = await open_browser(room)
    assert (await browser.post("/v1/keys", json={"name": "all", "scopes": list(SCOPES)})).status == 201


@pytest.mark.parametrize("name", ["admin", "Accounts", "outbox", "schedule", "campaigns", "postroom", "sql", "python"])
async def test_reserved_name_is_refused(pool: Pool, name: str) -> None:
    """Deliveries of such a key would look like Postroom's own, and could take their idempotency keys."""
    with pytest.raises(BadInput, match="reserved") as caught:
        await service.create_key(pool, name, scopes=["*"], actor="tests")
    assert [error.field for error in caught.value.errors] == ["name"]


async def test_name_is_unique_among_living_keys(pool: Pool) -> None:
    """In any case of letters; a revoked key leaves its name to another."""
    _key, first = await service.create_key(pool, "shop", scopes=["*"], actor="tests")
    with pytest.raises(BadInput, match="another key is named Shop"):
        await service.create_key(pool, "Shop", scopes=["*"], actor="tests")
    await service.revoke_key(pool, first.id, actor="tests")
    _key, second = await service.create_key(pool, "shop", scopes=["*"], actor="tests")
    assert (first.actor, second.actor) == (f"key:{first.id}:shop", f"key:{second.id}:shop")
