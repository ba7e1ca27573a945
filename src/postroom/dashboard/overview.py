"""The first page: what waits, what ended, what was given up, who works. Once drawn, it follows along."""

import asyncio
from collections.abc import AsyncIterator
from http import HTTPStatus

import msgspec
from starlette.responses import Response, StreamingResponse

from postroom.dashboard import service
from postroom.dashboard.chart import draw_day
from postroom.dashboard.model import Figures
from postroom.dashboard.visit import Page, Visit

INTERVAL_S = 2.0
QUIET_S = 15.0
LONGEST_STREAM_S = 600.0
MOST_STREAMS = 100

PARTS = ("lanes", "day", "dead_letters", "workers")


async def show_overview(visit: Visit) -> Response:
    parts = draw_parts(visit, await visit.desk.figures.read())
    return visit.page("overview.html", parts=parts)


def draw_parts(visit: Visit, figures: Figures) -> dict[str, str]:
    """Each part of the overview as HTML, by its name."""
    chart = draw_day(figures.ended, first=service.first_hour(figures.at), hours=service.HOURS)
    draw = visit.desk.views.draw
    return {
        name: draw(
            f"parts/{name}.html",
            figures=figures,
            chart=chart,
            counted=service.COUNTED,
            day_counted=service.DAY_COUNTED,
            lease=visit.desk.room.settings.lease,
        )
        for name in PARTS
    }


def live_page(stop: asyncio.Event, *, interval_s: float = INTERVAL_S) -> Page:
    """The stream of figures. It ends when the session does, when the process stops, and after ten minutes."""
    watching: set[Feed] = set()

    async def show_live(visit: Visit) -> Response:
        if len(watching) >= MOST_STREAMS:
            return Response("Too many viewers.", HTTPStatus.SERVICE_UNAVAILABLE, {"retry-after": "10"})
        feed = Feed(visit, stop, interval_s=interval_s)
        headers = {"x-accel-buffering": "no"}  # a proxy that collects an answer before it passes it on would hold it
        return StreamingResponse(_counted(feed, watching), media_type="text/event-stream", headers=headers)

    return show_live


async def _counted(feed: "Feed", watching: "set[Feed]") -> AsyncIterator[bytes]:
    """The feed's events; while they are read, the feed is among those who watch."""
    watching.add(feed)
    try:
        async for event in feed.events():
            yield event
    finally:
        watching.discard(feed)


class Feed:
    """One viewer's stream: parts of the overview that have changed since the viewer last heard of them."""

    def __init__(self, visit: Visit, stop: asyncio.Event, *, interval_s: float) -> None:
        self._visit, self._stop, self._interval_s = visit, stop, interval_s
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
        parts = draw_parts(self._visit, await self._visit.desk.figures.read())
        changed = {name: html for name, html in parts.items() if self._sent.get(name) != html}
        self._sent.update(changed)
        return changed

    async def _is_welcome(self) -> bool:
        """A revoked key, or a session that was signed out, stops looking within one interval."""
        if not self._visit.desk.sessions.is_open(self._visit.session):
            return False
        return await service.find_key(self._visit.pool, self._visit.session) is not None

    async def _pause(self) -> None:
        try:
            async with asyncio.timeout(self._interval_s):
                await self._stop.wait()
        except TimeoutError:
            return


def _event(parts: dict[str, str]) -> bytes:
    return b"event: figures\ndata: " + msgspec.json.encode(parts) + b"\n\n"
