"""A tracking service in tests: the real application on a real socket, a raw client, and queries."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import asyncpg
from tests.support.http import Response
from tests.support.served import served

from postroom.db.listen import Listener
from postroom.db.pool import Pool
from postroom.db.room import Room
from postroom.http.asgi import HttpApplication, build_app
from postroom.settings import Settings
from postroom.tracking.buffer import BufferOptions, EngagementBuffer
from postroom.tracking.model import LinkSubject
from postroom.tracking.public import PublicLinks, link_site
from postroom.tracking.tokens import TokenSigner
from postroom.tracking.visitors import nowhere

KEY = bytes(range(32))
ADA = LinkSubject(7, 41, "Ada@Example.org")
FIREFOX = "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0"
APPLE = "Mozilla/5.0"
AN_HOUR_S = 3600.0
FAST = BufferOptions(
    linger_s=0.01,
    first_pause_s=0.01,
    longest_pause_s=0.05,
    statement_timeout_s=AN_HOUR_S,
    stop_grace_s=AN_HOUR_S,
    complaint_interval_s=AN_HOUR_S,
)
"""Short intervals where tests wait; long timeouts, so that a slow machine does not fail a test."""


class Steps:
    """The events of a loop, to wait for by name."""

    def __init__(self) -> None:
        self._heard: dict[str, asyncio.Event] = {}

    def __call__(self, step: str) -> None:
        self._heard.setdefault(step, asyncio.Event()).set()

    async def next(self, step: str) -> None:
        """Wait for the next occurrence."""
        event = self._heard.setdefault(step, asyncio.Event())
        event.clear()
        async with asyncio.timeout(60):
            await event.wait()


@dataclass(slots=True)
class Desk:
    """The objects that tests of tracking need."""

    url: str
    pool: Pool
    signer: TokenSigner
    buffer: EngagementBuffer
    steps: Steps
    client: aiohttp.ClientSession
    headers: Mapping[str, str] = field(default_factory=lambda: {"User-Agent": FIREFOX})

    async def ask(
        self, method: str, target: str, *, data: Any = None, headers: Mapping[str, str] | None = None
    ) -> Response:
        """Send one request to an absolute URL; this server responds whatever its host."""
        parts = urlsplit(target)
        given = {**self.headers, **(headers or {})}
        where = self.url + parts.path
        async with self.client.request(method, where, data=data, headers=given, allow_redirects=False) as answer:
            body = await answer.read()
            found = {name.lower(): value for name, value in answer.headers.items()}
            return Response(answer.status, found, body)

    async def get(self, target: str, **options: Any) -> Response:
        return await self.ask("GET", target, **options)

    async def post(self, target: str, **options: Any) -> Response:
        return await self.ask("POST", target, **options)

    async def open(self, mark: LinkSubject = ADA, **options: Any) -> Response:
        return await self.get(self.signer.open_url(mark), **options)

    async def click(self, mark: LinkSubject = ADA, url: str = "https://shop.example/", **options: Any) -> Response:
        return await self.get(self.signer.click_url(mark, url), **options)

    async def written(self) -> None:
        """Wait until the buffer is empty."""
        while len(self.buffer):
            await self.steps.next("written")

    async def rows(self, sql: str, *arguments: Any) -> list[asyncpg.Record]:
        found: list[asyncpg.Record] = await self.pool.fetch(sql, *arguments)
        return found

    async def value(self, sql: str, *arguments: Any) -> Any:
        return await self.pool.fetchval(sql, *arguments)

    async def figures(self) -> dict[str, int]:
        """The statistics by metric."""
        rows = await self.pool.fetch("SELECT metric, sum(amount)::bigint AS amount FROM stat_deltas GROUP BY metric")
        return {row["metric"]: row["amount"] for row in rows}


def links_app(pool: Pool, links: PublicLinks, **settings: Any) -> HttpApplication:
    """The application with the public links, for a pool without the rest of its room."""
    return build_app(Room(Settings(**settings), "", "", pool, Listener("", "postroom")), sites=[link_site(links)])


@asynccontextmanager
async def open_desk(
    pool: Pool, *, patience_s: float = AN_HOUR_S, buffering: BufferOptions = FAST, find_place: Any = nowhere
) -> AsyncIterator[Desk]:
    """A service with a running buffer on loopback; the rest of the buffer is written at the end."""
    steps = Steps()
    signer = TokenSigner(KEY, "https://mail.example.com", room="postroom")
    buffer = EngagementBuffer(pool, options=buffering, find_place=find_place, signal=steps)
    running = asyncio.create_task(buffer.run())
    async with (
        served(links_app(pool, PublicLinks(signer, buffer, patience_s))) as url,
        aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as client,
    ):
        try:
            yield Desk(url, pool, signer, buffer, steps, client)
        finally:
            buffer.stop()
            await running
