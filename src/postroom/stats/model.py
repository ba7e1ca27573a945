"""Metrics, figures, and the rates derived from them. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from postroom.events.model import Place

HOUR = timedelta(hours=1)  # the resolution of figures
_FIRST_HOUR = datetime.min.replace(tzinfo=UTC)
_LAST_HOUR = datetime.max.replace(minute=0, second=0, microsecond=0, tzinfo=UTC)  # the next one overflows


class Grouping(StrEnum):
    """The dimensions by which figures can be grouped."""

    HOUR = "hour"
    DAY = "day"
    CAMPAIGN = "campaign"
    SENDER = "sender"
    DOMAIN = "domain"
    TEMPLATE = "template"
    TAG = "tag"


COLUMNS = {
    Grouping.HOUR: "moment",
    Grouping.DAY: "moment",
    Grouping.CAMPAIGN: "campaign_id",
    Grouping.SENDER: "sender_account_id",
    Grouping.DOMAIN: "domain",
    Grouping.TEMPLATE: "template",
    Grouping.TAG: "tag",
}
"""The field of `StatsRow` that holds the value of each grouping."""

TIMES = frozenset({Grouping.HOUR, Grouping.DAY})
ALONE = frozenset({Grouping.TEMPLATE, Grouping.TAG})
"""Groupings and filters that can be combined with times only: no table counts their combinations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Counts under the names in `stat_deltas.metric`."""

    accepted: int = 0
    sent: int = 0
    deferred: int = 0
    refused: int = 0  # permanently, in the SMTP session
    ambiguous: int = 0  # transmitted, and no reply was received
    bounced: int = 0  # rejected because of the recipient, or accepted and returned later
    returned: int = 0  # the part of bounced that was accepted and returned later
    suppressed: int = 0
    cancelled: int = 0
    dead_lettered: int = 0
    opened: int = 0
    opened_unique: int = 0
    opened_machine: int = 0
    clicked: int = 0
    clicked_unique: int = 0
    clicked_machine: int = 0
    unsubscribed: int = 0
    complained: int = 0

    @property
    def delivered(self) -> int:
        """Sent minus returned, at least 0: a bounce may be counted in a later hour than its mail."""
        return max(self.sent - self.returned, 0)

    @property
    def rates(self) -> "Rates":
        return Rates(
            delivery=_share(self.delivered, self.sent + self.refused + self.dead_lettered),
            bounce=_share(self.bounced, self.sent + self.bounced - self.returned),
            open=_share(self.opened_unique, self.delivered),
            click=_share(self.clicked_unique, self.delivered),
            unsubscribe=_share(self.unsubscribed, self.delivered),
            complaint=_share(self.complained, self.delivered),
        )

    @classmethod
    def sum(cls, each: Iterable["Figures"]) -> "Figures":
        added = list(each)
        return cls(**{name: sum(getattr(figures, name) for figures in added) for name in METRICS})

    @classmethod
    def of(cls, amounts: Mapping[str, int]) -> "Figures":
        """Figures from amounts by metric; metrics unknown to this version are ignored."""
        return cls(**{name: amounts[name] for name in METRICS if name in amounts})


METRICS = tuple(field.name for field in fields(Figures))
"""Every valid value of `stat_deltas.metric`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Engagement:
    """Opens or clicks: all, those by machines, and `unique`: mails that people opened or clicked."""

    total: int
    unique: int
    machine: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Shares between 0 and 1, null without any mail.

    `delivery` of mail that was sent, refused or given up; `bounce` of mail that was sent or bounced; others of
    delivered mail.
    """

    delivery: float | None
    bounce: float | None
    open: float | None
    click: float | None
    unsubscribe: float | None
    complaint: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Filter of figures: a campaign, a sender, a domain, or a template or tag alone, and a period of whole hours."""

    campaign_id: int | None = None
    sender_account_id: int | None = None
    domain: str | None = None
    template: str | None = None
    tag: str | None = None
    begin: datetime | None = None
    end: datetime | None = None

    @property
    def values(self) -> dict[Grouping, str]:
        """The chosen values by their dimension, as they are stored."""
        given = {
            Grouping.CAMPAIGN: self.campaign_id,
            Grouping.SENDER: self.sender_account_id,
            Grouping.DOMAIN: None if self.domain is None else self.domain.lower(),
            Grouping.TEMPLATE: self.template,
            Grouping.TAG: self.tag,
        }
        return {group: str(value) for group, value in given.items() if value is not None}

    @property
    def begin_hour(self) -> datetime | None:
        """The hour of `begin`; figures have no finer resolution."""
        return None if self.begin is None else _hour_of(self.begin)

    @property
    def end_hour(self) -> datetime | None:
        """The first excluded hour: hours that begin before `end` are included."""
        if self.end is None:
            return None
        hour = _hour_of(self.end)
        # Python has no hour after the last hour of the year 9999.
        return hour if hour in (self.end, _LAST_HOUR) else hour + HOUR


@dataclass(frozen=True, slots=True, kw_only=True)
class StatsRow:
    """Figures of one group; columns outside the grouping have the value None. Id 0 and an empty text mean none.

    Template `*`, tag `key=*` and tag `*` stand for values beyond the limits of an hour.
    """

    moment: datetime | None = None
    campaign_id: int | None = None
    sender_account_id: int | None = None
    domain: str | None = None
    template: str | None = None
    tag: str | None = None
    figures: Figures


@dataclass(frozen=True, slots=True)
class StepCounts:
    """Steps of deliveries by minute and name, counted between two places of their log."""

    counts: Mapping[tuple[datetime, str], int]
    first: Place
    last: Place

    @property
    def total(self) -> int:
        return sum(self.counts.values())


@dataclass(frozen=True, slots=True)
class LaneLatency:
    """Seconds from the due time of mail to its acceptance by the other side."""

    lane: str
    sent: int  # mails measured
    p50: float
    p95: float


def _hour_of(moment: datetime) -> datetime:
    """The hour in UTC; a moment before or after the calendar of UTC is in its first or last hour."""
    try:
        return moment.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
    except OverflowError:
        return _FIRST_HOUR if moment.year == _FIRST_HOUR.year else _LAST_HOUR


def _share(part: int, whole: int) -> float | None:
    return round(part / whole, 6) if whole else None


def in_order(groups: Sequence[Grouping]) -> tuple[Grouping, ...]:
    """Each grouping once, in the order of the enum."""
    return tuple(group for group in Grouping if group in groups)
