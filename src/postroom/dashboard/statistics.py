"""Statistics: any metric by time, campaign, sender, domain, template or tag, beside another period, and as CSV."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta
from typing import Any
from urllib.parse import urlencode

from postroom.dashboard.chart import Chart, Series, draw_chart, write_day
from postroom.dashboard.listing import Filter, ListColumn, filters, label_of, query_with
from postroom.dashboard.page import PageRequest
from postroom.errors import BadInput
from postroom.runtime.endpoint import Answer
from postroom.runtime.spreadsheet import write_rows
from postroom.stats import service
from postroom.stats.model import COLUMNS, METRICS, TIMES, Figures, Grouping, Selection, StatsRow

READ = "stats:read"
DAYS = ("1", "7", "30", "90")
SHOWN = ("accepted", "sent", "deferred", "bounced", "dead_lettered", "opened_unique", "clicked_unique", "unsubscribed")
"""Metrics in the table; the CSV has all of them."""

LATE = frozenset({Grouping.DOMAIN, Grouping.SENDER})
"""Groupings by values that an attempt decides."""

YEARS = range(2000, 2100)
"""Years of a day; every room is younger."""

MOST_ROWS = 500
"""Groups that are read for one page; times are not limited, because a chart has all of them."""

MOST_DAYS_BY_HOUR = 7
"""Each hour takes about 400 bytes of a chart."""

MOST_SHOWN = 120
"""Rows of the table. One takes about 600 bytes, and a page should stay below 100 KB; the CSV has all of them."""


@dataclass(frozen=True, slots=True)
class Question:
    """The figures that a viewer asks for."""

    by: Grouping
    metric: str
    days: int
    selection: Selection
    other_end: datetime | None = None  # of the period to compare with; None: the one before

    @property
    def other(self) -> Selection:
        """The period of the same length to compare with: the one before the selected one, unless another was chosen."""
        begin, end = self.selection.begin, self.selection.end
        assert begin is not None
        assert end is not None
        other_end = self.other_end or begin
        return replace(self.selection, begin=other_end - (end - begin), end=other_end)

    @property
    def other_name(self) -> str:
        if self.other_end is None:
            return "the period before"
        return f"the period to {self.other_end - timedelta(days=1):%Y-%m-%d}"


@dataclass(frozen=True, slots=True)
class Answers:
    """Rows and total of the selected period, and of the one to compare with."""

    rows: Sequence[StatsRow]
    other_rows: Sequence[StatsRow]
    now: Figures
    then: Figures


_SELECTED = filters(
    Selection,
    Filter("campaign", "Campaign id", field="campaign_id", is_rare=True),
    Filter("sender", "Sender id", field="sender_account_id", is_rare=True),
    Filter("domain", "Domain", placeholder="example.org", is_rare=True),
    Filter("template", "Template", placeholder="welcome", is_rare=True),
    Filter("tag", "Tag", placeholder="kind=receipt", is_rare=True),
)


async def show_page(request: PageRequest) -> Answer:
    asked = read_question(request, now=datetime.now(UTC))
    is_over_time = asked.by in TIMES
    if asked.by is Grouping.HOUR and asked.days > MOST_DAYS_BY_HOUR:
        raise BadInput.of("by", f"hour is shown for {MOST_DAYS_BY_HOUR} days at most; choose day, or download the CSV")
    read = await (_read_times if is_over_time else _read_groups)(request, asked)
    shown = _filters(request, asked)
    return request.page(
        "statistics.html",
        filters=shown,
        query=query_with(shown),
        asked=asked,
        now=read.now,
        then=read.then,
        drawn=_chart(request, asked, read) if is_over_time else None,
        columns=_columns(asked, read),
        rows=(read.rows[::-1] if is_over_time else _with_figures(asked, read.rows))[:MOST_SHOWN],
        hidden=max(len(read.rows) - MOST_SHOWN, 0),
    )


async def _read_times(request: PageRequest, asked: Question) -> Answers:
    """The totals are the sums of the times."""
    now = await service.measure(request.pool, asked.selection, groups=[asked.by])
    then = await service.measure(request.pool, asked.other, groups=[asked.by])
    return Answers(now, then, *(Figures.sum(row.figures for row in period) for period in (now, then)))


async def _read_groups(request: PageRequest, asked: Question) -> Answers:
    """The largest groups of both periods."""
    rows = await service.measure(request.pool, asked.selection, groups=[asked.by], limit=MOST_ROWS)
    others = await service.measure(request.pool, asked.other, groups=[asked.by], limit=MOST_ROWS)
    now = await _total(request, asked.selection, asked.by, rows)
    return Answers(rows, others, now, await _total(request, asked.other, asked.by, others))


async def _total(request: PageRequest, period: Selection, by: Grouping, rows: Sequence[StatsRow]) -> Figures:
    """The sum of the rows, unless there may be more of them, or a mail may be in several."""
    if by is Grouping.TAG or len(rows) >= MOST_ROWS:
        return await service.total(request.pool, period)
    return Figures.sum(row.figures for row in rows)


async def csv_page(request: PageRequest) -> Answer:
    """All metrics of the same question; spreadsheets run no cell of it as a formula."""
    asked = read_question(request, now=datetime.now(UTC))
    rows = await service.measure(request.pool, asked.selection, groups=[asked.by])
    table = [[group_of(row, asked.by), *(getattr(row.figures, name) for name in METRICS)] for row in rows]
    headers = {"content-disposition": f'attachment; filename="postroom-{asked.by.value}.csv"'}
    return Answer(write_rows([[asked.by.value, *METRICS], *table]).encode(), 200, "text/csv; charset=utf-8", headers)


def read_question(request: PageRequest, *, now: datetime) -> Question:
    """The question in the address; its period ends with the current hour, or with a chosen day."""
    days = request.asked("days") or "7"
    metric = request.asked("metric") or "sent"
    if days not in DAYS:
        raise BadInput.of("days", f"must be one of {', '.join(DAYS)}")
    if metric not in METRICS:
        raise BadInput.of("metric", f"must be one of {', '.join(METRICS)}")
    with BadInput.naming("by", f"must be one of {', '.join(Grouping)}"):
        by = Grouping(request.asked("by") or ("hour" if days == "1" else "day"))
    end = _end_of_day(request, "until") or now.replace(minute=0, second=0, microsecond=0) + timedelta(hours=1)
    if by is Grouping.DAY:  # whole days
        end = end.replace(hour=0) + timedelta(days=1) if end.hour else end
    selection = Selection(**request.chosen(_SELECTED), begin=end - timedelta(days=int(days)), end=end)
    return Question(by, metric, int(days), selection, _end_of_day(request, "other_until"))


def _end_of_day(request: PageRequest, name: str) -> datetime | None:
    """The end of a UTC day in the address."""
    asked = request.asked(name)
    if asked is None:
        return None
    try:
        day = date.fromisoformat(asked)
    except ValueError:
        day = date.min
    if day.year not in YEARS:
        raise BadInput.of(name, "must be a day, for example 2026-11-30")
    return datetime.combine(day, time(), UTC) + timedelta(days=1)


def _filters(request: PageRequest, asked: Question) -> list[Filter]:
    return [
        Filter("by", "By", asked.by.value, [group.value for group in Grouping], is_required=True),
        Filter("days", "Period in days", str(asked.days), DAYS, is_required=True),
        Filter("metric", "Metric", asked.metric, METRICS, is_required=True),
        Filter("until", "Period ends on", request.asked("until"), kind="date"),
        Filter("other_until", "Compared period ends on", request.asked("other_until"), kind="date", is_rare=True),
        *request.filters(_SELECTED),
    ]


def group_of(row: StatsRow, by: Grouping) -> Any:
    """The value that a row is grouped by."""
    if by not in TIMES:
        return getattr(row, COLUMNS[by])
    assert row.moment is not None
    return f"{row.moment.astimezone(UTC):%Y-%m-%d}" if by is Grouping.DAY else row.moment.astimezone(UTC).isoformat()


def _columns(asked: Question, read: Answers) -> list[ListColumn]:
    def metric(name: str) -> Callable[[StatsRow], int]:
        return lambda row: getattr(row.figures, name)

    most = max((getattr(row.figures, asked.metric) for row in read.rows), default=0)
    return [
        _first_column(asked.by),
        ListColumn(
            "share",
            label_of(asked.metric),
            "bar",
            value=lambda r: (metric(asked.metric)(r), most),
        ),
        *([] if asked.by in TIMES else [_other_column(asked, read)]),
        *(
            ListColumn(name, label_of(name), "number", value=metric(name))
            for name in _shown(asked)
            if name != asked.metric
        ),
    ]


def _shown(asked: Question) -> tuple[str, ...]:
    """The metrics in the table. Mail is accepted before its domain and its sender are known."""
    return tuple(name for name in SHOWN if asked.by not in LATE or name != "accepted")


def _with_figures(asked: Question, rows: Sequence[StatsRow]) -> list[StatsRow]:
    """The rows without the one of mail whose domain or sender is not known yet, if it has nothing to show."""
    shown = (asked.metric, *_shown(asked))
    return [row for row in rows if group_of(row, asked.by) or any(getattr(row.figures, name) for name in shown)]


def _other_column(asked: Question, read: Answers) -> ListColumn:
    """The metric in the other period; unknown for a group that was not among the largest then."""
    amounts = {group_of(row, asked.by): getattr(row.figures, asked.metric) for row in read.other_rows}
    unknown = None if len(read.other_rows) == MOST_ROWS else 0
    label = asked.other_name.removeprefix("the ").capitalize()
    return ListColumn("other", label, "number", value=lambda row: amounts.get(group_of(row, asked.by), unknown))


def _first_column(by: Grouping) -> ListColumn:
    if by is Grouping.HOUR:
        return ListColumn("moment", "Hour", "exact")

    def link(row: StatsRow) -> str | None:
        return _link(by, group_of(row, by))

    return ListColumn("group", by.value.capitalize(), value=lambda row: group_of(row, by) or "none", link=link)


def _link(by: Grouping, group: Any) -> str | None:
    """The page of a campaign or sender, or the deliveries of a template or tag."""
    pages = {Grouping.CAMPAIGN: "/campaigns/{}", Grouping.SENDER: "/senders/{}"}
    if not group or str(group).endswith("*"):
        return None
    if by in pages:
        return pages[by].format(group)
    is_filter = by in (Grouping.TEMPLATE, Grouping.TAG)
    return "/deliveries?" + urlencode({by.value: group}) if is_filter else None


def _chart(request: PageRequest, asked: Question, read: Answers) -> Chart:
    """The metric in this period and in the other one, as two lines; of single days, as two bars."""
    step = timedelta(hours=1) if asked.by is Grouping.HOUR else timedelta(days=1)
    begin, end, earlier = asked.selection.begin_hour, asked.selection.end_hour, asked.other.begin_hour
    assert begin is not None
    assert end is not None
    assert earlier is not None
    count = (end - begin) // step
    moments = [begin + index * step for index in range(count)]
    series = [
        Series("this period", "now", _values(read.rows, moments, asked.metric)),
        Series(
            asked.other_name,
            "then",
            _values(read.other_rows, [earlier + index * step for index in range(count)], asked.metric),
        ),
    ]
    if count == 1:  # a line through one point would be a dot
        moments = [earlier, begin]
        series = [replace(series[0], values=[0, *series[0].values]), replace(series[1], values=[*series[1].values, 0])]
    write = request.viewer.date_and_hour if asked.by is Grouping.HOUR else write_day
    return draw_chart(
        asked.metric.replace("_", " "), moments, series, write=write, kind="bars" if count == 1 else "lines"
    )


def _values(rows: Sequence[StatsRow], moments: Sequence[datetime], metric: str) -> list[int]:
    by_moment = {row.moment: row.figures for row in rows}
    return [getattr(by_moment.get(moment, Figures()), metric) for moment in moments]
