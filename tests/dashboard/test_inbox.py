"""The inbox in a real browser: search, live list, views, attachments, delete, and hostile mail."""

import base64
import re
from dataclasses import replace

import pytest
from playwright.async_api import Browser, expect
from tests.dashboard.test_hostile import Canary, calm, canary, watched
from tests.support.builders import a_mail, accepted
from tests.support.dashboard import (
    ACCESSIBILITY_RULES,
    Office,
    captured,
    open_guest,
    open_office,
    signed_in,
    text_of,
)
from tests.support.http import Letter

from postroom.db.room import Room
from postroom.inbox.transport import CaptureTransport
from postroom.post.reply import Envelope

__all__ = ["canary"]  # the fixture

STYLED = (
    b"Subject: Styled\r\nFrom: Shop <shop@example.org>\r\nDate: Mon, 05 Jan 2026 10:00:00 +0000\r\n"
    b"Message-ID: <1@example.org>\r\nContent-Type: text/html; charset=utf-8\r\n\r\n"
    b"<style>p { color: rgb(1, 2, 3) } @media (max-width: 500px) { p { color: rgb(4, 5, 6) } }"
    b"@media (prefers-color-scheme: dark) { p { color: rgb(7, 8, 9) } }</style><p>Hello <a href=http://x.example>x</a></p>"
)
HTML_FILE = b"<script>top.pwned = 1; document.title = 'pwned'</script><p>opened</p>"


def with_files(text: str, name: str) -> bytes:
    """A message with an HTML page, an SVG picture and a text as attachments, all of them hostile."""
    parts = [("text/html", HTML_FILE), ("image/svg+xml", b"<svg onload=top.pwned=1>"), ("text/plain", b"plain")]
    attached = b"".join(
        b"--b\r\nContent-Type: " + kind.encode() + b'\r\nContent-Disposition: attachment; filename="' + name.encode()
        + b'"\r\nContent-Transfer-Encoding: base64\r\n\r\n' + base64.b64encode(content) + b"\r\n"
        for kind, content in parts
    )  # fmt: skip
    head = f"Subject: Files\r\nFrom: {name} <a@example.org>\r\nX-A: {text}\r\nMIME-Version: 1.0\r\n".encode()
    body = b"--b\r\nContent-Type: text/html; charset=utf-8\r\n\r\n" + text.encode() + b"\r\n"
    plain = b"--b\r\nContent-Type: text/plain; charset=utf-8\r\n\r\n" + text.encode() + b"\r\n"
    return head + b'Content-Type: multipart/mixed; boundary="b"\r\n\r\n' + body + plain + attached + b"--b--\r\n"


async def capture(room: Room, raw: bytes, *, to: str = "ada@example.org", **fields: object) -> int:
    """A message of a delivery, captured as the worker would."""
    [delivery_id] = await accepted(room.pool, a_mail(**fields))
    await CaptureTransport(room.pool).send(Envelope(delivery_id, "<1@x>", "b@example.org", (to,)), Letter(raw))
    found: int = await room.pool.fetchval("SELECT max(id) FROM inbox_messages")
    return found


async def test_hostile_mail_runs_and_fetches_nothing(chromium: Browser, office: Office, canary: Canary) -> None:
    """Stored XSS in every field, in every view, at every width and in dark: nothing runs, nothing is requested."""
    hostile = " ".join(canary.attacks()).replace("\r", "").replace("\n", "")
    name = canary.attacks()[1].replace('"', "'")[:120]
    message_id = await capture(office.room, with_files(hostile, name), to=f"{hostile[:200]}@example.org")
    await office.pool.execute(
        "UPDATE deliveries SET tags = jsonb_build_object($1::text, $1::text)", canary.attacks()[0]
    )
    await office.pool.execute("UPDATE inbox_messages SET mail_from = $1, subject = $1, author = $1", hostile)
    at = f"/inbox/{message_id}"
    paths = [
        "/inbox",
        "/inbox?query=%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E",
        at,
        f"{at}?dark=1",
        f"{at}?width=phone",
    ]
    paths += [f"{at}?view={view}" for view in ("text", "source", "headers", "checks")]
    paths += [f"{at}/preview", f"{at}/preview?dark=1", *(f"{at}/attachments/{n}?open=1" for n in (1, 3))]
    async with signed_in(chromium, office) as page, watched(page, canary):
        for path in paths:
            await calm(page, office.url + path)
        await page.goto(f"{office.url}{at}/attachments/1?open=1")
        assert "<script>" in await page.locator("body").inner_text()  # shown as text


