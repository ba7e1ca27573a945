"""The first page: is the installation healthy? A stream keeps it current."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from postroom.dashboard import service
from postroom.dashboard.chart import Chart, Series, draw_chart
from postroom.dashboard.live import stream
from postroom.dashboard.model import OverviewFigures
from postroom.dashboard.page import PageRequest
from postroom.runtime.endpoint import Answer
from postroom.runtime.finding import Finding, Severity, worst_first
from postroom.stats.model import StatsRow

MINUTES = 60  # the last hour, a bar each
PERIODS = ("hour", *service.PERIODS)

PARTS = {
    "problems": "audit:read",
    "lanes": "deliveries:read",
    "rates": "deliveries:read",
    "senders": "senders:read",
    "outbox": "outbox:read",
    "dead_letters": "deliveries:read",
    "workers": "deliveries:read",
}
"""The parts of the page, and the scope that each needs."""

STEPS = (("sent", "sent"), ("deferred", "deferred"), ("failed", "failed"), ("dead_lettered", "dead_letter"))
_METRICS = (("sent", "sent"), ("deferred", "deferred"), ("refused", "failed"), ("dead_lettered", "dead_letter"))
"""Names in the log or the statistics, and the state whose colour and list they have."""

ROWS_BEHIND = {
    "workers": "/workers",
    "claims": "/workers",
    "loops": "/workers",
    "queue": "/deliveries?status=waiting",
    "senders": "/senders",
    "keys": "/keys",
    "outbox": "/outbox",
    "malformed commands": "/malformed",
    "schedule": "/schedule",
    "tokens": "/accounts",
    "templates": "/templates",
    "partitions": "/storage",
    "indexes": "/storage",
    "archive": "/archive",
    "archived files": "/archive",
    "transport": "/settings",
    "dkim": "/settings",
    "secret key": "/settings",
    "sealed secrets": "/senders",
    "from": "/settings",
    "public url": "/settings",
    "message domain": "/settings",
    "bounces": "/settings",
    "administrator": "/settings",
    "backups": "/storage",
    "alerts": "/settings",
    "attempts": "/deliveries?status=waiting",
    "dead letters": "/dead-letters",
    "connections": "/workers",
}
"""Checks of the doctor, and the page with the rows behind them; the others are about the host or the server."""


async def show_overview(request: PageRequest) -> Answer:
    """The page shows the doctor's last findings; the stream runs the checks again, because they take longer."""
    findings = request.dashboard.figures.findings.known
    parts = await _draw_parts(request, findings)
    return request.page("overview.html", parts=parts, period=request.choice("period", PERIODS), periods=PERIODS)


async def show_live(request: PageRequest) -> Answer:
    async def draw() -> dict[str, str]:
        return await _draw_parts(request, await request.dashboard.figures.findings.get())

    return stream(request, draw, rest=request.dashboard.figures.left_s)


async def _draw_parts(request: PageRequest, findings: Sequence[Finding] | None) -> dict[str, str]:
    """Each part that the key may see as HTML, by its name."""
    figures = await request.dashboard.figures.read()
    rates = await _draw_rates(request, figures)
    problems = None if findings is None else worst_first(each for each in findings if each.verdict is not Severity.OK)
    return {
        name: request.draw(
            f"parts/{name}.html",
            figures=figures,
            rates=rates,
            problems=problems,
            rows_behind=ROWS_BEHIND,
            counted=service.COUNTED,
            is_captured=request.call.room.settings.transport == "capture",
            lease_s=request.call.room.settings.lease.total_seconds(),
        )
        for name, scope in PARTS.items()
        if request.may(scope)
    }


async def _draw_rates(request: PageRequest, figures: OverviewFigures) -> Chart:
    """Sent, deferred and failed mail: by minute for an hour, by hour for a day or a week."""
    period = request.choice("period", PERIODS)
    if period not in service.PERIODS:
        return _draw_minutes(request, figures)
    hours = service.PERIODS[period]
    return _draw_hours(request, await request.dashboard.figures.read_hours(hours), hours, at=figures.at)


def _draw_minutes(request: PageRequest, figures: OverviewFigures) -> Chart:
    first = figures.at.replace(second=0, microsecond=0) - timedelta(minutes=MINUTES - 1)
    minutes = [first + timedelta(minutes=index) for index in range(MINUTES)]
    series = [
        Series(_label(step), state, [figures.steps.get((minute, step), 0) for minute in minutes], link=_link(state))
        for step, state in STEPS
    ]
    return draw_chart("Attempts by minute", minutes, series, write=request.viewer.clock_time)


def _draw_hours(request: PageRequest, rows: Sequence[StatsRow], count: int, *, at: datetime) -> Chart:
    first = service.this_hour(at) - timedelta(hours=count - 1)
    moments = [first + timedelta(hours=index) for index in range(count)]
    by_hour = {row.moment: row.figures for row in rows}
    series = [
        Series(
            _label(metric),
            state,
            [getattr(by_hour[moment], metric) if moment in by_hour else 0 for moment in moments],
            link=_link(state),
        )
        for metric, state in _METRICS
    ]
    write = request.viewer.clock_time if count == service.PERIODS["day"] else request.viewer.date_and_hour
    return draw_chart("Attempts by hour", moments, series, write=write)


def _label(name: str) -> str:
    return name.replace("_", " ")


def _link(state: str) -> str:
    return "/deliveries?status=" + ("waiting" if state == "deferred" else state)
