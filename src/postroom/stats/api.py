"""HTTP endpoints of statistics: rows by time, campaign, sender, domain, template or tag, and totals."""

from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Any, Literal

import msgspec

from postroom.runtime.endpoint import Answer, Call, Endpoint
from postroom.runtime.record import Moment, Shape, answer, part
from postroom.stats import service
from postroom.stats.model import Engagement, Figures, Grouping, Rates, Selection, StatsRow

READ = "stats:read"

_ID = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1, description="0: of none.")]
_DOMAIN = Annotated[str, msgspec.Meta(max_length=255, pattern=r"^[^\x00]*$")]
_TEMPLATE = Annotated[str, msgspec.Meta(max_length=100, pattern=r"^[^\x00]*$", description="Empty: of none.")]
_TAG = Annotated[str, msgspec.Meta(max_length=201, pattern=r"^[^\x00]*$", description="`key=value`; empty: of none.")]
_FROM = Annotated[Moment, msgspec.Meta(description="Start of the period; rounded down to the hour.")]
_TO = Annotated[Moment, msgspec.Meta(description="End of the period; hours that begin before it are included.")]
_LIMIT = Annotated[int, msgspec.Meta(ge=1, le=service.MOST_LINES, description="Maximum number of rows.")]
By = Literal["hour", "day", "campaign", "sender", "domain", "template", "tag"]


_RENAMED = {"sender_account_id": "sender_id", "begin": "from", "end": "to"}


class SummaryQuery(Shape, frozen=True, kw_only=True, rename=_RENAMED):
    """Filter of figures. Template and tag can be combined with the period only."""

    campaign_id: _ID | None = None
    sender_account_id: _ID | None = None
    domain: _DOMAIN | None = None
    template: _TEMPLATE | None = None
    tag: _TAG | None = None
    begin: _FROM | None = None
    end: _TO | None = None

    @property
    def selection(self) -> Selection:
        return part(Selection, self)


class StatsQuery(SummaryQuery, frozen=True, kw_only=True, rename=_RENAMED):
    """Filter and grouping of figures; `by` may be repeated. A mail with several tags counts for each of them."""

    by: By | list[By] = "day"
    limit: _LIMIT = 1000

    @property
    def groups(self) -> list[Grouping]:
        return [Grouping(name) for name in ([self.by] if isinstance(self.by, str) else self.by)]


class FiguresShape(msgspec.Struct, frozen=True, kw_only=True):
    """Counts. Delivered is sent minus returned; bounced is returned plus rejected because of the recipient."""

    accepted: int
    sent: int
    delivered: int
    bounced: int
    returned: int
    refused: int
    deferred: int
    ambiguous: int
    suppressed: int
    cancelled: int
    dead_lettered: int
    opens: Engagement
    clicks: Engagement
    unsubscribes: int
    complaints: int
    rates: Rates


class StatsLineShape(FiguresShape, frozen=True, kw_only=True):
    """Figures of one group, with the grouping columns only; id 0 and an empty text mean none.

    Template `*`, tag `key=*` and tag `*` stand for further values of an hour with very many.
    """

    hour: datetime | msgspec.UnsetType = msgspec.UNSET
    day: str | msgspec.UnsetType = msgspec.UNSET
    campaign_id: int | msgspec.UnsetType = msgspec.UNSET
    sender_id: int | msgspec.UnsetType = msgspec.UNSET
    domain: str | msgspec.UnsetType = msgspec.UNSET
    template: str | msgspec.UnsetType = msgspec.UNSET
    tag: str | msgspec.UnsetType = msgspec.UNSET


class StatsPage(msgspec.Struct, frozen=True):
    """Rows: ordered by time, or by the number of sent mails."""

    items: list[StatsLineShape]
    next_cursor: str | None = None


async def list_stats(call: Call) -> Answer:
    query: StatsQuery = call.query
    lines = await service.measure(call.room.pool, query.selection, groups=query.groups, limit=query.limit)
    return Answer(StatsPage([shape_line(line, query.groups) for line in lines]))


async def get_summary(call: Call) -> Answer:
    return Answer(_shape(FiguresShape, await service.total(call.room.pool, call.query.selection)))


def shape_line(line: StatsRow, groups: list[Grouping]) -> StatsLineShape:
    """A row of the response, without the columns it is not grouped by."""
    moment = None if line.moment is None else line.moment.astimezone(UTC)
    known: dict[Grouping, tuple[str, Any]] = {
        Grouping.HOUR: ("hour", moment),
        Grouping.DAY: ("day", None if moment is None else moment.date().isoformat()),
        Grouping.CAMPAIGN: ("campaign_id", line.campaign_id),
        Grouping.SENDER: ("sender_id", line.sender_account_id),
        Grouping.DOMAIN: ("domain", line.domain),
        Grouping.TEMPLATE: ("template", line.template),
        Grouping.TAG: ("tag", line.tag),
    }
    shape: StatsLineShape = _shape(StatsLineShape, line.figures, **dict(known[group] for group in groups))
    return shape


def _shape(kind: type[FiguresShape], figures: Figures, **groups: Any) -> Any:
    return answer(
        kind,
        figures,
        opens=Engagement(total=figures.opened, unique=figures.opened_unique, machine=figures.opened_machine),
        clicks=Engagement(total=figures.clicked, unique=figures.clicked_unique, machine=figures.clicked_machine),
        unsubscribes=figures.unsubscribed,
        complaints=figures.complained,
        **groups,
    )


_endpoint = partial(Endpoint, scope=READ, tag="stats")

ENDPOINTS = (
    _endpoint(
        "GET", "/v1/stats", list_stats, "List figures by hour, day, campaign, sender, domain, template or tag.",
        query=StatsQuery, from_replica=True, answers={200: StatsPage},
    ),
    _endpoint(
        "GET", "/v1/stats/summary", get_summary, "Read the total of the figures.", query=SummaryQuery,
        from_replica=True, answers={200: FiguresShape},
    ),
)  # fmt: skip
