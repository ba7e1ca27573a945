"""The capture transport and its inbox, in the database and over HTTP."""

import asyncio
import base64
from datetime import timedelta

import pytest
from tests.support.http import Browser, Letter, open_browser

from postroom.db.room import Room
from postroom.delivery.outcome import Disposition, classify
from postroom.inbox.transport import CaptureTransport
from postroom.post.reply import Envelope, Reply, Stage

RAW = (
    b"Subject: =?utf-8?q?Gr=C3=BC=C3=9Fe?=\r\n"
    b"From: Shop <shop@example.org>\r\n"
    b"To: Ann <ann@example.org>\r\n"
    b'Content-Type: multipart/mixed; boundary="b"\r\n\r\n'
    b"--b\r\nContent-Type: text/plain; charset=utf-8\r\n\r\nHello Ann\r\n"
    b"--b\r\nContent-Type: text/html; charset=utf-8\r\n\r\n<p>Hello</p>\r\n"
    b'--b\r\nContent-Type: image/png; name="l.png"\r\nContent-Disposition: attachment; filename="l.png"\r\n'
    b"Content-ID: <logo>\r\nContent-Transfer-Encoding: base64\r\n\r\naGVsbG8=\r\n--b--\r\n"
)


def _envelope(*recipients: str, delivery_id: int = 1) -> Envelope:
    return Envelope(delivery_id, f"<{delivery_id}@localhost>", "bounces@example.org", recipients)


@pytest.fixture
def transport(room: Room) -> CaptureTransport:
    return CaptureTransport(room.pool, slow=timedelta())


@pytest.fixture
async def browser(room: Room) -> Browser:
    return await open_browser(room, "inbox:read", "inbox:write")


async def _captured(room: Room) -> int:
    count: int = await room.pool.fetchval("SELECT count(*) FROM inbox_messages")
    return count


async def test_a_captured_message_is_stored_before_its_250(room: Room, transport: CaptureTransport) -> None:
    """When the reply is returned, bytes, envelope and decoded subject are stored."""
    reply = await transport.send(_envelope("Ann@Example.org", "bob@example.org"), Letter(RAW))
    assert (reply.stage, reply.code, reply.remote_host) == (Stage.FINAL, 250, "capture")
    row = await room.pool.fetchrow("SELECT * FROM inbox_messages")
    assert row["raw"] == RAW
    assert row["mail_from"] == "bounces@example.org"
    assert row["recipients"] == ["ann@example.org", "bob@example.org"]
    assert row["subject"] == "Grüße"
    assert row["delivery_id"] == 1


@pytest.mark.parametrize(
    "address,answer,verdict,kept",
    [
        ("bounce@example.org", (Stage.RECIPIENT, 550, "5.1.1"), Disposition.REFUSED, 0),
        ("Bounce+signup@example.org", (Stage.RECIPIENT, 550, "5.1.1"), Disposition.REFUSED, 0),
        ("blocked@example.org", (Stage.RECIPIENT, 550, "5.7.1"), Disposition.REFUSED, 0),
        ("defer@example.org", (Stage.RECIPIENT, 451, "4.3.0"), Disposition.DEFERRED, 0),
        ("full@example.org", (Stage.RECIPIENT, 452, "4.2.2"), Disposition.DEFERRED, 0),
        ("drop+x@example.org", (Stage.CONTENT, None, None), Disposition.DEFERRED, 0),
        ("ambiguous@example.org", (Stage.FINAL, None, None), Disposition.UNKNOWN, 1),
        ("slow@example.org", (Stage.FINAL, 250, "2.0.0"), Disposition.DELIVERED, 1),
        ("bouncer@example.org", (Stage.FINAL, 250, "2.0.0"), Disposition.DELIVERED, 1),
        ("ann+bounce@example.org", (Stage.FINAL, 250, "2.0.0"), Disposition.DELIVERED, 1),
    ],
)
async def test_magic_recipients_fail_on_purpose(
    room: Room,
    transport: CaptureTransport,
    address: str,
    answer: tuple[Stage, int | None, str | None],
    verdict: Disposition,
    kept: int,
) -> None:
    """Each magic name gives its reply, with the outcome of the table."""
    envelope = _envelope(address)
    reply = await transport.send(envelope, Letter())
    assert (reply.stage, reply.code, reply.enhanced) == answer
    assert classify(reply, envelope).verdict is verdict
    assert await _captured(room) == kept


async def test_each_recipient_gets_its_own_reply(room: Room, transport: CaptureTransport) -> None:
    """A rejected address does not stop the message to the others, and does not get it."""
    envelope = _envelope("bounce@example.org", "ann@example.org", "defer@example.org")
    reply = await transport.send(envelope, Letter())
    verdicts = {entry.address: entry.verdict for entry in classify(reply, envelope).recipients}
    assert verdicts == {
        "bounce@example.org": Disposition.REFUSED,
        "ann@example.org": Disposition.DELIVERED,
        "defer@example.org": Disposition.DEFERRED,
    }
    assert await room.pool.fetchval("SELECT recipients FROM inbox_messages") == ["ann@example.org"]


async def test_slow_recipient_does_not_delay_others(room: Room) -> None:
    """Another delivery ends while a slow one is still running."""
    transport = CaptureTransport(room.pool, slow=timedelta(hours=1))
    slow = asyncio.create_task(transport.send(_envelope("slow@example.org"), Letter()))
    assert (await transport.send(_envelope("ann@example.org"), Letter())).code == 250
    assert not slow.done()
    slow.cancel()


