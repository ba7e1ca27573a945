"""Statistics: any metric by time, campaign, sender, domain, template or tag, beside the period before, and as CSV."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlencode

from postroom.dashboard.chart import Chart, Series, draw_chart
from postroom.dashboard.listing import Filter, ListColumn, label_of, query_with
from postroom.dashboard.page import PageRequest
from postroom.errors import BadInput
from postroom.runtime.endpoint import Answer
from postroom.runtime.spreadsheet import write_rows
from postroom.stats import service
from postroom.stats.model import METRICS, TIMES, Figures, Grouping, Selection, StatsRow

READ = "stats:read"
DAYS = ("1", "7", "30", "90")
SHOWN = ("accepted", "sent", "deferred", "bounced", "dead_lettered", "opened_unique", "clicked_unique", "unsubscribed")
"""Metrics in the table; the CSV has all of them."""

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

    @property
    def before(self) -> Selection:
        """The period of the same length before the selected one."""
        begin, end = self.selection.begin, self.selection.end
        assert begin is not None
        assert end is not None
        return replace(self.selection, begin=begin - (end - begin), end=begin)


@dataclass(frozen=True, slots=True)
class Answers:
    """Rows and total of the selected period, and of the one before."""

    rows: Sequence[StatsRow]
    rows_before: Sequence[StatsRow]
    now: Figures
    then: Figures


async def show_page(request: PageRequest) -> Answer:
    asked = read_question(request, now=datetime.now(UTC))
    is_over_time = asked.by in TIMES
    if asked.by is Grouping.HOUR and asked.days > MOST_DAYS_BY_HOUR:
        raise BadInput.of("by", f"hour is shown for {MOST_DAYS_BY_HOUR} days at most; choose day, or download the CSV")
    read = await (_read_times if is_over_time else _read_groups)(request, asked)
    filters = _filters(request, asked)
    return request.page(
        "statistics.html",
        filters=filters,
        query=query_with(filters),
        asked=asked,
        now=read.now,
        then=read.then,
        drawn=_chart(request, asked, read) if is_over_time else None,
        columns=_columns(asked, read),
        rows=(read.rows[::-1] if is_over_time else read.rows)[:MOST_SHOWN],
        hidden=max(len(read.rows) - MOST_SHOWN, 0),
    )


async def _read_times(request: PageRequest, asked: Question) -> Answers:
    """Both periods in one statement; the totals are the sums of their times."""
    begin = asked.selection.begin_hour
    assert begin is not None
    both = replace(asked.selection, begin=asked.before.begin)
    rows = await service.measure(request.pool, both, groups=[asked.by])
    now = [row for row in rows if row.moment is not None and row.moment >= begin]
    then = rows[: len(rows) - len(now)]
    return Answers(now, then, *(Figures.sum(row.figures for row in period) for period in (now, then)))


async def _read_groups(request: PageRequest, asked: Question) -> Answers:
    """The largest groups of both periods."""
    rows = await service.measure(request.pool, asked.selection, groups=[asked.by], limit=MOST_ROWS)
    before = await service.measure(request.pool, asked.before, groups=[asked.by], limit=MOST_ROWS)
    now = await _total(request, asked.selection, asked.by, rows)
    return Answers(rows, before, now, await _total(request, asked.before, asked.by, before))


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
    """The question in the address; its period ends with the current hour."""
    days = request.asked("days") or "7"
    metric = request.asked("metric") or "sent"
    if days not in DAYS:
        raise BadInput.of("days", f"must be one of {', '.join(DAYS)}")
    if metric not in METRICS:
        raise BadInput.of("metric", f"must be one of {', '.join(METRICS)}")
    try:
        by = Grouping(request.asked("by") or ("hour" if days == "1" else "day"))
    except ValueError:
        raise BadInput.of("by", f"must be one of {', '.join(Grouping)}") from None
    end = now.replace(minute=0, second=0, microsecond=0) + timedelta(hours=1)
    if by is Grouping.DAY:  # whole days
        end = end.replace(hour=0) + timedelta(days=1) if end.hour else end
    selection = Selection(
        campaign_id=request.number("campaign"),
        sender_account_id=request.number("sender"),
        domain=request.asked("domain"),
        template=request.asked("template"),
        tag=request.asked("tag"),
        begin=end - timedelta(days=int(days)),
        end=end,
    )
    return Question(by, metric, int(days), selection)


def _filters(request: PageRequest, asked: Question) -> list[Filter]:
    return [
        Filter("by", "By", asked.by.value, [group.value for group in Grouping], is_required=True),
        Filter("days", "Period in days", str(asked.days), DAYS, is_required=True),
        Filter("metric", "Metric", asked.metric, METRICS, is_required=True),
        Filter("campaign", "Campaign id", request.asked("campaign")),
        Filter("sender", "Sender id", request.asked("sender")),
        Filter("domain", "Domain", request.asked("domain"), placeholder="example.org"),
        Filter("template", "Template", request.asked("template"), placeholder="welcome"),
        Filter("tag", "Tag", request.asked("tag"), placeholder="kind=receipt"),
    ]


_ATTRIBUTES = {
    Grouping.CAMPAIGN: "campaign_id",
    Grouping.SENDER: "sender_account_id",
    Grouping.DOMAIN: "domain",
    Grouping.TEMPLATE: "template",
    Grouping.TAG: "tag",
}


def group_of(row: StatsRow, by: Grouping) -> Any:
    """The value that a row is grouped by."""
    if by not in TIMES:
        return getattr(row, _ATTRIBUTES[by])
    assert row.moment is not None
    return f"{row.moment.astimezone(UTC):%Y-%m-%d}" if by is Grouping.DAY else row.moment.astimezone(UTC).isoformat()


def _columns(asked: Question, read: Answers) -> list[ListColumn]:
    def metric(name: str) -> Callable[[StatsRow], int]:
        return lambda row: getattr(row.figures, name)

    most = max((getattr(row.figures, asked.metric) for row in read.rows), default=0)
    shown = SHOWN if asked.metric in SHOWN else (asked.metric, *SHOWN)
    return [
        _first_column(asked.by),
        ListColumn(
            "share",
            label_of(asked.metric),
            "bar",
            value=lambda r: (metric(asked.metric)(r), most),
        ),
        *([] if asked.by in TIMES else [_before_column(asked, read)]),
        *(ListColumn(name, label_of(name), "number", value=metric(name)) for name in shown if name != asked.metric),
    ]


def _before_column(asked: Question, read: Answers) -> ListColumn:
    """The metric in the period before; unknown for a group that was not among the largest then."""
    amounts = {group_of(row, asked.by): getattr(row.figures, asked.metric) for row in read.rows_before}
    unknown = None if len(read.rows_before) == MOST_ROWS else 0
    return ListColumn(
        "before", "Period before", "number", value=lambda row: amounts.get(group_of(row, asked.by), unknown)
    )


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
    """The metric in this period and in the one before, as two lines."""
    step = timedelta(hours=1) if asked.by is Grouping.HOUR else timedelta(days=1)
    begin, end, earlier = asked.selection.begin_hour, asked.selection.end_hour, asked.before.begin_hour
    assert begin is not None
    assert end is not None
    assert earlier is not None
    count = (end - begin) // step
    moments = [begin + index * step for index in range(count)]
    series = [
        Series("this period", "now", _values(read.rows, moments, asked.metric)),
        Series(
            "the period before",
            "then",
            _values(read.rows_before, [earlier + index * step for index in range(count)], asked.metric),
        ),
    ]
    write = request.viewer.date_and_hour if asked.by is Grouping.HOUR else _date
    return draw_chart(asked.metric.replace("_", " "), moments, series, write=write, kind="lines")


def _date(moment: datetime) -> str:
    """The UTC day that the figures are of."""
    return f"{moment.astimezone(UTC):%d %b}"


def _values(rows: Sequence[StatsRow], moments: Sequence[datetime], metric: str) -> list[int]:
    by_moment = {row.moment: row.figures for row in rows}
    return [getattr(by_moment.get(moment, Figures()), metric) for moment in moments]
