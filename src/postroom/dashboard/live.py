"""Pages that stay current: a stream of the parts of a page that have changed, as HTML."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import msgspec

from postroom.dashboard import service
from postroom.dashboard.page import PageRequest
from postroom.errors import NotFoundError
from postroom.runtime.endpoint import Answer

INTERVAL_S = 0.8  # with the time to read and draw, a change is shown within a second
QUIET_S = 15.0  # proxies close streams that are silent for a minute
LONGEST_STREAM_S = 600.0  # the page connects again, and its key is checked again
MOST_STREAMS = 100  # each is a task and a connection of this process

Draw = Callable[[], Awaitable[dict[str, str]]]
"""Draws every part of a page, by name; the page shows each in the element `live-<name>`."""

Rest = Callable[[], float]
"""Seconds until a page is drawn again."""


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


def stream(request: PageRequest, draw: Draw, *, rest: Rest = lambda: INTERVAL_S) -> Answer:
    """The stream of a page, drawn again after each `rest`.

    It ends when the session does, when the process stops, and after ten minutes.
    """
    feeds = request.call.tool(LiveFeeds)
    if feeds.is_full():
        return Answer(b"Too many viewers.", 503, "text/plain", {"retry-after": "10"})
    headers = {"x-accel-buffering": "no"}  # a proxy that buffers the answer would delay every event
    return Answer(feeds.read(Feed(request, draw, rest, feeds.stop)), 200, "text/event-stream; charset=utf-8", headers)


def stream_changes(
    request: PageRequest, read: Callable[[], Awaitable[Any]], draw: Callable[[Any], dict[str, str]]
) -> Answer:
    """The stream of what `read` finds, drawn again only if it has changed: relative times alone are no change."""
    drawn: dict[str, str] = {}
    seen: Any = None

    async def draw_changes() -> dict[str, str]:
        nonlocal drawn, seen
        found = await read()
        if found != seen:
            drawn, seen = draw(found), found
        return drawn

    return stream(request, draw_changes)


class Feed:
    """One viewer's stream: the parts of the page that have changed since the last event."""

    def __init__(self, request: PageRequest, draw: Draw, rest: Rest, stop: asyncio.Event) -> None:
        self._request, self._draw, self._rest, self._stop = request, draw, rest, stop
        self._sent: dict[str, str] = {}

    async def events(self) -> AsyncIterator[bytes]:
        loop = asyncio.get_running_loop()
        last = loop.time() + LONGEST_STREAM_S
        spoken = loop.time()
        yield b"retry: 2000\n\n"
        while not self._stop.is_set() and loop.time() < last and await self._is_welcome():
            try:
                changed = await self._changed()
            except NotFoundError:  # the record was deleted; the viewer's next request gets 404
                return
            if changed or loop.time() - spoken > QUIET_S:
                yield _event(changed) if changed else b": still here\n\n"
                spoken = loop.time()
            await self._pause()

    async def _changed(self) -> dict[str, str]:
        parts = await self._draw()
        changed = {name: html for name, html in parts.items() if self._sent.get(name) != html}
        self._sent.update(changed)
        return changed

    async def _is_welcome(self) -> bool:
        """A revoked key, a disabled operator, or a session that was signed out ends the stream within one interval."""
        if not self._request.dashboard.sessions.is_open(self._request.session):
            return False
        return await service.find_owner(self._request.dashboard.room.pool, self._request.session) is not None

    async def _pause(self) -> None:
        try:
            async with asyncio.timeout(self._rest()):
                await self._stop.wait()
        except TimeoutError:
            return


def _event(parts: dict[str, str]) -> bytes:
    return b"event: figures\ndata: " + msgspec.json.encode(parts) + b"\n\n"