async def test_list_is_live_and_searched_as_you_type(chromium: Browser, office: Office) -> None:
    """New mail appears without a reload, within the search that is typed; opening a message marks it as read."""
    await capture(office.room, STYLED, tags={"order": "42"})
    async with signed_in(chromium, office) as page:
        await page.goto(f"{office.url}/inbox")
        await expect(page.get_by_text("Live", exact=True)).to_be_visible()
        await expect(page.locator(".unread")).to_have_count(1)
        await capture(office.room, STYLED.replace(b"Styled", b"Second"))
        await expect(page.get_by_role("link", name="Second")).to_be_visible()
        await expect(page.get_by_text("2 unread")).to_be_visible()
        await page.get_by_label("Search").fill("tag:order=42")
        await expect(page.locator("tbody tr")).to_have_count(1)
        await capture(office.room, STYLED.replace(b"Styled", b"Third"))
        await capture(office.room, STYLED.replace(b"Styled", b"Fourth"), tags={"order": "42"})
        await expect(page.get_by_role("link", name="Fourth")).to_be_visible()
        await expect(page.locator("tbody tr")).to_have_count(2)
        await page.get_by_role("link", name="Fourth").click()
        await page.goto(f"{office.url}/inbox")
        await expect(page.locator(".unread")).to_have_count(3)


async def test_html_is_shown_at_three_widths_and_in_dark(chromium: Browser, office: Office) -> None:
    """The mail's own media queries decide, whatever the browser's own scheme is."""
    message_id = await capture(office.room, STYLED)
    async with signed_in(chromium, office, color_scheme="dark") as page:
        await page.goto(f"{office.url}/inbox/{message_id}")
        paragraph = page.frame_locator("iframe").locator("p")
        await expect(paragraph).to_have_css("color", "rgb(1, 2, 3)")
        await page.get_by_role("link", name="Phone").click()
        await expect(paragraph).to_have_css("color", "rgb(4, 5, 6)")
        await page.get_by_role("link", name="Tablet").click()
        await page.get_by_role("link", name="Dark").click()
        await expect(paragraph).to_have_css("color", "rgb(7, 8, 9)")
        assert await page.locator("iframe").get_attribute("sandbox") == ""


async def test_message_is_deleted_and_the_inbox_cleared_without_a_script(chromium: Browser, office: Office) -> None:
    """Each deletion asks first, and is audited."""
    for number in range(3):
        await captured(office.pool, STYLED, subject=f"Mail {number}")
    async with signed_in(chromium, office, java_script_enabled=False) as page:
        await page.goto(f"{office.url}/inbox")
        await page.get_by_role("link", name="Mail 1").click()
        await page.get_by_text("Delete…").click()
        await page.get_by_role("button", name="Delete the message").click()
        await expect(page.get_by_role("status").first).to_have_text("The message is deleted.")
        await expect(page.locator("tbody tr")).to_have_count(2)
        await page.get_by_text("Delete all…").click()
        await page.get_by_role("button", name="Delete all messages").click()
        await expect(page.get_by_text("The inbox is empty: 2 deleted.")).to_be_visible()
    actions = await office.pool.fetch("SELECT action FROM audit_log WHERE action LIKE 'inbox.%' ORDER BY id")
    assert [row["action"] for row in actions] == ["inbox.delete", "inbox.clear"]


async def test_every_view_fits_a_phone_and_is_accessible(chromium: Browser, office: Office) -> None:
    """No view is wider than its window, everything has a name, in light and in dark; the console stays empty."""
    message_id = await capture(office.room, with_files("x" * 300, "long-" * 20), tags={"long" * 10: "value" * 20})
    paths = [
        "/inbox",
        *(f"/inbox/{message_id}?view={view}" for view in ("html", "text", "source", "headers", "checks")),
    ]
    async with signed_in(chromium, office, color_scheme="dark") as page:
        said: list[str] = []
        page.on("console", lambda message: said.append(message.text))
        for path in paths:
            await page.goto(office.url + path)
            for width in (360, 900, 1400):
                await page.set_viewport_size({"width": width, "height": 800})
                assert (path, width, await page.evaluate(ACCESSIBILITY_RULES)) == (path, width, [])
        assert said == []


