"""Every endpoint of the dashboard for every role: outside the role it answers 403 and is not offered."""

import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from uuid import UUID

import pytest
from tests.support.builders import a_mail, accepted
from tests.support.dashboard import Guest, ambiguous, captured, dashboard_app, given_up, open_operator, text_of, tried
from tests.support.dashboard_roles import endpoint_at, is_outside, offered, scope_of
from tests.support.http import a_key
from tests.support.senders import an_account
from tests.support.templates import published

from postroom.dashboard.endpoints import ENDPOINTS
from postroom.db.room import Room
from postroom.events.audit import list_audit
from postroom.feedback.model import NewSuppression
from postroom.feedback.service import suppress
from postroom.http import operators
from postroom.http.model import Role
from postroom.runtime.endpoint import Endpoint

NOTE = {"note/en/subject": "Hello", "note/en/html": "<p>Hello</p>", "note/_samples/ada.json": "{}"}

BUTTONS = {
    *(f"POST /deliveries/{{delivery_id:int}}/{verb}" for verb in ("cancel", "retry", "resend")),
    *(f"POST /senders/{{sender_id:int}}/{verb}" for verb in ("pause", "resume", "test", "delete")),
    *(f"POST /operators/{{operator_id:int}}/{verb}" for verb in ("disable", "remove")),
    *("GET /operators/new", "GET /keys/new", "POST /keys/{key_id:int}/revoke", "POST /suppressions/lift"),
    *("POST /dead-letters/{delivery_id:int}/settle", "POST /inbox/clear"),
}
"""Buttons that an admin sees: a walk over empty pages would prove nothing."""


async def fill(room: Room, folder: Path) -> list[str]:
    """Records of every kind that has buttons; returns the paths of their pages."""
    await published(room.pool, folder, NOTE)
    ids = [*await tried(room.pool, a_mail()), await given_up(room.pool), await ambiguous(room.pool)]
    ids += await accepted(room.pool, a_mail())
    message = await captured(room.pool, b"Subject: Hello\r\n\r\nHello https://example.org/\r\n")
    senders = [
        await an_account(room.pool),
        await an_account(room.pool, "off@example.org", status="paused", paused_by="health", status_reason="bounces"),
    ]
    await suppress(room.pool, NewSuppression(email="ann@example.org"), actor="tests")
    await a_key(room, "shop", "deliveries:write")
    await operators.add_operator(room.pool, "ada@example.org", Role.SUPPORT, actor="tests")
    version = await room.pool.fetchval("SELECT version_id FROM templates WHERE id = 'note'")
    return [
        *(f"/deliveries/{number}" for number in ids),
        *(f"/senders/{number}" for number in senders),
        f"/inbox/{message}",
        f"/inbox/{message}?view=checks",
        "/suppressions/address?email=ann%40example.org",
        "/templates/note",
        f"/templates/note/versions/{version}",
    ]


def paths() -> Iterator[tuple[Endpoint, str]]:
    """Every endpoint with a path of it: parameters have the value 1, which many tables have, or are a UUID."""
    for endpoint in ENDPOINTS:
        path = re.sub(r"\{\w+:uuid\}", str(UUID(int=1)), endpoint.path)
        yield endpoint, re.sub(r"\{\w+(:\w+)?\}", "1", path)


async def test_only_pages_and_actions_of_the_role_are_shown_and_allowed(room: Room, tmp_path: Path) -> None:
    """Each endpoint outside a role answers 403, and no page of the role links to it or has a form for it."""
    details, app = await fill(room, tmp_path), dashboard_app(room)
    for role in Role:
        guest = await open_operator(room, role, app=app)
        token = {"token": await guest.token("/")}
        for endpoint, path in paths():
            if is_outside(role, endpoint):
                status = await status_of(guest, endpoint, path, token)
                assert (role, endpoint.method, path, status) == (role, endpoint.method, path, 403)
        seen = {f"{each.method} {each.path}" async for each in walk(guest, role, details)}
        if role is Role.ADMIN:
            assert BUTTONS - seen == set()


async def status_of(guest: Guest, endpoint: Endpoint, path: str, token: dict[str, str]) -> int:
    if endpoint.method == "GET":
        return (await guest.get(path)).status
    return (await guest.post(path, token, **{"content-type": endpoint.accepts[0]})).status


