"""Captured sign-in codes: only those who manage operators may read them, or all others could become an admin."""

import asyncio
import html
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

import aiohttp
import pytest
from tests.support.builders import a_mail, accepted
from tests.support.dashboard import Guest, dashboard_app, given_up, open_operator, text_of
from tests.support.dashboard_walk import walk
from tests.support.http import open_browser, served
from tests.support.patience import PATIENCE_S

from postroom.app import run_worker
from postroom.db.room import Room
from postroom.delivery.check import SIGN_IN_SOURCE
from postroom.delivery.model import Lane
from postroom.http import operators
from postroom.http.model import ROLE_SCOPES, SCOPES, Role

ROOT = "root@example.org"
BELOW_ADMIN = [role for role in Role if role is not Role.ADMIN]
READS = ("", "?view=text", "?view=source", "?view=headers", "?view=checks", "/raw", "/preview", "/attachments/1")


@dataclass(frozen=True, slots=True)
class Mailbox:
    """The captured sign-in mail of an admin, its code, and an ordinary message before it."""

    code: str
    message_id: int
    delivery_id: int
    other_id: int

    def is_in(self, body: bytes) -> bool:
        return self.code in body.decode("utf-8", "replace") or self.code.replace(" ", "") in body.decode(
            "utf-8", "replace"
        )


@pytest.fixture
async def mailbox(room: Room) -> Mailbox:
    await operators.add_operator(room.pool, ROOT, Role.ADMIN, actor="tests")
    await accepted(room.pool, a_mail(ROOT, subject="An order"))
    await run_worker(room, stop=asyncio.Event(), until_empty=True)
    await Guest(dashboard_app(room)).post("/sign-in/code", {"email": ROOT})
    code = await room.pool.fetchval(
        "SELECT variables->>'code' FROM delivery_payloads ORDER BY delivery_id DESC LIMIT 1"
    )
    await run_worker(room, stop=asyncio.Event(), until_empty=True)
    other, own = await room.pool.fetch("SELECT id, delivery_id FROM inbox_messages ORDER BY id")
    return Mailbox(code, own["id"], own["delivery_id"], other["id"])


async def test_a_key_without_the_scope_does_not_find_the_code(room: Room, mailbox: Mailbox) -> None:
    """List, search, latest, wait, message, source and checks: it does not exist for a key that may do all else."""
    reader = await open_browser(room, *(scope for scope in SCOPES if scope != "operators:manage"))
    digits = mailbox.code.replace(" ", "%20")
    listed = await reader.get("/v1/inbox")
    assert [item["id"] for item in listed.json["items"]] == [mailbox.other_id]
    for path in (f"?to={ROOT}", f"?query={digits}", "?query=is:unread"):
        assert not mailbox.is_in((await reader.get(f"/v1/inbox{path}")).body)
    assert (await reader.get(f"/v1/inbox/latest?to={ROOT}")).json["id"] == mailbox.other_id
    assert (await reader.get(f"/v1/inbox/wait?to={ROOT}&after={mailbox.other_id}&timeout=0")).status == 404
    for path in ("", "/raw", "/checks"):
        assert (await reader.get(f"/v1/inbox/{mailbox.message_id}{path}")).status == 404


async def test_a_key_without_the_scope_cannot_use_the_message(room: Room, mailbox: Mailbox) -> None:
    """It is neither marked, requested, released nor deleted; "delete all" leaves it."""
    relayed = replace(room, settings=replace(room.settings, inbox_release_relay="smtp://127.0.0.1:1"))
    writer = await open_browser(relayed, *(scope for scope in SCOPES if scope != "operators:manage"))
    at = f"/v1/inbox/{mailbox.message_id}"
    assert (await writer.ask("PATCH", at, json={"read": True})).status == 404
    assert (await writer.post(f"{at}/links", json={})).status == 404
    assert (await writer.post(f"{at}/release", json={"to": "eve@example.org"})).status == 404
    assert (await writer.ask("DELETE", at)).status == 404
    assert (await writer.ask("DELETE", "/v1/inbox")).json == {"cleared": 1}
    row = await room.pool.fetchrow("SELECT count(*) AS left, bool_and(read_at IS NULL) AS unread FROM inbox_messages")
    assert tuple(row) == (1, True)


@pytest.mark.parametrize("scopes", [("*",), ("inbox:read", "operators:manage")])
async def test_a_key_that_manages_operators_reads_the_code(
    room: Room, mailbox: Mailbox, scopes: tuple[str, ...]
) -> None:
    """The key of `postroom up` has all scopes: a developer signs in with the code in the inbox."""
    reader = await open_browser(room, *scopes)
    assert (await reader.get(f"/v1/inbox/latest?to={ROOT}")).json["id"] == mailbox.message_id
    assert mailbox.is_in((await reader.get(f"/v1/inbox/{mailbox.message_id}/raw")).body)
    assert (await reader.get(f"/v1/inbox/wait?query={mailbox.code[:4]}&timeout=0")).status == 200


async def test_a_code_stays_hidden_when_its_delivery_is_deleted(room: Room, mailbox: Mailbox) -> None:
    """The message keeps the mark that it got when it was captured."""
    await room.pool.execute("DELETE FROM deliveries WHERE id = $1", mailbox.delivery_id)
    reader = await open_browser(room, "inbox:read")
    assert [item["id"] for item in (await reader.get("/v1/inbox")).json["items"]] == [mailbox.other_id]
    assert (await reader.get(f"/v1/inbox/{mailbox.message_id}")).status == 404


