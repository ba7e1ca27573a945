"""Schedule: the coming thirty days by zone, and late and failed messages."""

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any
from uuid import UUID

from postroom.dashboard.chart import Chart, Series, draw_chart
from postroom.dashboard.listing import DELIVERY, Filter, ListColumn, columns, options_of
from postroom.dashboard.page import PageRequest, page
from postroom.errors import BadInput
from postroom.runtime.endpoint import Answer
from postroom.runtime.page import Found
from postroom.schedule import scheduled_events as agenda
from postroom.schedule import service
from postroom.schedule.kinds import KINDS
from postroom.schedule.model import ComingDay, EventFilter, ScheduledEvent, ScheduledEventStatus

READ = "users:read"
DAYS = 30  # a month, a bar each
MOST_ZONES = 4
"""Zones with their own colour; the others are one series."""


def person_page(user_id: UUID) -> str:
    return f"/people/{user_id}"


def local_time(event: ScheduledEvent) -> str:
    return f"{event.target_local:%a %Y-%m-%d %H:%M}"


def _message(event: ScheduledEvent) -> str | None:
    said = event.payload.get("message") if isinstance(event.payload, dict) else None
    return None if said is None else str(said)


_COMING = (
    ListColumn("target_utc", "Due", "when"),
    ListColumn("local", "Local time", value=local_time, link=lambda event: person_page(event.user_id)),
    *columns(ScheduledEvent, "timezone", timezone={"label": "Time zone", "is_minor": True}),
    ListColumn("kind", "Kind", "words", value=lambda event: event.kind.lower()),
    ListColumn("message", "Message", "clip", value=_message),
)

EVENT = (
    *_COMING,
    ListColumn("status", "Status", "state", value=lambda event: event.status.lower()),
    ListColumn("late_by", "Late by", "span", value=lambda event: event.late_by and event.late_by.total_seconds()),
    *columns(ScheduledEvent, "failure_reason", failure_reason={"form": "clip", "label": "Failure"}),
    DELIVERY,
)

_FILTERS = (
    Filter("status", "Status", options=[each.lower() for each in options_of(ScheduledEventStatus)]),
    Filter("kind", "Kind", options=[kind.lower() for kind in KINDS]),
    Filter("late", "Late", options=("yes",)),
)

_ZONE = (ListColumn("zone", "Time zone"), ListColumn("events", "Messages", "bar"))


def tabs(shown: str) -> list[tuple[str, str, bool]]:
    pages = (
        ("Coming", "/schedule"),
        ("Late", "/schedule?late=yes"),
        ("Failed", "/schedule?status=failed"),
        ("People", "/people"),
    )
    return [(name, path, path == shown) for name, path in pages]


async def list_page(request: PageRequest) -> Answer:
    asked = request.chosen(_FILTERS)
    found = await _events(request, **asked)
    counted = await service.count_coming(request.pool, until=datetime.now(UTC) + timedelta(days=DAYS))
    is_plain = not any(asked.values())
    shown = "/schedule?late=yes" if asked["late"] else "/schedule?status=failed" if asked["status"] == "failed" else ""
    return request.page(
        "schedule.html",
        tabs=tabs("/schedule" if is_plain else shown),
        backlog=await service.measure_schedule(request.pool),
        days=_draw_days(request, counted) if is_plain else None,
        is_more=any(each.is_more for each in counted),
        most=service.MOST_COUNTED,
        zones=_zones(counted) if is_plain else [],
        zone_columns=_ZONE,
        filters=request.filters(_FILTERS),
        rows=request.rows(
            _COMING if is_plain else EVENT, found, path="/schedule", filters=_FILTERS, empty="No message is planned."
        ),
    )


async def _events(
    request: PageRequest, status: str | None, kind: str | None, late: str | None
) -> Found[ScheduledEvent]:
    """Without a filter the coming messages, soonest first; otherwise the latest first."""
    chosen = EventFilter(
        status=_status(status) if status else None if late or kind else ScheduledEventStatus.PENDING,
        kind=kind.upper() if kind else None,
        is_late=True if late else None,
    )
    is_coming = chosen.status is ScheduledEventStatus.PENDING
    return await agenda.list_events(
        request.pool, chosen, is_soonest_first=is_coming, cursor=request.asked("cursor"), limit=30
    )


def _status(written: str) -> ScheduledEventStatus:
    with BadInput.naming("status", f"must be one of {', '.join(ScheduledEventStatus)}"):
        return ScheduledEventStatus(written.upper())


def _draw_days(request: PageRequest, counted: Sequence[ComingDay]) -> Chart:
    """Messages by the day of the person, the zones with the most messages as their own series."""
    first = datetime.now(request.viewer.clock).date()
    days = [first + timedelta(days=index) for index in range(DAYS)]
    largest = [zone["zone"] for zone in _zones(counted)][:MOST_ZONES]
    amounts = Counter[tuple[date, str]]()
    for each in counted:
        amounts[max(each.day, first), each.timezone if each.timezone in largest else "other zones"] += each.events
    names = [*largest, *(["other zones"] if any(zone == "other zones" for _day, zone in amounts) else [])]
    series = [
        Series(name, f"series-{index}", [amounts[day, name] for day in days]) for index, name in enumerate(names, 1)
    ]
    moments = [datetime(day.year, day.month, day.day, 12, tzinfo=UTC) for day in days]
    return draw_chart("Messages by day", moments, series, write=lambda moment: f"{moment:%d %b}")


def _zones(counted: Sequence[ComingDay]) -> list[dict[str, Any]]:
    totals = Counter[str]()
    for each in counted:
        totals[each.timezone] += each.events
    most = max(totals.values(), default=0)
    return [{"zone": zone, "events": (count, most)} for zone, count in totals.most_common()]


PAGES = (page("/schedule", list_page, scope=READ),)