async def walk(guest: Guest, role: Role, details: list[str]) -> AsyncIterator[Endpoint]:
    """Read every page of a role; yield the endpoints that they offer, which must be of the role too."""
    pages = [path for endpoint, path in paths() if endpoint.method == "GET" and scope_of(endpoint)]
    readable = [path for path in pages if not is_outside(role, endpoint_at(path, "GET"))]
    for path in (*readable, *details):
        if path.endswith("/live"):  # streams
            continue
        page = await guest.get(path)
        assert page.status in (200, 303, 400, 404), (role, path, page.status, text_of(page)[:300])
        if page.status == 200 and page.headers["content-type"].startswith("text/html"):
            for each in offered(page.body.decode()):
                assert not is_outside(role, each), (role, path, each.method, each.path)
                yield each


async def test_operators_are_managed_on_their_page(room: Room) -> None:
    """Add, change the role, disable, enable and remove; the audit log names the person who did it."""
    guest = await open_operator(room, Role.ADMIN)
    done = await guest.submit("/operators/new", "/operators/new", email="Ada@example.org", role="support")
    assert "ada@example.org is an operator with the role support." in text_of(await guest.get(done.headers["location"]))
    ada = await operators.find_by_email(room.pool, "ada@example.org")
    assert b'value="support" selected' in (await guest.get(f"/operators/{ada.id}/role")).body
    await guest.submit("/operators", f"/operators/{ada.id}/role", role="read-only")
    for verb in ("disable", "enable", "remove"):
        assert (await guest.submit("/operators", f"/operators/{ada.id}/{verb}")).status == 303
    for fields in ({"email": "ada", "role": "admin"}, {"email": "x@example.org", "role": "root"}):
        wrong = await guest.submit("/operators/new", "/operators/new", **fields)
        assert (wrong.status, b'role="alert"' in wrong.body) == (400, True)
    entries, _cursor = await list_audit(room.pool, actor="operator:admin@example.org", action="operator")
    assert [entry.action.partition(".")[2] for entry in entries] == ["remove", "enable", "disable", "role", "add"]


async def test_forms_of_operators_need_the_token(room: Room) -> None:
    """A form without the session's token changes nothing, nor does one from another site."""
    guest = await open_operator(room, Role.ADMIN)
    ada = await operators.add_operator(room.pool, "ada@example.org", Role.SUPPORT, actor="tests")
    for verb in ("role", "disable", "enable", "remove"):
        path = f"/operators/{ada.id}/{verb}"
        assert (await guest.post(path, {"role": "admin"})).status == 403
        fields = {"role": "admin", "token": await guest.token("/")}
        assert (await guest.post(path, fields, sec_fetch_site="cross-site")).status == 403
    new = {"email": "eve@example.org", "role": "admin"}
    assert (await guest.post("/operators/new", new)).status == 403
    assert await operators.find_by_email(room.pool, ada.email) == ada


async def test_the_audit_log_is_filtered_by_person(room: Room) -> None:
    """An address selects the actions of this operator, in any spelling, and none of a key or another person."""
    app = dashboard_app(room)
    support, admin = await open_operator(room, Role.SUPPORT, app=app), await open_operator(room, Role.ADMIN, app=app)
    [one, two] = await accepted(room.pool, a_mail(), a_mail())
    for guest, number in ((support, one), (admin, two)):
        await guest.submit("/", f"/deliveries/{number}/cancel")
    page = text_of(await admin.get("/audit?person=Support%40example.org"))
    assert f"operator:support@example.org delivery.cancel delivery:{one}" in page
    assert f"delivery:{two}" not in page
    assert 'href="/audit?person=support%40example.org"' in (await admin.get("/operators")).body.decode()


async def test_an_operator_creates_no_key_above_the_role(room: Room) -> None:
    """Only admins manage keys; the session of an admin may give every scope."""
    admin = await open_operator(room, Role.ADMIN)
    made = await admin.submit("/keys/new", "/keys/new", name="shop", **{"scope.*": "on"})
    assert made.status == 200
    row = await room.pool.fetchrow("SELECT actor FROM audit_log WHERE action = 'key.create'")
    assert row["actor"] == "operator:admin@example.org"


async def test_signing_out_ends_the_session_of_an_operator_in_all_processes(room: Room) -> None:
    """A copy of the cookie is refused by another process after the sign-out."""
    guest = await open_operator(room, Role.SUPPORT)
    copy = Guest(dashboard_app(room), guest.cookie)
    assert (await copy.get("/")).status == 200
    await guest.submit("/", "/sign-out")
    assert (await copy.get("/")).status == 303


async def test_a_session_of_an_operator_expires(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twelve hours after the sign-in, every process refuses the cookie."""
    monkeypatch.setattr("postroom.dashboard.session.LIFETIME_S", -1)
    guest = await open_operator(room, Role.SUPPORT)
    assert (await guest.get("/")).status == 303
    assert (await Guest(dashboard_app(room), guest.cookie).get("/")).status == 303
