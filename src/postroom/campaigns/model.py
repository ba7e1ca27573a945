"""What a campaign is, and what is told about one."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, time
from enum import StrEnum
from typing import Any

from postroom.post.address import Address


class CampaignStatus(StrEnum):
    """Where a campaign stands."""

    DRAFT = "draft"
    ACTIVE = "active"
    PAUSED = "paused"
    COMPLETED = "completed"
    CANCELLED = "cancelled"


ENDED = frozenset({CampaignStatus.COMPLETED, CampaignStatus.CANCELLED})


class RecipientState(StrEnum):
    """Where a recipient stands. `cancelled` is told, not stored: who waits in a cancelled campaign."""

    WAITING = "waiting"
    FED = "fed"
    SUPPRESSED = "suppressed"
    CANCELLED = "cancelled"


class LineFormat(StrEnum):
    """How recipients are written."""

    CSV = "text/csv"
    JSON_LINES = "application/x-ndjson"


@dataclass(frozen=True, slots=True, kw_only=True)
class CampaignContent:
    """What a campaign says, and in whose name."""

    subject: str
    html: str | None = None
    text: str | None = None  # None: derived from html
    sender: Address | None = None  # None: the installation's default
    reply_to: Address | None = None
    is_tracked: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class CampaignRequest:
    """A campaign as somebody writes it: a name, the letter, and when it is to go out."""

    name: str
    letter: CampaignContent
    start_at: datetime | None = None  # None: when it is started
    local_time: time | None = None  # at this time of each recipient's day
    time_zone: str = "UTC"  # of whoever has none of their own


@dataclass(frozen=True, slots=True, kw_only=True)
class Campaign:
    """A campaign and its own counters."""

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
    """What became of a campaign's people. Who `bounced` was refused at once, or is among the sent and came back."""

    total: int
    queued: int
    sent: int
    bounced: int
    failed: int
    cancelled: int
    suppressed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Engagement:
    """Opens or clicks: all of them, of how many different mails, and how many were machines."""

    total: int
    unique: int
    machine: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CampaignFigures:
    """Everything that is counted about a campaign."""

    counts: Counts
    opens: Engagement
    clicks: Engagement
    unsubscribes: int
    complaints: int


def figures_of(campaign: Campaign, measured: Mapping[str, int]) -> CampaignFigures:
    """Put together what the campaign knows itself and what the statistics have added up."""
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
        failed=max(ended - (bounced - measured.get("returned", 0)), 0),  # without those who bounced at once
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
    """One hour of a campaign: amounts by metric."""

    hour: datetime
    amounts: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Zone:
    """The people of one time zone; '' is whoever has none of their own."""

    time_zone: str
    due_at: datetime | None


@dataclass(frozen=True, slots=True)
class CampaignPerson:
    """One person of a campaign."""

    id: int
    state: RecipientState
    delivery_id: int | None
    time_zone: str
    email: str
    name: str | None
    custom_data: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class RejectedLine:
    """A line of an upload that could not be used: its number, the field, and why."""

    line: int
    field: str
    message: str


@dataclass(slots=True)
class Uploaded:
    """What an upload came to. total = added + duplicate + invalid + suppressed."""

    total: int = 0
    added: int = 0
    duplicate: int = 0
    invalid: int = 0
    suppressed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """How long the mail will take: at which rate, and when the last of it leaves."""

    seconds: int
    per_second: float
    finishes_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """What a start came to: the sums of all uploads, who is queued, and for how long."""

    campaign: Campaign
    queued: int
    estimate: Estimate


@dataclass(frozen=True, slots=True)
class CampaignQueue:
    """One campaign as a feeder sees it."""

    id: int
    status: CampaignStatus
    has_due: bool
    has_more: bool
    has_stray_mail: bool


@dataclass(frozen=True, slots=True)
class FeedResult:
    """What one slice came to; `waiting` is what it found in the queue."""

    fed: int
    suppressed: int
    waiting: int
