"""Values of campaigns: the campaign, its recipients and its counts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, time
from enum import StrEnum
from typing import Any

from postroom.post.address import Address
from postroom.stats.model import Engagement


class CampaignStatus(StrEnum):
    """The status of a campaign."""

    DRAFT = "draft"
    ACTIVE = "active"
    PAUSED = "paused"
    COMPLETED = "completed"
    CANCELLED = "cancelled"


ENDED = frozenset({CampaignStatus.COMPLETED, CampaignStatus.CANCELLED})


class RecipientState(StrEnum):
    """The state of a recipient. `cancelled` is derived, not stored: a waiting recipient of a cancelled campaign."""

    WAITING = "waiting"
    FED = "fed"
    SUPPRESSED = "suppressed"
    CANCELLED = "cancelled"


class LineFormat(StrEnum):
    """The format of an uploaded list of recipients."""

    CSV = "text/csv"
    JSON_LINES = "application/x-ndjson"


@dataclass(frozen=True, slots=True, kw_only=True)
class CampaignContent:
    """The content of a campaign and its sender."""

    subject: str
    html: str | None = None
    text: str | None = None  # None: derived from html
    sender: Address | None = None  # None: the installation's default
    reply_to: Address | None = None
    is_tracked: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class CampaignRequest:
    """A campaign to create: a name, the letter and its schedule."""

    name: str
    letter: CampaignContent
    start_at: datetime | None = None  # None: at the start
    local_time: time | None = None  # local time of each recipient
    time_zone: str = "UTC"  # for recipients without a time zone


@dataclass(frozen=True, slots=True, kw_only=True)
class Campaign:
    """A stored campaign with its counters."""

    id: int
    status: CampaignStatus
    plan: CampaignRequest
    total: int
    fed: int
    suppressed: int
    cancelled: int
    duplicate: int
    invalid: int
    created_at: datetime
    updated_at: datetime
    started_at: datetime | None
    paused_at: datetime | None
    finished_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Recipients of a campaign by result. `bounced` includes mail rejected at once and sent mail that came back."""

    total: int
    queued: int
    sent: int
    bounced: int
    failed: int
    cancelled: int
    suppressed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CampaignFigures:
    """All counts of a campaign."""

    counts: Counts
    opens: Engagement
    clicks: Engagement
    unsubscribes: int
    complaints: int


def figures_of(campaign: Campaign, measured: Mapping[str, int]) -> CampaignFigures:
    """Combine the counters of the campaign with its statistics."""
    sent = measured.get("sent", 0)
    ended = measured.get("refused", 0) + measured.get("dead_lettered", 0)
    bounced = measured.get("bounced", 0)
    cancelled = campaign.cancelled + measured.get("cancelled", 0)
    suppressed = campaign.suppressed + measured.get("suppressed", 0)
    counts = Counts(
        total=campaign.total,
        queued=max(campaign.total - sent - ended - cancelled - suppressed, 0),
        sent=sent,
        bounced=bounced,
        failed=max(ended - (bounced - measured.get("returned", 0)), 0),  # excludes recipients that bounced at once
        cancelled=cancelled,
        suppressed=suppressed,
    )
    return CampaignFigures(
        counts=counts,
        opens=_engagement("opened", measured),
        clicks=_engagement("clicked", measured),
        unsubscribes=measured.get("unsubscribed", 0),
        complaints=measured.get("complained", 0),
    )


def _engagement(metric: str, measured: Mapping[str, int]) -> Engagement:
    return Engagement(
        total=measured.get(metric, 0),
        unique=measured.get(f"{metric}_unique", 0),
        machine=measured.get(f"{metric}_machine", 0),
    )


@dataclass(frozen=True, slots=True)
class CampaignHour:
    """The amounts of one hour of a campaign, by metric."""

    hour: datetime
    amounts: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Zone:
    """The recipients of one time zone; '' holds recipients without a zone of their own."""

    time_zone: str
    due_at: datetime | None


@dataclass(frozen=True, slots=True)
class CampaignPerson:
    """One recipient of a campaign."""

    id: int
    state: RecipientState
    delivery_id: int | None
    time_zone: str
    email: str
    name: str | None
    custom_data: Mapping[str, Any]


class PersonResult(StrEnum):
    """The result of a campaign for one recipient: the state of the mail, or what happened to it later."""

    WAITING = "waiting"
    QUEUED = "queued"
    SENDING = "sending"
    SENT = "sent"
    FAILED = "failed"
    DEAD_LETTER = "dead_letter"
    SUPPRESSED = "suppressed"
    CANCELLED = "cancelled"
    FED = "fed"  # retention has deleted the delivery
    BOUNCED = "bounced"
    OPENED = "opened"
    CLICKED = "clicked"


@dataclass(frozen=True, slots=True)
class PersonMail:
    """One recipient of a campaign with the result of the mail; opens and clicks are those of people."""

    id: int
    delivery_id: int | None
    time_zone: str
    email: str
    name: str | None
    result: PersonResult
    opened_at: datetime | None
    clicked_at: datetime | None
    bounced_at: datetime | None
    is_chosen: bool  # false: not searched yet; the next page begins here
    reason: str | None  # why the mail was returned or not sent, such as the server's reply


@dataclass(frozen=True, slots=True)
class CampaignDomain:
    """The mail of a campaign to one domain."""

    domain: str
    sent: int
    bounced: int
    failed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CampaignReport:
    """A campaign with its counts, in total and by hour."""

    campaign: Campaign
    figures: CampaignFigures
    hours: Sequence[CampaignHour]


@dataclass(frozen=True, slots=True)
class RejectedLine:
    """A rejected line of an upload: its number, the field, the reason, and the beginning of the field's value."""

    line: int
    field: str
    message: str
    value: str = ""


@dataclass(slots=True)
class Uploaded:
    """The result of an upload: total = added + duplicate + invalid + suppressed. `fields` are its merge fields."""

    total: int = 0
    added: int = 0
    duplicate: int = 0
    invalid: int = 0
    suppressed: int = 0
    fields: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """The expected rate of a campaign and the time of its last mail."""

    seconds: int
    per_second: float
    finishes_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """The accounts that would send a campaign, none if it leaves by the relay, and the estimate."""

    senders: Sequence[str]
    estimate: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """The result of a start: the sums of all uploads, the queued recipients, and the estimate."""

    campaign: Campaign
    queued: int
    estimate: Estimate


@dataclass(frozen=True, slots=True)
class CampaignQueue:
    """The values of a campaign that a feeder needs."""

    id: int
    status: CampaignStatus
    has_due: bool
    has_stray_mail: bool
    may_be_complete: bool


@dataclass(frozen=True, slots=True)
class FeedResult:
    """The result of one slice; `waiting` is the number of deliveries already in the queue."""

    fed: int
    suppressed: int
    waiting: int
