"""A person releases captured mail, and requests its links."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from tests.dashboard.test_hostile import Canary, _without_lifespan
from tests.inbox.test_transport import RAW
from tests.support.dashboard import captured
from tests.support.http import Letter, open_browser, served
from tests.support.smtp_server import smtp_server

from postroom.app import run_worker
from postroom.db.room import Room
from postroom.inbox.link_requests import request_links
from postroom.inbox.links import list_links
from postroom.inbox.transport import CaptureTransport
from postroom.post.reply import Envelope


@pytest.fixture
async def message_id(room: Room) -> int:
    await CaptureTransport(room.pool).send(Envelope(999, "<1@x>", "b@example.org", ("ann@example.org",)), Letter(RAW))
    found: int = await room.pool.fetchval("SELECT id FROM inbox_messages")
    return found


async def deliver(room: Room) -> None:
    await run_worker(room, stop=asyncio.Event(), until_empty=True)


async def test_released_message_leaves_by_the_relay(room: Room, message_id: int) -> None:
    """Only the released delivery leaves; the next mail to the same address is captured. The release is audited."""
    async with smtp_server() as server:
        relayed = replace(room, settings=replace(room.settings, inbox_release_relay=f"smtp://127.0.0.1:{server.port}"))
        browser = await open_browser(relayed, "inbox:write", "deliveries:write")
        released = await browser.post(f"/v1/inbox/{message_id}/release", json={"to": "Boss <boss@example.com>"})
        assert released.status == 202
        await browser.post("/v1/deliveries", json={"to": ["boss@example.com"], "subject": "Other", "text": "x"})
        await deliver(relayed)
        [message] = server.messages
    assert message.recipients == ("boss@example.com",)
    assert b"Hello Ann" in message.content
    assert b"l.png" in message.content
    assert await room.pool.fetchval("SELECT count(*) FROM inbox_messages WHERE subject = 'Other'") == 1
    row = await room.pool.fetchrow("SELECT actor, after::text AS after FROM audit_log WHERE action = 'inbox.release'")
    assert row["actor"] == "key:1:tests"
    assert "boss@example.com" in row["after"]


async def test_release_needs_a_relay_and_an_address(room: Room, message_id: int) -> None:
    """Without the setting nothing is accepted; a wrong address names its field; the scope of sending is needed."""
    browser = await open_browser(room, "inbox:write", "deliveries:write")
    off = await browser.post(f"/v1/inbox/{message_id}/release", json={"to": "boss@example.com"})
    assert (off.status, off.json["code"]) == (409, "release_off")
    relayed = replace(room, settings=replace(room.settings, inbox_release_relay="smtp://127.0.0.1:1"))
    browser = await open_browser(relayed, "inbox:write", "deliveries:write")
    wrong = await browser.post(f"/v1/inbox/{message_id}/release", json={"to": "nowhere"})
    assert wrong.fields == ["to"]
    reader = await open_browser(relayed, "inbox:write")
    assert (await reader.post(f"/v1/inbox/{message_id}/release", json={"to": "a@example.com"})).status == 403
    assert await room.pool.fetchval("SELECT count(*) FROM deliveries") == 0


async def test_delivery_that_names_itself_released_is_captured(room: Room) -> None:
    """Only the release by a person opens the relay: source and tags of a request do not."""
    async with smtp_server() as server:
        relayed = replace(room, settings=replace(room.settings, inbox_release_relay=f"smtp://127.0.0.1:{server.port}"))
        browser = await open_browser(relayed, "deliveries:write", name="inbox")
        mail = {"to": ["a@example.com"], "subject": "x", "text": "x", "tags": {"inbox_message": "1"}}
        assert (await browser.post("/v1/deliveries", json=mail)).status == 202
        await deliver(relayed)
        assert server.messages == []
    assert await room.pool.fetchval("SELECT count(*) FROM inbox_messages") == 1


@pytest.fixture
async def canary() -> AsyncIterator[Canary]:
    bird = Canary()
    async with served(_without_lifespan(bird)) as url:
        bird.url = url
        yield bird


async def test_links_are_requested_on_demand(canary: Canary) -> None:
    """Loopback answers; private and metadata addresses are not requested, whatever they are called."""
    html = f'<a href="{canary.url}/ok">x</a><a href="http://10.0.0.1/">y</a><a href="mailto:a@example.org">m</a>'
    links = list_links(html + '<a href="http://169.254.169.254/latest">z</a>', None)
    answers = await request_links(links, allow_loopback=True)
    assert [(answer.status, answer.is_good) for answer in answers] == [(200, True), (None, False), (None, False)]
    assert canary.heard == ["/ok"]
    assert "not public" in answers[1].detail
    [refused] = await request_links(list_links('<a href="http://127.0.0.1:1/">x</a>', None), allow_loopback=True)
    assert (refused.status, refused.detail) == (None, "the request failed: ClientConnectorError")


@pytest.mark.parametrize("setting", [None, False, True])
async def test_links_to_loopback_need_the_setting_of_webhooks(canary: Canary, room: Room, setting: object) -> None:
    """Without POSTROOM_WEBHOOK_ALLOW_LOOPBACK the answers do not tell which ports of the host are open."""
    object.__setattr__(room.settings, "webhook_allow_loopback", setting)
    raw = f"Subject: x\r\n\r\n{canary.url}/ok http://127.0.0.1:1/".encode()
    message = await captured(room.pool, raw)
    browser = await open_browser(room)
    answers = (await browser.post(f"/v1/inbox/{message}/links")).json["items"]
    assert answers[0]["status"] == (200 if setting else None)
    assert (answers[0]["detail"] == answers[1]["detail"]) is not bool(setting)
    assert canary.heard == (["/ok"] if setting else [])
