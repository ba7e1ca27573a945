"""Search, wait, mark and delete: the inbox over HTTP."""

import asyncio
from datetime import timedelta
from urllib.parse import quote

import pytest
from tests.support.builders import a_mail, accepted
from tests.support.http import Browser, Letter, open_browser

from postroom.db.room import Room
from postroom.inbox import service
from postroom.inbox.errors import InboxWaitTimeout
from postroom.inbox.search import InboxFilter, parse_search
from postroom.inbox.transport import CaptureTransport
from postroom.post.reply import Envelope

RECEIPT = (
    b"Subject: =?utf-8?q?Your_receipt_=E2=82=AC?=\r\nFrom: The Shop <shop@example.org>\r\n"
    b'Content-Type: multipart/mixed; boundary="b"\r\n\r\n'
    b"--b\r\nContent-Type: text/html; charset=utf-8\r\nContent-Transfer-Encoding: base64\r\n\r\n"
    b"PHA+VGhhbmsgeW91LCA8Yj5BZGE8L2I+PC9wPg==\r\n"
    b'--b\r\nContent-Type: application/pdf\r\nContent-Disposition: attachment; filename="invoice-7.pdf"\r\n\r\nx\r\n'
    b"--b--"
)
CODE = b"Subject: Your code 100%\r\nFrom: Login <login@example.net>\r\n\r\nYour code is 123456."


@pytest.fixture
async def browser(room: Room) -> Browser:
    return await open_browser(room, "inbox:read", "inbox:write")


@pytest.fixture
async def filled(room: Room) -> list[int]:
    """Two deliveries: a receipt to Ada and Bob with tags, and a code to Ada."""
    first, second = await accepted(room.pool, a_mail(tags={"order": "42", "kind": "Receipt"}), a_mail())
    transport = CaptureTransport(room.pool)
    for delivery_id, to, raw in (
        (first, ("ada@example.org", "bob@example.com"), RECEIPT),
        (second, ("ada@example.org",), CODE),
    ):
        await transport.send(Envelope(delivery_id, "<1@x>", "bounces@example.org", to), Letter(raw))
    return [first, second]


@pytest.mark.parametrize(
    "query, chosen",
    [
        (None, InboxFilter()),
        ("  ", InboxFilter()),
        (
            'From:shop TO:"ada" subject:"your code"',
            InboxFilter(senders=("shop",), receivers=("ada",), subjects=("your code",)),
        ),
        ("has:attachment is:unread", InboxFilter(has_attachment=True, is_read=False)),
        ("is:read hello world", InboxFilter(is_read=True, words=("hello", "world"))),
        ("tag:order=42 https://x", InboxFilter(tags=("order=42",), words=("https://x",))),
        ("has:wings is:blue", InboxFilter(words=("has:wings", "is:blue"))),
        ('from:"" "', InboxFilter(words=('"',))),
    ],
)
def test_terms_are_parsed(query: str | None, chosen: InboxFilter) -> None:
    """Fields in any case, quotes for several words; an unknown field is text."""
    assert parse_search(query) == chosen


@pytest.mark.parametrize(
    "query, found",
    [
        ("from:SHOP", [0]),
        ("from:bounces@", [1, 0]),
        ("to:bob", [0]),
        ("to:bob@example.com to:ada", [0]),
        ("subject:receipt", [0]),
        ('subject:"your code"', [1]),
        ("subject:€", [0]),
        ("thank ADA", [0]),
        ("123456", [1]),
        ("100%", [1]),
        ("%", [1]),
        ("invoice-7.pdf", [0]),
        ("has:attachment", [0]),
        ("tag:order", [0]),
        ("tag:42", [0]),
        ("tag:kind=receipt", [0]),
        ("tag:order=4", []),
        ("is:unread", [1, 0]),
        ("is:read", []),
        ("nothing", []),
    ],
)
async def test_search_finds(browser: Browser, filled: list[int], query: str, found: list[int]) -> None:
    """Each field is searched in its decoded form; signs of SQL patterns have no meaning."""
    items = (await browser.get(f"/v1/inbox?query={quote(query)}")).json["items"]
    assert [filled.index(item["delivery_id"]) for item in items] == found


