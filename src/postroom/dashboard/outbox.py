"""The outbox: progress and lag of every publisher, and pause, resume, reset and skip."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

from postroom.dashboard.chart import Chart, Series, draw_chart
from postroom.dashboard.events import place_page
from postroom.dashboard.listing import Filter, ListColumn, PageAction, columns
from postroom.dashboard.live import stream
from postroom.dashboard.page import PageRequest, actions, form, page
from postroom.db.pool import Pool
from postroom.errors import BadInput
from postroom.outbox import service
from postroom.outbox.model import VIEW, LagSample, ProgressLine, PublisherStatus, ResetPreview, Skipped, Subscription
from postroom.outbox.topics import remove_publisher
from postroom.runtime.endpoint import Answer

READ, OPERATE = "outbox:read", "outbox:operate"

PERIODS = {"hour": (timedelta(minutes=1), 60), "day": (timedelta(minutes=15), 96)}
"""Periods of the plot: the length of a step, and the number of steps."""

MOST_SERIES = 5
"""Publishers in one plot, those with the largest lag first."""


def pair_page(pair: Subscription) -> str:
    return f"/outbox/{quote(pair.topic, safe='')}/{quote(pair.publisher, safe='')}"


def _lag(line: ProgressLine) -> str:
    return f"{line.lag_events:,}{'+' if line.lag_is_more else ''}" if line.lag_events else "up to date"


_LINE = (
    ListColumn("publisher", "Publisher", link=lambda line: pair_page(line.pair)),
    ListColumn("topic", "Topic", link=lambda _line: "/outbox/topics"),
    ListColumn("status", "Status", "state", value=lambda line: line.status.lower()),
    ListColumn("lag_events", "Events behind", value=_lag),
    ListColumn("lag_seconds", "Oldest", "span", value=lambda line: line.lag_seconds if line.lag_events else None),
    *columns(ProgressLine, "last_published_at", last_published_at={"label": "Published", "is_minor": True}),
    ListColumn("leader_instance", "Leader", is_minor=True),
    *columns(ProgressLine, "last_error", last_error={"form": "clip"}),
)

_FACTS = columns(
    ProgressLine, "last_position", "last_published_at", "leader_instance", "leader_since", "leader_heartbeat",
    "error_count", "failed_position", "updated_at",
    last_position={"form": "code"}, failed_position={"form": "code"}, leader_instance={"label": "Leader"},
    error_count={"label": "Errors in a row"},
)  # fmt: skip


def tabs(shown: str) -> list[tuple[str, str, bool]]:
    pages = (("Publishers", "/outbox"), ("Topics", "/outbox/topics"), ("Mail rules", "/outbox/rules"))
    return [(name, path, path == shown) for name, path in pages]


async def list_page(request: PageRequest) -> Answer:
    lines = await service.list_progress(request.pool)  # not the cached lines: the page follows an action
    return request.page(
        "outbox.html",
        parts=_draw_parts(request, lines, await _samples(request)),
        period=request.choice("period", PERIODS),
        periods=tuple(PERIODS),
        tabs=tabs("/outbox"),
    )


async def live_page(request: PageRequest) -> Answer:
    async def draw() -> dict[str, str]:
        return _draw_parts(request, await request.dashboard.figures.outbox.get(), await _samples(request))

    return stream(request, draw)


async def _samples(request: PageRequest, pair: Subscription | None = None) -> list[LagSample]:
    step, _count = PERIODS[request.choice("period", PERIODS)]
    return await service.list_lag(request.pool, begin=_begin(request), step=step, pair=pair)


def _draw_parts(request: PageRequest, lines: Sequence[ProgressLine], samples: Sequence[LagSample]) -> dict[str, str]:
    stall = next((line.stall for line in lines if line.stall is not None), None)
    return {
        "lag": request.draw("parts/lag.html", lag=_draw_lag(request, samples), stall=stall),
        "rows": request.rows(
            _LINE, (list(lines), None), path="/outbox", empty="No publisher is subscribed to a topic. Create a topic."
        ),
    }


def _begin(request: PageRequest) -> datetime:
    """The beginning of the first step: steps begin at round times, so that a plot does not flicker."""
    step, count = PERIODS[request.choice("period", PERIODS)]
    now = datetime.now(UTC).timestamp()
    last = now - now % step.total_seconds()
    return datetime.fromtimestamp(last, UTC) - step * (count - 1)


def _draw_lag(request: PageRequest, samples: Sequence[LagSample]) -> Chart:
    """The events behind, of the publishers with the largest lag in the period."""
    step, count = PERIODS[request.choice("period", PERIODS)]
    begin = _begin(request)
    moments = [begin + step * index for index in range(count)]
    largest: dict[Subscription, int] = {}
    for sample in samples:
        largest[sample.pair] = max(largest.get(sample.pair, 0), sample.events)
    behind = [pair for pair in largest if largest[pair]] or list(largest)
    shown = sorted(behind, key=lambda pair: (-largest[pair], pair))[:MOST_SERIES]
    known = {(sample.pair, sample.at): sample.events for sample in samples}
    series = [
        Series(str(pair), f"series-{index}", [known.get((pair, at), 0) for at in moments], link=pair_page(pair))
        for index, pair in enumerate(shown, start=1)
    ]
    return draw_chart("Events behind", moments, series, write=request.viewer.clock_time, kind="areas")


# ── one publisher of a topic ───────────────────────────────────────────────────────────────────────────────────────


async def show_page(request: PageRequest) -> Answer:
    pair = _asked_pair(request)
    line, samples = await service.get_progress(request.pool, pair), await _samples(request, pair)
    place, upcoming = await service.find_next(request.pool, pair) or (None, None)
    return request.page(
        "publisher.html",
        line=line,
        lag=_draw_lag(request, samples),
        lag_text=_lag(line),
        facts=_FACTS,
        upcoming=upcoming,
        upcoming_page=place_page(place) if place else None,
        actions=_actions(line, upcoming),
        path=pair_page(pair),
        period=request.choice("period", PERIODS),
        periods=tuple(PERIODS),
    )


def _asked_pair(request: PageRequest) -> Subscription:
    path: Mapping[str, Any] = request.call.path
    return Subscription(path["topic"], path["publisher"])


def _of_pair(step: Callable[..., Awaitable[object]]) -> Callable[..., Awaitable[object]]:
    """A step of the service, given the two names in the path."""

    async def act(pool: Pool, topic: str, publisher: str, *, actor: str) -> object:
        return await step(pool, Subscription(topic, publisher), actor=actor)

    return act


_PAIR = "/outbox/{topic}/{publisher}"
_PAUSE = PageAction(
    "Pause", f"{_PAIR}/pause", OPERATE, _of_pair(service.pause), "The publisher is paused.",
    question="It stops after the current batch. Nothing is lost: events wait until it is resumed, and keep their "
    "order.",
)  # fmt: skip
_RESUME = PageAction(
    "Resume", f"{_PAIR}/resume", OPERATE, _of_pair(service.resume), "The publisher continues.",
    question="It clears its errors and continues after position {position}. Nothing is lost or repeated.",
)  # fmt: skip
_SKIP = PageAction(
    "Skip the next event", f"{_PAIR}/skip", OPERATE,
    question="{type} at position {position} is not published by {publisher} in the topic {topic}: its subscribers never"
    " get it. Other publishers are unchanged.",
)  # fmt: skip
_RESET = PageAction("Reset…", f"{_PAIR}/reset", OPERATE, is_link=True)
_REMOVE = PageAction(
    "Unsubscribe", f"{_PAIR}/remove", OPERATE, _of_pair(remove_publisher),
    "{publisher} is no longer subscribed to {topic}.", to="/outbox",
    question="{publisher} gets no more events of {topic}, and its position is deleted.",
)  # fmt: skip


def _actions(line: ProgressLine, upcoming: Skipped | None) -> list[PageAction]:
    pair = line.pair
    switch = _PAUSE if line.status is PublisherStatus.ACTIVE else _RESUME
    offered = [switch.at(*pair, position=line.last_position)]
    if upcoming is not None:
        event = {"type": upcoming.type, "position": str(upcoming.position)}
        fields = {"position": event["position"]}
        offered.append(_SKIP.at(*pair, fields=fields, publisher=pair.publisher, topic=pair.topic, **event))
    if not pair.publisher.startswith(VIEW):
        offered.append(_RESET.at(*pair))
    return [*offered, _REMOVE.at(*pair, publisher=pair.publisher, topic=pair.topic)]


async def skip_page(request: PageRequest) -> Answer:
    """Skip the event that the page named; if another is the next by now, nothing is skipped."""
    pair = _asked_pair(request)
    position = request.number("position")
    if position is None:
        raise BadInput.of("position", "is needed")
    skipped = await service.skip(request.pool, pair, position=position, actor=request.actor)
    return request.done(pair_page(pair), f"{skipped.type} at position {skipped.position} was skipped.")


_RESET_FILTERS = (
    Filter("position", "After position", placeholder="0 is the beginning"),
    Filter("since", "Or since", kind="datetime-local"),
)


async def ask_reset_page(request: PageRequest) -> Answer:
    """The form; with a position or a time, the effect of the reset and the question."""
    pair = _asked_pair(request)
    position, since = request.number("position"), request.moment("since")
    line = await service.get_progress(request.pool, pair)
    preview, problem = None, None
    if position is not None or since is not None:
        try:
            preview = await service.preview_reset(request.pool, pair, position=position, since=since)
        except BadInput as error:
            problem = error.message
    return request.page(
        "effect.html",
        title="Reset",
        above=(f"{line.publisher} of {line.topic}", pair_page(pair)),
        path=f"{pair_page(pair)}/reset",
        lead=f"It has published everything up to position {line.last_position}. Choose the position after which it "
        "continues, or a time: then it continues with the first event since.",
        filters=request.filters(_RESET_FILTERS),
        show="Show the effect",
        effect=None if preview is None else effect_of(preview),
        is_possible=True,
        fields={"position": position, "since": None if since is None else since.isoformat()},
        button="Reset the publisher",
        problem=problem,
    )


def effect_of(preview: ResetPreview) -> str:
    """A sentence about the events that a reset repeats or loses."""
    if not preview.events:
        return "No event of the topic lies between the two positions: nothing is repeated and nothing is lost."
    are = "event is" if preview.events == 1 else "events are"
    count = f"{preview.events:,}{' or more' if preview.is_more else ''} {are}"
    if preview.rewinds:
        return (
            f"{count} published again. Receivers get them twice, with the same id; those that do not recognise a "
            "repeated id act on them twice."
        )
    return f"{count} lost for this publisher: it does not publish them, and its subscribers never get them."


async def reset_page(request: PageRequest) -> Answer:
    pair = _asked_pair(request)
    position, since = request.number("position"), request.moment("since", has_zone=True)
    moved = await service.reset(request.pool, pair, position=position, since=since, actor=request.actor)
    return request.done(pair_page(pair), f"It continues after position {moved.to_position}.")


PAGES = (
    page("/outbox", list_page, scope=READ),
    page("/outbox/live", live_page, scope=READ, keeps_session=False),
    page(_PAIR, show_page, scope=READ),
    *actions(_PAUSE, _RESUME, _REMOVE),
    form(f"{_PAIR}/skip", skip_page, scope=OPERATE),
    page(f"{_PAIR}/reset", ask_reset_page, scope=OPERATE),
    form(f"{_PAIR}/reset", reset_page, scope=OPERATE),
)
