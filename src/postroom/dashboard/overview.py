"""The first page: waiting and ended deliveries, dead letters, workers. A stream keeps it current."""

from datetime import timedelta

from postroom.dashboard import service
from postroom.dashboard.chart import Chart, Series, draw_chart
from postroom.dashboard.live import stream
from postroom.dashboard.model import OverviewFigures
from postroom.dashboard.page import PageRequest
from postroom.delivery.model import DeliveryState
from postroom.runtime.endpoint import Answer

ENDS = (
    DeliveryState.SENT,
    DeliveryState.SUPPRESSED,
    DeliveryState.CANCELLED,
    DeliveryState.FAILED,
    DeliveryState.DEAD_LETTER,
)
"""From the ground up."""

PARTS = ("lanes", "day", "dead_letters", "workers")


async def show_overview(request: PageRequest) -> Answer:
    parts = draw_parts(request, await request.dashboard.figures.read())
    return request.page("overview.html", parts=parts)


def draw_parts(request: PageRequest, figures: OverviewFigures) -> dict[str, str]:
    """Each part of the overview as HTML, by its name."""
    day = draw_day(request, figures)
    return {
        name: request.draw(
            f"parts/{name}.html",
            figures=figures,
            day=day,
            counted=service.COUNTED,
            day_counted=service.DAY_COUNTED,
            lease_s=request.call.room.settings.lease.total_seconds(),
        )
        for name in PARTS
    }


def draw_day(request: PageRequest, figures: OverviewFigures) -> Chart:
    """The deliveries that ended in each hour of the last day, by state."""
    first = service.first_hour(figures.at)
    hours = [first + timedelta(hours=index) for index in range(service.HOURS)]
    counts = {(entry.hour, entry.state): entry.count for entry in figures.ended}
    series = [
        Series(
            state.value.replace("_", " "),
            state.value,
            [counts.get((hour, state), 0) for hour in hours],
            link=f"/deliveries?status={state.value}",
        )
        for state in ENDS
    ]
    return draw_chart("Deliveries that ended", hours, series, write=request.viewer.clock_time)


async def show_live(request: PageRequest) -> Answer:
    async def draw() -> dict[str, str]:
        return draw_parts(request, await request.dashboard.figures.read())

    return stream(request, draw)