async def test_attachments_are_never_pages_of_ours(room: Room) -> None:
    """Only pictures and text open, text as plain text in a sandbox; everything else is a download."""
    message_id = await capture(room, with_files("x", 'a"b\r\nX: y'.replace("\r\n", "")))
    guest = await open_guest(room)
    at = f"/inbox/{message_id}/attachments"
    opened = await guest.get(f"{at}/1?open=1")
    assert (opened.headers["content-type"], opened.body) == ("text/plain; charset=utf-8", HTML_FILE)
    assert opened.headers["content-security-policy"] == "default-src 'none'; sandbox"
    picture = await guest.get(f"{at}/2?open=1")
    assert picture.headers["content-type"] == "application/octet-stream"
    assert picture.headers["content-disposition"].startswith("attachment; filename*=UTF-8''")
    assert (await guest.get(f"{at}/3")).body == b"plain"
    assert {(await guest.get(f"{at}/{number}")).status for number in (0, 4)} == {404}


async def test_message_leads_to_the_newer_and_the_older_one(chromium: Browser, office: Office) -> None:
    """By links that keep the view, and by the keys of a list; the newest has no newer one."""
    first, second, third = [await capture(office.room, STYLED) for _ in range(3)]
    guest = await open_guest(office.room, name="links")
    page = (await guest.get(f"/inbox/{second}?view=source")).body.decode()
    assert f'rel="prev" href="/inbox/{third}?view=source"' in page
    assert f'rel="next" href="/inbox/{first}?view=source"' in page
    assert 'rel="prev"' not in (await guest.get(f"/inbox/{third}")).body.decode()
    async with signed_in(chromium, office) as browsed:
        await browsed.goto(f"{office.url}/inbox/{third}")
        await browsed.keyboard.press("j")
        await browsed.wait_for_url(f"**/inbox/{second}?view=html")


async def test_release_and_links_need_their_scopes(room: Room) -> None:
    """Without a relay the page says how to get one; a reader sees and may do neither."""
    message_id = await capture(room, STYLED)
    guest = await open_guest(room)
    page = f"/inbox/{message_id}"
    assert "POSTROOM_INBOX_RELEASE_RELAY" in text_of(await guest.get(page))
    off = await guest.submit(page, f"{page}/release", to="a@example.com")
    assert off.status == 409
    reader = await open_guest(room, "deliveries:read", "inbox:read", name="reader")
    assert "Delete…" not in text_of(await reader.get(page))
    for action in ("release", "delete", "links", "unread"):
        assert (await reader.submit(page, f"{page}/{action}", to="a@example.com")).status == 403
    writer = await open_guest(room, "deliveries:read", "inbox:read", "inbox:write", name="writer")
    assert "Release…" not in text_of(await writer.get(page))
    assert (await writer.submit(page, f"{page}/release", to="a@example.com")).status == 403


async def test_links_are_requested_only_on_demand(room: Room, canary: Canary) -> None:
    """Looking at the checks requests nothing; the button does."""
    message_id = await capture(room, STYLED.replace(b"http://x.example", canary.url.encode() + b"/clicked"))
    guest = await open_guest(replace(room, settings=replace(room.settings, webhook_allow_loopback=True)))
    page = f"/inbox/{message_id}?view=checks"
    assert "leads to this machine" in text_of(await guest.get(page))
    assert canary.heard == []
    answer = await guest.submit(page, f"/inbox/{message_id}/links")
    assert re.search(r"ok 200", text_of(answer))
    assert canary.heard == ["/clicked"]


@pytest.mark.parametrize(
    "path", ["/inbox/clear", "/inbox/read", "/inbox/1/delete", "/inbox/1/release", "/inbox/1/links"]
)
async def test_forms_need_the_token_of_the_session(room: Room, path: str) -> None:
    """Another site cannot post them."""
    guest = await open_guest(room)
    assert (await guest.post(path, {"token": "x", "to": "a@example.com"})).status == 403


async def test_released_message_is_a_new_delivery(chromium: Browser, room: Room) -> None:
    """The form leads to the delivery, which is queued for the address that was typed."""
    relayed = replace(room, settings=replace(room.settings, inbox_release_relay="smtp://127.0.0.1:1"))
    message_id = await capture(relayed, STYLED)
    async with open_office(relayed) as office, signed_in(chromium, office) as page:
        await page.goto(f"{office.url}/inbox/{message_id}")
        await page.get_by_text("Release…").click()
        await page.get_by_label("Address").fill("boss@example.com")
        await page.get_by_role("button", name="Release the message").click()
        await expect(page.get_by_text("The message is released")).to_be_visible()
        await expect(page.get_by_role("table").get_by_text("boss@example.com")).to_be_visible()
