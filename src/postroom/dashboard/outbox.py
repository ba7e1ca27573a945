"""The outbox: progress and lag of every publisher, and pause, resume, reset and skip."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

from postroom.dashboard.chart import Chart, Series, draw_chart
from postroom.dashboard.events import place_page
from postroom.dashboard.listing import Filter, ListColumn, PageAction, columns
from postroom.dashboard.live import stream
from postroom.dashboard.page import PageRequest, checked, form, page
from postroom.errors import BadInput
from postroom.outbox import service
from postroom.outbox.model import VIEW, LagSample, ProgressLine, PublisherStatus, ResetPreview, Skipped, Subscription
from postroom.runtime.endpoint import Answer

READ, OPERATE = "outbox:read", "outbox:operate"

PERIODS = {"hour": (timedelta(minutes=1), 60), "day": (timedelta(minutes=15), 96)}
"""Periods of the plot: the length of a step, and the number of steps."""

MOST_SERIES = 5
"""Publishers in one plot, those with the largest lag first."""


def pair_page(pair: Subscription) -> str:
    return f"/outbox/{quote(pair.topic, safe='')}/{quote(pair.publisher, safe='')}"


def _pair_of(line: ProgressLine) -> Subscription:
    return Subscription(line.topic, line.publisher)


def _lag(line: ProgressLine) -> str:
    return f"{line.lag_events:,}{'+' if line.lag_is_more else ''}" if line.lag_events else "up to date"


_LINE = (
    ListColumn("publisher", "Publisher", link=lambda line: pair_page(_pair_of(line))),
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
        period=_period(request),
        periods=tuple(PERIODS),
        tabs=tabs("/outbox"),
    )


async def live_page(request: PageRequest) -> Answer:
    async def draw() -> dict[str, str]:
        return _draw_parts(request, await request.dashboard.figures.outbox.get(), await _samples(request))

    return stream(request, draw)


async def _samples(request: PageRequest, pair: Subscription | None = None) -> list[LagSample]:
    step, _count = PERIODS[_period(request)]
    return await service.list_lag(request.pool, begin=_begin(request), step=step, pair=pair)


def _draw_parts(request: PageRequest, lines: Sequence[ProgressLine], samples: Sequence[LagSample]) -> dict[str, str]:
    stall = next((line.stall for line in lines if line.stall is not None), None)
    return {
        "lag": request.draw("parts/lag.html", lag=_draw_lag(request, samples), stall=stall),
        "rows": request.rows(
            _LINE, (list(lines), None), path="/outbox", empty="No publisher is subscribed to a topic. Create a topic."
        ),
    }


def _period(request: PageRequest) -> str:
    asked = request.asked("period")
    return asked if asked in PERIODS else next(iter(PERIODS))


def _begin(request: PageRequest) -> datetime:
    """The beginning of the first step: steps begin at round times, so that a plot does not flicker."""
    step, count = PERIODS[_period(request)]
    now = datetime.now(UTC).timestamp()
    last = now - now % step.total_seconds()
    return datetime.fromtimestamp(last, UTC) - step * (count - 1)


def _draw_lag(request: PageRequest, samples: Sequence[LagSample]) -> Chart:
    """The events behind, of the publishers with the largest lag in the period."""
    step, count = PERIODS[_period(request)]
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
        period=_period(request),
        periods=tuple(PERIODS),
    )


def _asked_pair(request: PageRequest) -> Subscription:
    path: Mapping[str, Any] = request.call.path
    return Subscription(path["topic"], path["publisher"])


def _actions(line: ProgressLine, upcoming: Skipped | None) -> list[PageAction]:
    pair = _pair_of(line)
    path = pair_page(pair)
    is_active = line.status is PublisherStatus.ACTIVE
    question = (
        "It stops after the current batch. Nothing is lost: events wait until it is resumed, and keep their order."
    )
    if not is_active:
        question = (
            f"It clears its errors and continues after position {line.last_position}. Nothing is lost or repeated."
        )
    verb = "Pause" if is_active else "Resume"
    switch = PageAction(label=verb, path=f"{path}/{verb.lower()}", scope=OPERATE, question=question)
    actions = [switch]
    if upcoming is not None:
        question = (
            f"{upcoming.type} at position {upcoming.position} is not published by {pair.publisher} in the topic "
            f"{pair.topic}: its subscribers never get it. Other publishers are unchanged."
        )
        position = {"position": str(upcoming.position)}
        actions.append(
            PageAction(
                label="Skip the next event", path=f"{path}/skip", scope=OPERATE, question=question, fields=position
            )
        )
    if not pair.publisher.startswith(VIEW):
        actions.append(PageAction(label="Reset…", path=f"{path}/reset", scope=OPERATE, is_link=True))
    question = f"{pair.publisher} gets no more events of {pair.topic}, and its position is deleted."
    remove = PageAction(label="Unsubscribe", path=f"{path}/remove", scope=OPERATE, question=question)
    return [*actions, remove]


async def pause_page(request: PageRequest) -> Answer:
    pair = _asked_pair(request)
    await service.pause(request.pool, pair, actor=request.actor)
    return request.done(pair_page(pair), "The publisher is paused.")


async def resume_page(request: PageRequest) -> Answer:
    pair = _asked_pair(request)
    await service.resume(request.pool, pair, actor=request.actor)
    return request.done(pair_page(pair), "The publisher continues.")


async def skip_page(request: PageRequest) -> Answer:
    """Skip the event that the page named; if another is the next by now, nothing is skipped."""
    pair = _asked_pair(request)
    position = _position(request.form.get("position"))
    if position is None:
        raise BadInput.of("position", "is needed")
    skipped = await service.skip(request.pool, pair, position=position, actor=request.actor)
    return request.done(pair_page(pair), f"{skipped.type} at position {skipped.position} was skipped.")


async def ask_reset_page(request: PageRequest) -> Answer:
    """The form; with a position or a time, the effect of the reset and the question."""
    pair = _asked_pair(request)
    position, since = _position(request.asked("position")), request.moment("since")
    line = await service.get_progress(request.pool, pair)
    preview, problem = None, None
    if position is not None or since is not None:
        try:
            preview = await service.preview_reset(request.pool, pair, position=position, since=since)
        except BadInput as error:
            problem = error.message
    return request.page(
        "reset.html",
        status=400 if problem else 200,
        line=line,
        path=pair_page(pair),
        filters=[
            Filter("position", "After position", request.asked("position"), placeholder="0 is the beginning"),
            Filter("since", "Or since", request.asked("since"), kind="datetime-local"),
        ],
        effect=None if preview is None else effect_of(preview),
        fields={"position": position, "since": None if since is None else since.isoformat()},
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
    since = checked("since", request.form.get("since"))
    moved = await service.reset(
        request.pool,
        pair,
        position=_position(request.form.get("position")),
        since=_instant(since) if since else None,
        actor=request.actor,
    )
    return request.done(pair_page(pair), f"It continues after position {moved.to_position}.")


def _position(written: str | None) -> int | None:
    written = checked("position", written)
    if written is None:
        return None
    if not written.isdecimal() or len(written) > 18:  # noqa: PLR2004 - digits of a bigint
        raise BadInput.of("position", "must be a position: a number, 0 for the beginning")
    return int(written)


def _instant(written: str) -> datetime:
    try:
        moment = datetime.fromisoformat(written)
    except ValueError:
        raise BadInput.of("since", "must be a time") from None
    if moment.tzinfo is None:
        raise BadInput.of("since", "must have a time zone")
    return moment


_PAIR = "/outbox/{topic}/{publisher}"
PAGES = (
    page("/outbox", list_page, scope=READ),
    page("/outbox/live", live_page, scope=READ, keeps_session=False),
    page(_PAIR, show_page, scope=READ),
    form(f"{_PAIR}/pause", pause_page, scope=OPERATE),
    form(f"{_PAIR}/resume", resume_page, scope=OPERATE),
    form(f"{_PAIR}/skip", skip_page, scope=OPERATE),
    page(f"{_PAIR}/reset", ask_reset_page, scope=OPERATE),
    form(f"{_PAIR}/reset", reset_page, scope=OPERATE),
)
