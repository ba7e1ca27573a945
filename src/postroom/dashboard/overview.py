"""The first page: waiting and ended deliveries, dead letters, workers. A stream keeps it current."""

from postroom.dashboard import service
from postroom.dashboard.chart import draw_day
from postroom.dashboard.live import stream
from postroom.dashboard.model import OverviewFigures
from postroom.dashboard.page import PageRequest
from postroom.runtime.endpoint import Answer

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


async def show_live(request: PageRequest) -> Answer:
    async def draw() -> dict[str, str]:
        return draw_parts(request, await request.dashboard.figures.read())

    return stream(request, draw)
