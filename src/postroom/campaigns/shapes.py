"""Campaigns as JSON: what arrives, what is answered, and the way from one to the other."""

from datetime import datetime, time
from typing import Annotated, Any

import msgspec

from postroom.campaigns.model import (
    Campaign,
    Engagement,
    Figures,
    Letter,
    Plan,
    Recipient,
    RecipientState,
    Refused,
    Started,
    Status,
    Uploaded,
)
from postroom.campaigns.template import LONGEST_PART
from postroom.errors import BadInput
from postroom.post.address import Address, parse_address
from postroom.runtime.page import Cursor, Limit
from postroom.runtime.record import Moment, Shape, Text

Unset = msgspec.UnsetType
_Name = Annotated[str, msgspec.Meta(max_length=200)]
_Written = Annotated[str, msgspec.Meta(max_length=1000, description="Such as Ada Lovelace <ada@example.org>.")]
_Subject = Annotated[str, msgspec.Meta(max_length=998, description="A template: Hello {{ first_name }}.")]
_Html = Annotated[
    str,
    msgspec.Meta(max_length=LONGEST_PART, description="A template; {{ unsubscribe_url }} is the link to unsubscribe."),
]
_Body = Annotated[
    str, msgspec.Meta(max_length=LONGEST_PART, description="A template; without it, it is derived from html.")
]
_Time = Annotated[str, msgspec.Meta(max_length=15, description="Of each recipient's own day, such as 09:00.")]
_Json = Annotated[str, msgspec.Meta(max_length=4000, description="A JSON object that their fields contain.")]
_Zone = Annotated[str, msgspec.Meta(max_length=100, description="An IANA time zone, of recipients without one.")]


class CampaignBody(Shape, frozen=True, kw_only=True, rename={"sender": "from"}):
    """A campaign to be written: a letter, and when it is to go out."""

    name: _Name
    subject: _Subject
    html: _Html | None = None
    text: _Body | None = None
    sender: _Written | None = None
    reply_to: _Written | None = None
    tracking: bool = True
    start_at: Moment | None = None
    local_time: _Time | None = None
    time_zone: _Zone = "UTC"


class CampaignChange(Shape, frozen=True, kw_only=True, rename={"sender": "from"}):
    """What to change in a draft; what is left out stays."""

    name: _Name | Unset = msgspec.UNSET
    subject: _Subject | Unset = msgspec.UNSET
    html: _Html | Unset | None = msgspec.UNSET
    text: _Body | Unset | None = msgspec.UNSET
    sender: _Written | Unset | None = msgspec.UNSET
    reply_to: _Written | Unset | None = msgspec.UNSET
    tracking: bool | Unset = msgspec.UNSET
    start_at: Moment | Unset | None = msgspec.UNSET
    local_time: _Time | Unset | None = msgspec.UNSET
    time_zone: _Zone | Unset = msgspec.UNSET


class CampaignQuery(Shape, frozen=True, kw_only=True):
    """Which campaigns, and which page of them."""

    status: Status | None = None
    cursor: Cursor | None = None
    limit: Limit = 50


class RecipientQuery(Shape, frozen=True, kw_only=True):
    """Which recipients, and which page of them."""

    state: RecipientState | None = None
    custom_data: _Json | None = None
    cursor: Cursor | None = None
    limit: Limit = 50


class PreviewQuery(Shape, frozen=True, kw_only=True):
    """For whom; without an address, for the first recipient."""

    email: Text | None = None


class PreviewBody(Shape, frozen=True, kw_only=True):
    """For whom, and with which variables on top of their own."""

    email: Text | None = None
    variables: dict[str, Any] = msgspec.field(default_factory=dict)


class TestBody(Shape, frozen=True, kw_only=True):
    """Where a test goes, and whom it pretends to be for."""

    __test__ = False

    to: Annotated[list[_Written], msgspec.Meta(min_length=1, max_length=20)]
    email: Text | None = None
    variables: dict[str, Any] = msgspec.field(default_factory=dict)


