"""`postroom serve` behind nginx and HAProxy with the shipped files, under a path, over HTTP/2 and TLS."""

import asyncio
import base64
import json
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from tests.support.builders import a_mail, accepted
from tests.support.command_line import PATIENT, running
from tests.support.http import a_key
from tests.support.outbox import until
from tests.support.patience import PATIENCE_S
from tests.world.proxies import PROXIES, PUBLIC_URL, Front

from postroom.db.room import Room
from postroom.tracking.model import LinkSubject
from postroom.tracking.tokens import TokenSigner

SECRET = bytes(range(32))
LARGEST = 25 * 1024 * 1024


@dataclass(frozen=True)
class Behind:
    """A room that is served behind a proxy."""

    room: Room
    front: Front
    key: str

    async def sign_in(self, jar: Path) -> None:
        """Sign in to the dashboard, and keep the cookie."""
        answer = await self.front.ask("/postroom/sign-in", "--cookie-jar", jar, "--data", f"key={self.key}")
        assert (answer.status, answer.headers["location"]) == (303, ["/postroom/"])


# The short form has one proxy; the other one differs in nothing that Postroom does.
@pytest.fixture(params=["nginx", pytest.param("haproxy", marks=pytest.mark.world)])
async def behind(request: pytest.FixtureRequest, room: Room, database_url: str) -> AsyncIterator[Behind]:
    settings = {
        "POSTROOM_DATABASE_URL": database_url,
        "POSTROOM_SECRET_KEY": SECRET.hex(),
        "POSTROOM_HTTP_ADDR": "127.0.0.1:0",
        "POSTROOM_SMTP_ADDR": "off",
        "POSTROOM_PUBLIC_URL": PUBLIC_URL,
        "POSTROOM_TRUSTED_PROXIES": "127.0.0.1",
    }
    key, _ = await a_key(room, "proxy", "*")
    with running("serve", settings=settings, command=PATIENT) as serving:
        line = await asyncio.to_thread(serving.line, lambda line: "Postroom answers at" in line)
        async with PROXIES[request.param](int(line.rpartition(":")[2])) as front:
            yield Behind(room, front, key)


async def test_pages_links_and_cookies_keep_the_path(behind: Behind, tmp_path: Path) -> None:
    """Redirects, the cookie, the style sheet and every link of a page lie below the path of the public URL."""
    refused = await behind.front.ask("/postroom/deliveries")
    assert refused.headers["location"][0].startswith("/postroom/sign-in")
    await behind.sign_in(tmp_path / "jar")
    jar = (tmp_path / "jar").read_text()
    assert "\t/postroom/\tTRUE\t" in jar  # the path, and secure
    assert "__Secure-" in jar
    page = await behind.front.ask("/postroom/deliveries", "--cookie", tmp_path / "jar")
    links = set(re.findall(r'(?:href|src|action)="(/[^"]*)"', page.body.decode()))
    assert (page.status, page.version) == (200, "2")
    assert len(links) > 10
    assert [link for link in links if not link.startswith("/postroom/")] == []
    [sheet] = [link for link in links if ".css" in link][:1]
    assert (await behind.front.ask(sheet)).headers["content-type"][0].startswith("text/css")


async def test_the_client_is_the_last_address_before_the_proxy(behind: Behind) -> None:
    """An address that a client claims for itself is not believed."""
    [delivery_id] = await accepted(behind.room.pool, a_mail("ada@example.org"))
    link = TokenSigner(SECRET, PUBLIC_URL, room="postroom").open_url(LinkSubject(delivery_id, 0, "ada@example.org"))
    target = link.removeprefix("https://mail.example.org")
    claimed = ("--header", "X-Forwarded-For: 203.0.113.9", "--interface", "127.0.0.2")
    assert (await behind.front.ask(target, *claimed)).headers["content-type"] == ["image/gif"]
    seen = "SELECT count(*) = 1 FROM open_events WHERE ip_address = '127.0.0.2'"
    await until(partial(behind.room.pool.fetchval, seen))


async def test_a_live_page_is_not_buffered(behind: Behind, tmp_path: Path) -> None:
    """A change arrives while the stream is open; a proxy that buffers would hold it back."""
    await behind.sign_in(tmp_path / "jar")
    async with behind.front.reading("/postroom/inbox/live", "--cookie", str(tmp_path / "jar")) as stream:
        assert b"Through the proxy" not in await _next_event(stream)
        # The page is drawn again only when something has changed.
        await behind.room.pool.execute(
            "INSERT INTO inbox_messages (delivery_id, mail_from, recipients, subject, raw)"
            " VALUES (1, 'a@example.org', '{c@example.org}', 'Through the proxy', '')"
        )
        assert b"Through the proxy" in await _next_event(stream)


async def _next_event(stream: asyncio.StreamReader) -> bytes:
    """A whole event: a buffer holds the end of it back, not its beginning."""
    async with asyncio.timeout(PATIENCE_S):
        while not (event := await stream.readuntil(b"\n\n")).startswith(b"event:"):
            pass
    return event


async def test_a_mail_of_25_megabytes_passes(behind: Behind, tmp_path: Path) -> None:
    """The shipped limits of the proxies allow the largest mail that Postroom accepts."""
    attachment = {"filename": "a.bin", "content_type": "application/octet-stream"}
    content = base64.b64encode(bytes(LARGEST)).decode()
    mail = {"to": ["ada@example.org"], "subject": "Large", "text": "Hi."}
    body = tmp_path / "body.json"
    body.write_text(json.dumps({**mail, "attachments": [{**attachment, "content": content}]}))
    options = ("--header", f"Authorization: Bearer {behind.key}", "--header", "Content-Type: application/json")
    answer = await behind.front.ask("/postroom/v1/deliveries", *options, "--data-binary", f"@{body}")
    assert (answer.status, answer.version) == (202, "2")


async def test_metrics_are_not_public(behind: Behind) -> None:
    """Monitoring asks the process itself."""
    assert (await behind.front.ask("/postroom/metrics")).status == 403
