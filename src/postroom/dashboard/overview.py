"""The first page: waiting and ended deliveries, dead letters, workers. A stream keeps it current."""

import asyncio
from collections.abc import AsyncIterator

import msgspec

from postroom.dashboard import service
from postroom.dashboard.chart import draw_day
from postroom.dashboard.model import OverviewFigures
from postroom.dashboard.page import PageRequest
from postroom.runtime.endpoint import Answer

INTERVAL_S = 2.0
QUIET_S = 15.0
LONGEST_STREAM_S = 600.0
MOST_STREAMS = 100

PARTS = ("lanes", "day", "dead_letters", "workers")


async def show_overview(request: PageRequest) -> Answer:
    parts = draw_parts(request, await request.dashboard.figures.read())
    return request.page("overview.html", parts=parts)


def draw_parts(request: PageRequest, figures: OverviewFigures) -> dict[str, str]:
    """Each part of the overview as HTML, by its name."""
    chart = draw_day(figures.ended, first=service.first_hour(figures.at), hours=service.HOURS)
    draw = request.dashboard.views.draw
    return {
        name: draw(
            f"parts/{name}.html",
            figures=figures,
            chart=chart,
            counted=service.COUNTED,
            day_counted=service.DAY_COUNTED,
            lease_s=request.call.room.settings.lease.total_seconds(),
        )
        for name in PARTS
    }


class LiveFeeds:
    """The open streams of this process; `stop` ends them."""

    def __init__(self, stop: asyncio.Event) -> None:
        self.stop = stop
        self._open: set[Feed] = set()

    def is_full(self) -> bool:
        return len(self._open) >= MOST_STREAMS

    async def read(self, feed: "Feed") -> AsyncIterator[bytes]:
        """The events of a feed, which counts as open while they are read."""
        self._open.add(feed)
        try:
            async for event in feed.events():
                yield event
        finally:
            self._open.discard(feed)


async def show_live(request: PageRequest) -> Answer:
    """The stream of figures. It ends when the session does, when the process stops, and after ten minutes."""
    feeds = request.call.tool(LiveFeeds)
    if feeds.is_full():
        return Answer(b"Too many viewers.", 503, "text/plain", {"retry-after": "10"})
    headers = {"x-accel-buffering": "no"}  # a proxy that buffers the answer would delay every event
    return Answer(feeds.read(Feed(request, feeds.stop)), 200, "text/event-stream; charset=utf-8", headers)


class Feed:
    """One viewer's stream: the parts of the overview that have changed since the last event."""

    def __init__(self, request: PageRequest, stop: asyncio.Event) -> None:
        self._request, self._stop = request, stop
        self._sent: dict[str, str] = {}

    async def events(self) -> AsyncIterator[bytes]:
        loop = asyncio.get_running_loop()
        last = loop.time() + LONGEST_STREAM_S
        spoken = loop.time()
        yield b"retry: 2000\n\n"
        while not self._stop.is_set() and loop.time() < last and await self._is_welcome():
            changed = await self._changed()
            if changed or loop.time() - spoken > QUIET_S:
                yield _event(changed) if changed else b": still here\n\n"
                spoken = loop.time()
            await self._pause()

    async def _changed(self) -> dict[str, str]:
        parts = draw_parts(self._request, await self._request.dashboard.figures.read())
        changed = {name: html for name, html in parts.items() if self._sent.get(name) != html}
        self._sent.update(changed)
        return changed

    async def _is_welcome(self) -> bool:
        """A revoked key, or a session that was signed out, ends the stream within one interval."""
        if not self._request.dashboard.sessions.is_open(self._request.session):
            return False
        return await service.find_key(self._request.pool, self._request.session) is not None

    async def _pause(self) -> None:
        try:
            async with asyncio.timeout(INTERVAL_S):
                await self._stop.wait()
        except TimeoutError:
            return


def _event(parts: dict[str, str]) -> bytes:
    return b"event: figures\ndata: " + msgspec.json.encode(parts) + b"\n\n"