class CountsShape(msgspec.Struct, frozen=True, kw_only=True):
    """What became of its people. Who `bounced` was refused at once, or is among the sent and came back."""

    total: int
    queued: int
    sent: int
    bounced: int
    failed: int
    cancelled: int
    suppressed: int


class EngagementShape(msgspec.Struct, frozen=True, kw_only=True):
    """All, of how many different mails, and how many were machines."""

    total: int
    unique: int
    machine: int


class CampaignSummary(msgspec.Struct, frozen=True, kw_only=True, rename={"sender": "from"}):
    """One line of a listing."""

    id: int
    status: Status
    name: str
    subject: str
    sender: str | None
    start_at: datetime | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    counts: CountsShape


class CampaignShape(CampaignSummary, frozen=True, kw_only=True, rename={"sender": "from"}):
    """A campaign, whole."""

    html: str | None
    text: str | None
    reply_to: str | None
    tracking: bool
    local_time: str | None
    time_zone: str
    updated_at: datetime
    paused_at: datetime | None
    opens: EngagementShape
    clicks: EngagementShape
    unsubscribes: int
    complaints: int


class CampaignPage(msgspec.Struct, frozen=True):
    """Campaigns, newest first."""

    items: list[CampaignSummary]
    next_cursor: str | None


class RecipientShape(msgspec.Struct, frozen=True, kw_only=True):
    """One person of a campaign."""

    email: str
    name: str | None
    state: RecipientState
    time_zone: str | None
    delivery_id: int | None
    custom_data: dict[str, Any]


class RecipientPage(msgspec.Struct, frozen=True):
    """People in the order of the list, zone by zone."""

    items: list[RecipientShape]
    next_cursor: str | None


class RefusedShape(msgspec.Struct, frozen=True):
    """A line that could not be used."""

    line: int
    field: str
    message: str


class UploadShape(msgspec.Struct, frozen=True, kw_only=True):
    """What an upload came to, with the first of the lines that could not be used."""

    total: int
    added: int
    duplicate: int
    invalid: int
    suppressed: int
    refused: list[RefusedShape]


class EstimateShape(msgspec.Struct, frozen=True, kw_only=True):
    """How long it will take, at which rate, and until when."""

    seconds: int
    per_second: float
    finishes_at: datetime


class StartedShape(msgspec.Struct, frozen=True, kw_only=True):
    """What a start came to: sums over all uploads, who is queued, and for how long."""

    id: int
    status: Status
    total: int
    suppressed: int
    duplicate: int
    invalid: int
    queued: int
    estimate: EstimateShape


class PreviewShape(msgspec.Struct, frozen=True, kw_only=True):
    """The letter as one person gets it."""

    subject: str
    text: str | None
    html: str | None


class WarningShape(msgspec.Struct, frozen=True, kw_only=True):
    """One thing worth a second look."""

    code: str
    part: str
    message: str


class WarningsShape(msgspec.Struct, frozen=True):
    """Everything worth a second look; nothing of it stops a start."""

    items: list[WarningShape]


class TestShape(msgspec.Struct, frozen=True):
    """The deliveries that carry the test."""

    __test__ = False

    delivery_ids: list[int]


# ── from what arrives ─────────────────────────────────────────────────────────────────────────────────────────────


def plan_of(body: CampaignBody) -> Plan:
    letter = Letter(
        subject=body.subject,
        html=body.html,
        text=body.text,
        sender=read_address("from", body.sender),
        reply_to=read_address("reply_to", body.reply_to),
        is_tracked=body.tracking,
    )
    return Plan(
        name=body.name,
        letter=letter,
        start_at=body.start_at,
        local_time=read_time(body.local_time),
        time_zone=body.time_zone,
    )


