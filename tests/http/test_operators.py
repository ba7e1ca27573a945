"""Operators and roles: added, changed, disabled, removed, audited."""

from datetime import UTC, datetime, timedelta

import pytest
from tests.support.command_line import answer, postroom
from tests.support.dashboard_roles import scope_of
from tests.support.http import open_browser

from postroom.dashboard.endpoints import ENDPOINTS
from postroom.dashboard.navigation import GROUPS
from postroom.db.pool import Pool
from postroom.db.room import Room
from postroom.errors import BadInput, OperatorNotFound, ScopeMissing
from postroom.events.audit import list_audit
from postroom.http import operators, service
from postroom.http.asgi import build_app
from postroom.http.model import ALL, ROLE_SCOPES, SCOPE_ROLES, SCOPES, Role
from postroom.http.sessions import record_session


def test_roles_grow_from_read_only_to_admin() -> None:
    """Support has everything of read-only but the pages of the system; operator has all but keys and operators."""
    read_only, support = set(ROLE_SCOPES[Role.READ_ONLY]), set(ROLE_SCOPES[Role.SUPPORT])
    assert read_only == {scope for scope in SCOPES if scope.endswith(":read")}
    assert read_only - support == {"audit:read"}
    assert (
        support
        < set(ROLE_SCOPES[Role.OPERATOR])
        == set(SCOPES) - {"erasures:manage", "keys:manage", "operators:manage"}
    )
    assert ROLE_SCOPES[Role.ADMIN] == (ALL,)


async def test_every_scope_in_use_has_its_place_in_the_table_of_roles(room: Room) -> None:
    """The scopes of the API, of pages and of the navigation are those of the table; a new one must be placed there."""
    used = {endpoint.scope for endpoint in build_app(room).endpoints if endpoint.scope}
    used |= {link.scope for group in GROUPS for link in group.links}
    used |= {scope for endpoint in ENDPOINTS if (scope := scope_of(endpoint)) is not None}
    assert used <= set(SCOPE_ROLES)


async def test_every_role_opens_the_dashboard() -> None:
    """The overview needs deliveries:read, which no role lacks."""
    assert all(ALL in scopes or "deliveries:read" in scopes for scopes in ROLE_SCOPES.values())


async def test_an_operator_is_added_once_under_one_spelling(pool: Pool) -> None:
    """Capitals do not make another person; an invalid address names the field and stores nothing."""
    made = await operators.add_operator(pool, " Ada@Example.org ", Role.SUPPORT, actor="tests")
    assert (made.email, made.role) == ("ada@example.org", Role.SUPPORT)
    for email in ("ada@EXAMPLE.org", "ada", "Ada <ada@example.org>", ""):
        with pytest.raises(BadInput, match="email"):
            await operators.add_operator(pool, email, Role.ADMIN, actor="tests")
    assert [each.id for each in (await operators.list_operators(pool))[0]] == [made.id]


async def test_changes_of_operators_are_audited(pool: Pool) -> None:
    """Each change names its author and the person, with the role before and after; an equal role is no change."""
    made = await operators.add_operator(pool, "ada@example.org", Role.SUPPORT, actor="cli:bob")
    await operators.change_role(pool, made.id, Role.OPERATOR, actor="cli:bob")
    await operators.change_role(pool, made.id, Role.OPERATOR, actor="cli:bob")
    assert (await operators.disable_operator(pool, made.id, actor="cli:bob")).disabled_at is not None
    assert (await operators.enable_operator(pool, made.id, actor="cli:bob")).disabled_at is None
    await operators.remove_operator(pool, made.id, actor="cli:bob")
    entries, _cursor = await list_audit(pool, actor="cli:bob", subject="operator:ada@example.org")
    assert [entry.action for entry in entries] == [
        f"operator.{verb}" for verb in ("remove", "enable", "disable", "role", "add")
    ]
    assert entries[3].before == {"email": "ada@example.org", "role": "support"}
    assert entries[3].after == {"email": "ada@example.org", "role": "operator"}
    for change in (operators.disable_operator, operators.enable_operator, operators.remove_operator):
        with pytest.raises(OperatorNotFound):
            await change(pool, made.id, actor="cli:bob")


async def test_a_role_above_the_own_scopes_cannot_be_given_or_taken(pool: Pool) -> None:
    """A key that manages operators within its own scopes cannot create, change or remove an admin."""
    _key, manager = await service.create_key(
        pool, "manager", scopes=["operators:manage", *ROLE_SCOPES[Role.READ_ONLY]], actor="tests"
    )
    admin = await operators.add_operator(pool, "root@example.org", Role.ADMIN, actor="tests")
    reader = await operators.add_operator(pool, "eve@example.org", Role.READ_ONLY, actor="k", by=manager)
    with pytest.raises(ScopeMissing):
        await operators.add_operator(pool, "mal@example.org", Role.SUPPORT, actor="k", by=manager)
    for target, role in ((reader, Role.ADMIN), (admin, Role.READ_ONLY)):
        with pytest.raises(ScopeMissing):
            await operators.change_role(pool, target.id, role, actor="k", by=manager)
    for change in (operators.disable_operator, operators.enable_operator, operators.remove_operator):
        with pytest.raises(ScopeMissing):
            await change(pool, admin.id, actor="k", by=manager)
    assert (await operators.find_by_email(pool, "root@example.org")).disabled_at is None


