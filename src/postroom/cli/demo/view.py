"""The story in the terminal: a line per scene, with the overview of the room below it while it plays."""

import asyncio
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from postroom.cli.top import draw_lanes, draw_rates
from postroom.dashboard.model import OverviewFigures
from postroom.dashboard.service import FigureReader
from postroom.runtime.terminal import say

INTERVAL_S = 0.5  # a person reads no faster


@dataclass(slots=True)
class Line:
    """A scene: its title, and its counted facts once it has ended."""

    title: str
    is_playing: bool = False
    facts: str = ""


class StoryView:
    """Shows the scenes; in a pipe, one line at the end of each."""

    def __init__(self, titles: list[str], reader: FigureReader) -> None:
        self.lines = [Line(title) for title in titles]
        self._reader = reader
        self._live: Live | None = None

    @asynccontextmanager
    async def playing(self) -> AsyncIterator[None]:
        """Draw the view again and again while the scenes play."""
        if not sys.stdout.isatty():
            yield
            return
        with Live(console=Console(), auto_refresh=False) as self._live:
            task = asyncio.create_task(self._keep_drawing())
            try:
                yield
            finally:
                task.cancel()
                self._live.update(draw_story(self.lines, None), refresh=True)

    @asynccontextmanager
    async def scene(self, number: int) -> AsyncIterator[Line]:
        """One scene, whose facts the caller sets."""
        line = self.lines[number]
        line.is_playing = True
        yield line
        line.is_playing = False
        if self._live is None:
            say(f"{line.title}: {line.facts}")

    async def _keep_drawing(self) -> None:
        assert self._live is not None
        while True:
            self._live.update(draw_story(self.lines, await self._reader.read()), refresh=True)
            await asyncio.sleep(INTERVAL_S)


def draw_story(lines: Sequence[Line], figures: OverviewFigures | None) -> RenderableType:
    """The scenes with their facts; below them the lanes and rates of the room while a scene plays."""
    table = Table(box=None, pad_edge=False, show_header=False)
    for _column in range(3):
        table.add_column(overflow="fold")
    for line in lines:
        table.add_row(_mark(line), Text(line.title, style="bold" if line.is_playing else ""), Text(line.facts))
    return Group(table) if figures is None else Group(table, draw_lanes(figures), draw_rates(figures))


def _mark(line: Line) -> RenderableType:
    if line.is_playing:
        return Spinner("dots", style="cyan")
    return Text("✓", style="green") if line.facts else Text("·", style="dim")