async def test_concurrent_messages_are_each_stored_once(room: Room, transport: CaptureTransport) -> None:
    """Concurrent sends share statements; each message is stored once, with its own envelope."""
    sends = (transport.send(_envelope(f"p{n}@example.org", delivery_id=n), Letter()) for n in range(200))
    assert {reply.code for reply in await asyncio.gather(*sends)} == {250}
    await transport.close()
    rows = await room.pool.fetch("SELECT delivery_id, recipients FROM inbox_messages")
    assert len(rows) == 200
    assert all(row["recipients"] == [f"p{row['delivery_id']}@example.org"] for row in rows)


async def test_lost_database_connection_is_ambiguous(room: Room, transport: CaptureTransport) -> None:
    """If it is unknown whether the commit succeeded, the reply is ambiguous, and no error is raised."""
    await room.pool.close()
    reply = await transport.send(_envelope("ann@example.org"), Letter())
    assert (reply.stage, reply.code) == (Stage.FINAL, None)
    assert isinstance(reply, Reply)


async def test_the_inbox_is_listed_newest_first_by_recipient(browser: Browser, transport: CaptureTransport) -> None:
    """`to` matches an envelope recipient in any case; items have the documented fields."""
    for number, to in enumerate(["ann@example.org", "bob@example.org", "ANN@example.org"], 1):
        await transport.send(_envelope(to, delivery_id=number), Letter(RAW))
    everything = (await browser.get("/v1/inbox")).json["items"]
    assert [item["delivery_id"] for item in everything] == [3, 2, 1]
    fixed = {"id", "delivery_id", "from", "to", "subject", "received_at"}
    assert set(everything[0]) == fixed | {"author", "snippet", "size", "attachment_count", "read", "tags"}
    assert everything[0]["received_at"].endswith("Z")
    mine = (await browser.get("/v1/inbox?to=Ann@Example.Org")).json["items"]
    assert [item["delivery_id"] for item in mine] == [3, 1]
    assert mine[0]["from"] == "bounces@example.org"
    assert mine[0]["to"] == ["ann@example.org"]


async def test_the_inbox_is_listed_in_pages(browser: Browser, transport: CaptureTransport) -> None:
    """Pages continue correctly while mail arrives."""
    for number in range(1, 4):
        await transport.send(_envelope("ann@example.org", delivery_id=number), Letter())
    first = (await browser.get("/v1/inbox?limit=2")).json
    await transport.send(_envelope("ann@example.org", delivery_id=4), Letter())
    second = (await browser.get(f"/v1/inbox?limit=2&cursor={first['next_cursor']}")).json
    assert [item["delivery_id"] for item in first["items"] + second["items"]] == [3, 2, 1]
    assert second["next_cursor"] is None


async def test_message_is_read_parsed_and_raw(browser: Browser, transport: CaptureTransport) -> None:
    """Headers, text, HTML and attachments are separate; the raw bytes are unchanged."""
    await transport.send(_envelope("ann@example.org"), Letter(RAW))
    [item] = (await browser.get("/v1/inbox")).json["items"]
    read = (await browser.get(f"/v1/inbox/{item['id']}")).json
    assert {key: read[key] for key in item} == item
    assert read["headers"]["Subject"] == "Grüße"
    assert (read["text"].strip(), read["html"].strip()) == ("Hello Ann", "<p>Hello</p>")
    [attached] = read["attachments"]
    assert (attached["filename"], attached["content_type"], attached["content_id"]) == ("l.png", "image/png", "logo")
    assert (base64.b64decode(attached["content"]), attached["size"]) == (b"hello", 5)
    raw = await browser.get(f"/v1/inbox/{item['id']}/raw")
    assert raw.body == RAW
    assert raw.headers["content-type"] == "message/rfc822"
    assert raw.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("path", ["/v1/inbox/99", "/v1/inbox/99/raw"])
async def test_an_unknown_message_is_not_found(browser: Browser, path: str) -> None:
    """The 404 is a problem document, also for the raw endpoint."""
    response = await browser.get(path)
    assert (response.status, response.json["code"]) == (404, "inbox_message_not_found")


async def test_clearing_the_inbox_is_audited(browser: Browser, room: Room, transport: CaptureTransport) -> None:
    """The inbox is empty afterwards; the audit log has the actor."""
    await transport.send(_envelope("ann@example.org"), Letter())
    assert (await browser.ask("DELETE", "/v1/inbox")).json == {"cleared": 1}
    assert (await browser.get("/v1/inbox")).json["items"] == []
    assert await room.pool.fetchval("SELECT actor FROM audit_log WHERE action = 'inbox.clear'") == "key:1:tests"


async def test_the_inbox_keeps_the_newest_messages(room: Room) -> None:
    """Exactly the limit, after every message: an unattended instance must not fill the disk."""
    transport = CaptureTransport(room.pool, keep=20)
    for number in range(1, 32):
        await transport.send(_envelope("ann@example.org", delivery_id=number), Letter(RAW))
    kept = [row[0] for row in await room.pool.fetch("SELECT delivery_id FROM inbox_messages ORDER BY id")]
    assert kept == list(range(12, 32))


async def test_messages_of_an_earlier_process_are_trimmed_too(room: Room) -> None:
    """A process that ends before it trims leaves its messages to the next one."""
    await CaptureTransport(room.pool, keep=100).send(_envelope("ann@example.org"), Letter(RAW))
    await CaptureTransport(room.pool, keep=1).send(_envelope("ann@example.org", delivery_id=2), Letter(RAW))
    assert await room.pool.fetchval("SELECT array_agg(delivery_id) FROM inbox_messages") == [2]