@pytest.mark.parametrize("role", BELOW_ADMIN)
async def test_a_role_below_admin_does_not_find_the_code(room: Room, mailbox: Mailbox, role: Role) -> None:
    """Neither in the inbox, its search and its counts, nor by the address of the message, nor from its delivery."""
    guest = await open_operator(room, role)
    listed = await guest.get("/inbox")
    assert f'href="/inbox/{mailbox.message_id}"' not in listed.body.decode()
    assert f'href="/inbox/{mailbox.other_id}"' in listed.body.decode()
    assert "1 message" in text_of(listed)
    assert not mailbox.is_in((await guest.get(f"/inbox?query=to:{ROOT}")).body)
    for path in READS:
        assert ((await guest.get(f"/inbox/{mailbox.message_id}{path}")).status, path) == (404, path)
    assert f"/inbox/{mailbox.message_id}" not in (await guest.get(f"/inbox/{mailbox.other_id}")).body.decode()
    assert f"/inbox/{mailbox.message_id}" not in (await guest.get(f"/deliveries/{mailbox.delivery_id}")).body.decode()


async def test_actions_of_an_operator_leave_the_code(room: Room, mailbox: Mailbox) -> None:
    """Mark, delete and delete all do what the page shows: the message that it does not show stays as it is."""
    guest = await open_operator(room, Role.OPERATOR)
    token = {"token": await guest.token("/")}
    for verb in ("unread", "delete", "links"):
        await guest.post(f"/inbox/{mailbox.message_id}/{verb}", token)
    for verb in ("read", "clear"):
        assert (await guest.post(f"/inbox/{verb}", token)).status == 303
    rows = await room.pool.fetch("SELECT id, read_at FROM inbox_messages")
    assert [tuple(row) for row in rows] == [(mailbox.message_id, None)]


async def test_an_admin_reads_the_code(room: Room, mailbox: Mailbox) -> None:
    """The list has the message, and says that others do not see it."""
    guest = await open_operator(room, Role.ADMIN)
    assert f'href="/inbox/{mailbox.message_id}"' in (await guest.get("/inbox")).body.decode()
    page = await guest.get(f"/inbox/{mailbox.message_id}?view=text")
    assert mailbox.is_in(page.body)
    assert "Only those who manage operators see this message" in text_of(page)
    assert f"/inbox/{mailbox.message_id}" in (await guest.get(f"/deliveries/{mailbox.delivery_id}")).body.decode()


async def test_the_live_list_has_no_code(room: Room, mailbox: Mailbox) -> None:
    """The stream of a support operator shows the other message only."""
    app = dashboard_app(room)
    guest = await open_operator(room, Role.SUPPORT, app=app)
    async with (
        served(app) as url,
        aiohttp.ClientSession(headers={"cookie": guest.cookie or ""}) as client,
        asyncio.timeout(PATIENCE_S),
        client.get(f"{url}/inbox/live") as response,
    ):
        event = b"".join([await response.content.readline() for _ in range(4)])
    assert b"An order" in event
    assert not mailbox.is_in(event)
    assert f"/inbox/{mailbox.message_id}".encode() not in event


async def test_no_page_shows_a_code_to_a_lower_role(room: Room, mailbox: Mailbox) -> None:
    """Captured, waiting and given up: every page that the widest role below admin reaches, and its downloads."""
    waiting = a_mail(ROOT, lane=Lane.AUTH, source=SIGN_IN_SOURCE, subject=mailbox.code, text=mailbox.code)
    await accepted(room.pool, waiting)
    await given_up(room.pool, waiting)
    guest = await open_operator(room, Role.OPERATOR)
    looked: list[str] = []

    async def look(path: str) -> Iterable[str]:
        page = await guest.get(path)
        looked.append(path)
        assert not mailbox.is_in(page.body), path
        return [html.unescape(link) for link in re.findall(r'(?:href|src|data-live)="(/[^"]*)"', page.body.decode())]

    await walk(look, each=20)
    for delivery in await room.pool.fetch("SELECT id FROM deliveries"):
        for part in ("", "/preview", "/edit"):
            assert not mailbox.is_in((await guest.get(f"/deliveries/{delivery['id']}{part}")).body)
    assert f"/deliveries/{mailbox.delivery_id}" in looked


async def test_no_endpoint_returns_a_code_to_a_lower_role(room: Room, mailbox: Mailbox) -> None:
    """Delivery, attempts, dead letters, events and commands, with every scope of an operator."""
    waiting = a_mail(ROOT, lane=Lane.AUTH, source=SIGN_IN_SOURCE, subject=mailbox.code, text=mailbox.code)
    dead = await given_up(room.pool, waiting)
    reader = await open_browser(room, *ROLE_SCOPES[Role.OPERATOR])
    for number in (mailbox.delivery_id, dead):
        for path in ("", "/attempts"):
            assert not mailbox.is_in((await reader.get(f"/v1/deliveries/{number}{path}")).body)
    for path in ("/v1/deliveries", "/v1/dead-letters", "/v1/events", "/v1/inbox"):
        answer = await reader.get(path)
        assert (answer.status, mailbox.is_in(answer.body)) == (200, False), path