def changes_of(body: CampaignChange) -> dict[str, Any]:
    given = {
        field.name: value
        for field in msgspec.structs.fields(body)
        if (value := getattr(body, field.name)) is not msgspec.UNSET
    }
    readers = {
        "sender": lambda value: read_address("from", value),
        "reply_to": lambda value: read_address("reply_to", value),
        "local_time": read_time,
    }
    names = {"tracking": "is_tracked"}
    return {names.get(name, name): readers[name](value) if name in readers else value for name, value in given.items()}


def read_address(field: str, written: str | None) -> Address | None:
    if written is None:
        return None
    try:
        return parse_address(written)
    except ValueError as error:
        raise BadInput.of(field, str(error)) from None


def read_time(written: str | None) -> time | None:
    try:
        return None if written is None else time.fromisoformat(written)
    except ValueError:
        raise BadInput.of("local_time", "must be a time such as 09:00") from None


# ── to what is answered ───────────────────────────────────────────────────────────────────────────────────────────


def summary_shape(campaign: Campaign, figures: Figures) -> CampaignSummary:
    return CampaignSummary(**_summary(campaign, figures))


def campaign_shape(campaign: Campaign, figures: Figures) -> CampaignShape:
    plan, letter = campaign.plan, campaign.plan.letter
    return CampaignShape(
        **_summary(campaign, figures),
        html=letter.html,
        text=letter.text,
        reply_to=written(letter.reply_to),
        tracking=letter.is_tracked,
        local_time=None if plan.local_time is None else plan.local_time.isoformat("minutes"),
        time_zone=plan.time_zone,
        updated_at=campaign.updated_at,
        paused_at=campaign.paused_at,
        opens=_engagement(figures.opens),
        clicks=_engagement(figures.clicks),
        unsubscribes=figures.unsubscribes,
        complaints=figures.complaints,
    )


def _summary(campaign: Campaign, figures: Figures) -> dict[str, Any]:
    counts = figures.counts
    return {
        "id": campaign.id,
        "status": campaign.status,
        "name": campaign.plan.name,
        "subject": campaign.plan.letter.subject,
        "sender": written(campaign.plan.letter.sender),
        "start_at": campaign.plan.start_at,
        "created_at": campaign.created_at,
        "started_at": campaign.started_at,
        "finished_at": campaign.finished_at,
        "counts": CountsShape(**{name: getattr(counts, name) for name in CountsShape.__struct_fields__}),
    }


def _engagement(found: Engagement) -> EngagementShape:
    return EngagementShape(total=found.total, unique=found.unique, machine=found.machine)


def recipient_shape(recipient: Recipient) -> RecipientShape:
    return RecipientShape(
        email=recipient.email,
        name=recipient.name,
        state=recipient.state,
        time_zone=recipient.time_zone or None,
        delivery_id=recipient.delivery_id,
        custom_data=dict(recipient.custom_data),
    )


def started_shape(started: Started) -> StartedShape:
    campaign, estimate = started.campaign, started.estimate
    return StartedShape(
        id=campaign.id,
        status=campaign.status,
        total=campaign.total,
        suppressed=campaign.suppressed,
        duplicate=campaign.duplicate,
        invalid=campaign.invalid,
        queued=started.queued,
        estimate=EstimateShape(
            seconds=estimate.seconds, per_second=estimate.per_second, finishes_at=estimate.finishes_at
        ),
    )


def upload_shape(uploaded: Uploaded, refused: list[Refused]) -> UploadShape:
    return UploadShape(
        total=uploaded.total,
        added=uploaded.added,
        duplicate=uploaded.duplicate,
        invalid=uploaded.invalid,
        suppressed=uploaded.suppressed,
        refused=[RefusedShape(each.line, each.field, each.message) for each in refused],
    )


def written(address: Address | None) -> str | None:
    if address is None:
        return None
    return address.email if address.name is None else f"{address.name} <{address.email}>"
