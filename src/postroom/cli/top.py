"""`postroom top`: the overview of the dashboard in a terminal."""

import asyncio
import signal
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from postroom.runtime.terminal import in_room

if TYPE_CHECKING:
    from rich.console import RenderableType

    from postroom.dashboard.model import OverviewFigures
    from postroom.db.room import Room
    from postroom.runtime.finding import Finding

INTERVAL_S = 1.0  # each frame reads the figures again
_SHOWN = 8  # rows of workers, senders and publishers that fit a terminal of 24 lines beside the others
_PIPE_WIDTH = 120  # characters of a line without a terminal
_WIDEST = 32  # characters of a column that is never shortened


def top(
    *,
    once: Annotated[bool, typer.Option("--once", help="Print one frame and exit; the default without a terminal.")] = (
        False
    ),
) -> None:
    """Show lanes, rates, latency, workers, senders, outbox and problems of the room, every second. Ctrl-C ends it."""
    in_room(partial(_watch, once=once or not sys.stdout.isatty()))


async def _watch(room: "Room", *, once: bool) -> None:
    from rich.console import Console
    from rich.live import Live

    from postroom.cli.doctor import examine
    from postroom.dashboard.service import FigureReader

    reader = FigureReader(room.pool, examine=partial(examine, room.settings))
    console = Console(width=None if sys.stdout.isatty() else _PIPE_WIDTH)

    async def frame() -> "RenderableType":
        return draw_frame(await reader.read(), await reader.findings.get(), room=room)

    if once:
        console.print(await frame())
        return
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGINT, stop.set)
    with Live(await frame(), console=console, screen=True, auto_refresh=False) as live:
        while not stop.is_set():
            live.update(await frame(), refresh=True)
            with suppress(TimeoutError):
                async with asyncio.timeout(INTERVAL_S):
                    await stop.wait()


def draw_frame(figures: "OverviewFigures", findings: "Sequence[Finding]", *, room: "Room") -> "RenderableType":
    """One picture of the room."""
    from rich.console import Group
    from rich.text import Text

    lease = room.settings.lease
    return Group(
        Text(f"postroom top · room {room.name} · {figures.at:%Y-%m-%d %H:%M:%S} UTC", style="bold"),
        draw_lanes(figures),
        draw_rates(figures),
        _workers(figures, lease),
        _senders(figures),
        _outbox(figures),
        _problems(findings),
    )


def draw_lanes(figures: "OverviewFigures") -> "RenderableType":
    from postroom.dashboard.service import COUNTED
    from postroom.dashboard.views import latency, seconds, span

    rows = []
    for lane in figures.lanes:
        late = seconds(lane.oldest_due_at, figures.at)
        measured = figures.latency.get(lane.lane)
        rows.append(
            (
                lane.lane,
                _counted(lane.waiting, COUNTED),
                _counted(lane.due, COUNTED),
                "–" if late is None else (span(late) if late >= 0 else f"in {span(-late)}"),
                figures.sending.get(lane.lane, 0),
                latency(measured.p50) if measured else "–",
                latency(measured.p95) if measured else "–",
                ", ".join(
                    f"{each.waits_for} {span(seconds(each.since, figures.at) or 0)}"
                    for each in figures.oldest_of(lane.lane)
                ),
            )
        )
    return _table(("lane", "waiting", "due", "oldest", "sending", "p50", "p95", "waits for"), rows)


def draw_rates(figures: "OverviewFigures") -> "RenderableType":
    from postroom.dashboard.overview import MINUTES, STEPS
    from postroom.stats.plot import sparkline

    this = figures.at.replace(second=0, microsecond=0)
    rows = []
    for step, _state in STEPS:
        counts = [figures.steps.get((this - timedelta(minutes=ago), step), 0) for ago in range(MINUTES - 1, -1, -1)]
        rows.append((step.replace("_", " "), counts[-1], counts[-2], f"{sum(counts):,}", sparkline(counts)))
    return _table(("attempts", "this minute", "last minute", "hour", "by minute"), rows)


def _workers(figures: "OverviewFigures", lease: timedelta) -> "RenderableType":
    from postroom.dashboard.views import seconds, span

    rows = []
    for worker in figures.workers[:_SHOWN]:
        silence = seconds(worker.seen_at, figures.at) or 0.0
        state = worker.state(figures.at, lease)
        rows.append((worker.host, worker.pid, state, span(silence), ", ".join(worker.asleep)))
    return _table(
        ("worker", "process", "state", "seen ago", "waits in"), rows, empty="No worker is running: postroom work."
    )


def _senders(figures: "OverviewFigures") -> "RenderableType":
    rows = [
        (each.email, each.status, f"{each.daily_sent:,} of {each.limit:,}", each.status_reason or "")
        for each in figures.senders[:_SHOWN]
    ]
    return _table(
        ("sender", "state", "today", "reason"),
        rows,
        empty="No sender account: POSTROOM_TRANSPORT handles all mail.",
    )


def _outbox(figures: "OverviewFigures") -> "RenderableType":
    from postroom.dashboard.views import span

    ordered = sorted(figures.outbox, key=lambda line: line.lag_events, reverse=True)
    rows = [
        (
            line.topic,
            line.publisher,
            line.status,
            f"{line.lag_events:,}{'+' if line.lag_is_more else ''}",
            span(line.lag_seconds) if line.lag_events else "–",
            line.last_error or "",
        )
        for line in ordered[:_SHOWN]
    ]
    return _table(
        ("topic", "publisher", "state", "events behind", "oldest", "last error"),
        rows,
        empty="No publisher follows the events.",
    )


def _problems(findings: "Sequence[Finding]") -> "RenderableType":
    from rich.padding import Padding
    from rich.text import Text

    from postroom.cli.doctor import STYLES
    from postroom.runtime.finding import Severity, worst_first
    from postroom.runtime.terminal import shown

    text = Text()
    for each in worst_first(findings):
        if each.verdict is not Severity.OK:
            text.append(f"{each.verdict}  ", style=STYLES[each.verdict])
            text.append(f"{each.check}: {shown(each.found)} → {each.advice}\n")
    return Padding(text or Text("All checks of postroom doctor pass.", style="dim"), (1, 0, 0, 0))


def _counted(count: int, bound: int) -> str:
    return f"{count:,}{'+' if count >= bound else ''}"


def _table(names: Sequence[str], rows: Iterable[Sequence[Any]], *, empty: str = "") -> "RenderableType":
    """A table under a blank line; without rows, one sentence."""
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    from postroom.runtime.terminal import shown

    table = Table(box=None, pad_edge=False, header_style="bold cyan")
    cells = [[shown(cell) for cell in row] for row in rows]
    for number, name in enumerate(names):
        # The last column is shortened first; rich would otherwise shrink some column to nothing.
        widest = max(len(name), *(len(row[number]) for row in cells)) if cells else 0
        is_last = number == len(names) - 1
        table.add_column(name, no_wrap=True, overflow="ellipsis", min_width=None if is_last else min(widest, _WIDEST))
    for row in cells:
        table.add_row(*map(Text, row))  # Text, not markup: an error may contain [brackets]
    return Padding(table if table.row_count else Text(empty, style="dim"), (1, 0, 0, 0))