def test_operators_at_the_command_line(room: Room) -> None:
    """Add, list, change the role, disable, enable and remove, each by the address."""
    settings = {"POSTROOM_DATABASE_URL": room.url, "POSTROOM_SCHEMA": room.name}
    made = answer(postroom("operators", "add", "ada@example.org", "--role", "support", "--json", settings=settings))
    assert (made["email"], made["role"], made["origin"]) == ("ada@example.org", "support", "added")
    assert postroom("operators", "role", "ada@example.org", "read-only", settings=settings).returncode == 0
    assert "disabled" in postroom("operators", "disable", "ada@example.org", settings=settings).stdout
    [listed] = answer(postroom("operators", "list", "--json", settings=settings))["items"]
    assert (listed["role"], listed["disabled_at"] is None) == ("read-only", False)
    assert postroom("operators", "remove", "ada@example.org", settings=settings).returncode == 0
    missing = postroom("operators", "disable", "ada@example.org", settings=settings)
    assert (missing.returncode, "There is no such operator." in missing.stderr) == (1, True)


async def test_operators_over_http(room: Room) -> None:
    """Added, changed, disabled, enabled and removed by a key with the scope; every change names the key."""
    browser = await open_browser(room, "*")
    made = await browser.post("/v1/operators", json={"email": "Ada@example.org", "role": "support"})
    assert (made.status, made.json["email"], "sessions_since" in made.json) == (201, "ada@example.org", False)
    path = made.headers["location"]
    assert (await browser.get(path)).json == made.json
    assert (await browser.ask("PATCH", path, json={"role": "read-only"})).json["role"] == "read-only"
    assert (await browser.post(f"{path}/disable")).json["disabled_at"] is not None
    assert (await browser.post(f"{path}/enable")).json["disabled_at"] is None
    assert [each["role"] for each in (await browser.get("/v1/operators")).json["items"]] == ["read-only"]
    assert (await browser.ask("DELETE", path)).status == 200
    assert (await browser.get(path)).status == 404
    assert (await browser.post("/v1/operators", json={"email": "ada", "role": "support"})).fields == ["email"]
    assert (await browser.post("/v1/operators", json={"email": "a@example.org", "role": "chief"})).fields == ["role"]
    entries, _more = await list_audit(room.pool, action="operator")
    verbs = [entry.action.partition(".")[2] for entry in reversed(entries)]
    assert verbs == ["add", "role", "disable", "enable", "remove"]
    assert {entry.actor.partition(":")[0] for entry in entries} == {"key"}


async def test_sessions_and_second_factors_are_looked_after_by_program(room: Room) -> None:
    """Over HTTP and at the command line: sessions are listed and ended, and a lost phone is removed with a mail."""
    ada = await operators.add_operator(room.pool, "ada@example.org", Role.SUPPORT, actor="tests")
    async with room.pool.acquire() as connection:
        end = datetime.now(UTC) + timedelta(hours=1)
        known = {"client": "192.0.2.7", "agent": "curl/8"}
        assert not await record_session(connection, ada, nonce="one", expires_at=end, method="code", **known)
    browser = await open_browser(room, "operators:manage", "deliveries:read", "deliveries:operate")
    browser_of_all = await open_browser(room)
    listed = await browser.get(f"/v1/operators/{ada.id}/sessions")
    [session] = listed.json["items"]
    assert (session["method"], session["client"], "nonce" in session) == ("code", "192.0.2.7", False)
    settings = {"POSTROOM_DATABASE_URL": room.url}
    assert "192.0.2.7" in postroom("operators", "sessions", ada.email, settings=settings).stdout
    refused = await browser.ask("POST", f"/v1/operators/{ada.id}/end-sessions")
    assert refused.status == 403  # the role has scopes that the key lacks
    assert (await browser_of_all.ask("POST", f"/v1/operators/{ada.id}/end-sessions")).status == 200
    assert (await browser.get(f"/v1/operators/{ada.id}/sessions")).json["items"] == []
    assert postroom("operators", "end-sessions", ada.email, settings=settings).returncode == 0
    equip = "UPDATE operators SET second_factor_since = now(), totp_secret = 'x', totp_key_id = 'x'"
    await room.pool.execute(equip)
    removed = await browser_of_all.ask("POST", f"/v1/operators/{ada.id}/remove-second-factor")
    assert (removed.status, removed.json["second_factor_since"]) == (200, None)
    await room.pool.execute(equip)
    assert postroom("operators", "remove-second-factor", ada.email, settings=settings).returncode == 0
    told = "SELECT count(*) FROM deliveries WHERE template_id = 'operator-notice'"
    assert await room.pool.fetchval(told) == 2


async def test_a_key_gives_no_role_above_its_own_scopes(room: Room) -> None:
    """`operators:manage` alone makes no admin, and removes none."""
    admin = await operators.add_operator(room.pool, "admin@example.org", Role.ADMIN, actor="tests")
    manager = await open_browser(room, "operators:manage", name="manager")
    for role in ("admin", "read-only"):
        refused = await manager.post("/v1/operators", json={"email": "bob@example.org", "role": role})
        assert (role, refused.status) == (role, 403)
    assert (await manager.ask("DELETE", f"/v1/operators/{admin.id}")).status == 403
    reader = await open_browser(room, "deliveries:read", name="reader")
    assert (await reader.get("/v1/operators")).status == 403
    assert [each.email for each in (await operators.list_operators(room.pool))[0]] == ["admin@example.org"]