async def test_latest_is_the_newest_of_a_search(browser: Browser, filled: list[int]) -> None:
    """The whole message is returned, so that a test needs one request."""
    latest = (await browser.get("/v1/inbox/latest?to=ADA@example.org")).json
    assert (latest["delivery_id"], latest["text"], latest["author"]) == (
        filled[1],
        "Your code is 123456.",
        "Login <login@example.net>",
    )
    receipt = (await browser.get("/v1/inbox/latest?query=tag:order%3D42")).json
    assert (receipt["attachment_count"], receipt["tags"]) == (1, {"order": "42", "kind": "Receipt"})
    after = await browser.get(f"/v1/inbox/latest?to=ada@example.org&after={latest['id']}")
    assert (after.status, after.json["code"]) == (404, "inbox_message_not_found")


async def test_wait_returns_as_soon_as_the_message_arrives(room: Room, browser: Browser) -> None:
    """A message that exists is returned at once; otherwise the call ends with the arrival."""
    transport = CaptureTransport(room.pool)
    waiting = asyncio.create_task(browser.get("/v1/inbox/wait?to=ada@example.org&timeout=60"))
    await transport.send(Envelope(1, "<1@x>", "", ("bob@example.org",)), Letter(CODE))
    await asyncio.sleep(0)
    assert not waiting.done()
    await transport.send(Envelope(2, "<2@x>", "", ("Ada@example.org",)), Letter(CODE))
    assert (await waiting).json["delivery_id"] == 2
    assert (await browser.get("/v1/inbox/wait?to=bob@example.org")).json["delivery_id"] == 1


async def test_wait_ends_at_its_timeout(browser: Browser) -> None:
    """The error has its own code; a timeout beyond the limit is an invalid field."""
    response = await browser.get("/v1/inbox/wait?to=ada@example.org&timeout=0")
    assert (response.status, response.json["code"]) == (404, "inbox_wait_timeout")
    assert (await browser.get("/v1/inbox/wait?timeout=61")).fields == ["timeout"]


async def test_list_has_the_beginning_of_each_text(browser: Browser, filled: list[int]) -> None:
    """The text, or the HTML without its markup, in one line."""
    items = (await browser.get("/v1/inbox")).json["items"]
    assert [item["snippet"] for item in items] == ["Your code is 123456.", "Thank you, Ada invoice-7.pdf"]


async def test_message_is_marked_and_deleted(room: Room, browser: Browser, filled: list[int]) -> None:
    """`read` changes in both directions; a deleted message is gone, and the audit log has the actor."""
    newest = (await browser.get("/v1/inbox/latest")).json["id"]
    assert (await browser.ask("PATCH", f"/v1/inbox/{newest}", json={"read": True})).json["read"] is True
    assert (await service.count_inbox(room.pool, sees_codes=True)).unread == 1
    assert (await browser.ask("PATCH", f"/v1/inbox/{newest}", json={"read": False})).json["read"] is False
    assert await service.mark_inbox(room.pool, None, is_read=True, actor="tests", sees_codes=True) == len(filled)
    assert (await browser.ask("DELETE", f"/v1/inbox/{newest}")).status == 204
    assert (await browser.ask("DELETE", f"/v1/inbox/{newest}")).status == 404
    assert (await browser.ask("PATCH", f"/v1/inbox/{newest}", json={"read": True})).status == 404
    row = await room.pool.fetchrow("SELECT actor, subject FROM audit_log WHERE action = 'inbox.delete'")
    assert (row["actor"], row["subject"]) == ("key:1:tests", f"inbox:{newest}")


async def test_wait_is_bounded(room: Room) -> None:
    """A caller of the service gets the error as well."""
    with pytest.raises(InboxWaitTimeout):
        await service.wait_for_message(room.pool, InboxFilter(), timeout=timedelta(), sees_codes=True)
