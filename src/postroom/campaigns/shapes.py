"""JSON of campaigns: requests, responses and their conversion."""

from datetime import datetime, time
from typing import Annotated, Any

import msgspec

from postroom.campaigns.model import (
    Campaign,
    CampaignContent,
    CampaignFigures,
    CampaignPerson,
    CampaignRequest,
    CampaignStatus,
    Counts,
    Estimate,
    RecipientState,
    RejectedLine,
    Started,
    Uploaded,
)
from postroom.campaigns.template import LONGEST_PART
from postroom.errors import BadInput
from postroom.mail.content_lint import LetterWarning
from postroom.post.address import Address, parse_address
from postroom.runtime.page import PageQuery
from postroom.runtime.record import Moment, Shape, Text, answer, change, given, response
from postroom.stats.model import Engagement

_Name = Annotated[str, msgspec.Meta(max_length=200)]
_Written = Annotated[str, msgspec.Meta(max_length=1000, description="Such as Ada Lovelace <ada@example.org>.")]
_Subject = Annotated[str, msgspec.Meta(max_length=998, description="Subject template: Hello {{ first_name }}.")]
_Html = Annotated[
    str,
    msgspec.Meta(max_length=LONGEST_PART, description="HTML template; {{ unsubscribe_url }} is the unsubscribe link."),
]
_Body = Annotated[str, msgspec.Meta(max_length=LONGEST_PART, description="Text template; derived from html if absent.")]
_Time = Annotated[str, msgspec.Meta(max_length=15, description="Local time of each recipient, such as 09:00.")]
_Json = Annotated[
    str, msgspec.Meta(max_length=4000, description="JSON object that the recipients' fields must contain.")
]
_Zone = Annotated[str, msgspec.Meta(max_length=100, description="IANA time zone of recipients without one.")]


class CampaignBody(Shape, frozen=True, kw_only=True, rename={"sender": "from"}):
    """A campaign to create: a letter and its schedule."""

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


CampaignChange = change(CampaignBody, "CampaignChange")


class CampaignQuery(PageQuery, frozen=True, kw_only=True):
    """Filter and page of campaigns."""

    status: CampaignStatus | None = None


class RecipientQuery(PageQuery, frozen=True, kw_only=True):
    """Filter and page of recipients."""

    state: RecipientState | None = None
    custom_data: _Json | None = None


class PreviewQuery(Shape, frozen=True, kw_only=True):
    """The recipient of a preview; default: the first recipient."""

    email: Text | None = None


class CampaignPreviewBody(Shape, frozen=True, kw_only=True):
    """The recipient of a preview, and variables that override the recipient's fields."""

    email: Text | None = None
    variables: dict[str, Any] = msgspec.field(default_factory=dict)


class TestBody(Shape, frozen=True, kw_only=True):
    """The addresses of a test mail, and the recipient whose fields it uses."""

    __test__ = False

    to: Annotated[list[_Written], msgspec.Meta(min_length=1, max_length=20)]
    email: Text | None = None
    variables: dict[str, Any] = msgspec.field(default_factory=dict)


class CampaignSummary(msgspec.Struct, frozen=True, kw_only=True, rename={"sender": "from"}):
    """One line of a list of campaigns."""

    id: int
    status: CampaignStatus
    name: str
    subject: str
    sender: str | None
    start_at: datetime | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    counts: Counts


class CampaignShape(CampaignSummary, frozen=True, kw_only=True, rename={"sender": "from"}):
    """A campaign with its letter and counts."""

    html: str | None
    text: str | None
    reply_to: str | None
    tracking: bool
    local_time: str | None
    time_zone: str
    updated_at: datetime
    paused_at: datetime | None
    opens: Engagement
    clicks: Engagement
    unsubscribes: int
    complaints: int


CampaignRecipient = response(CampaignPerson, "CampaignRecipient", hide=("id",), extra={"time_zone": str | None})
UploadShape = response(Uploaded, "UploadShape", extra={"refused": list[RejectedLine]})


class StartedShape(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a start: sums over all uploads, the queued recipients, and the estimate."""

    id: int
    status: CampaignStatus
    total: int
    suppressed: int
    duplicate: int
    invalid: int
    queued: int
    estimate: Estimate


class CampaignPreview(msgspec.Struct, frozen=True, kw_only=True):
    """The letter rendered for one recipient."""

    subject: str
    text: str | None
    html: str | None


class WarningsShape(msgspec.Struct, frozen=True):
    """The warnings about a letter; none of them blocks a start."""

    items: list[LetterWarning]


class SentTest(msgspec.Struct, frozen=True):
    """The deliveries of a test mail."""

    __test__ = False

    delivery_ids: list[int]


# ── requests ──────────────────────────────────────────────────────────────────────────────────────────────────────


def plan_of(body: CampaignBody) -> CampaignRequest:
    letter = CampaignContent(
        subject=body.subject,
        html=body.html,
        text=body.text,
        sender=read_address("from", body.sender),
        reply_to=read_address("reply_to", body.reply_to),
        is_tracked=body.tracking,
    )
    return CampaignRequest(
        name=body.name,
        letter=letter,
        start_at=body.start_at,
        local_time=read_time(body.local_time),
        time_zone=body.time_zone,
    )


def changes_of(body: msgspec.Struct) -> dict[str, Any]:
    readers = {
        "sender": lambda value: read_address("from", value),
        "reply_to": lambda value: read_address("reply_to", value),
        "local_time": read_time,
    }
    names = {"tracking": "is_tracked"}
    return {
        names.get(name, name): readers[name](value) if name in readers else value for name, value in given(body).items()
    }


def read_address(field: str, written: str | None) -> Address | None:
    if written is None:
        return None
    with BadInput.naming(field):
        return parse_address(written)


def read_time(written: str | None) -> time | None:
    with BadInput.naming("local_time", "must be a time such as 09:00"):
        return None if written is None else time.fromisoformat(written)


# ── responses ─────────────────────────────────────────────────────────────────────────────────────────────────────


def summary_shape(campaign: Campaign, figures: CampaignFigures) -> CampaignSummary:
    plan, letter = campaign.plan, campaign.plan.letter
    shape: CampaignSummary = answer(CampaignSummary, campaign, plan, letter, figures, sender=written(letter.sender))
    return shape


def campaign_shape(campaign: Campaign, figures: CampaignFigures) -> CampaignShape:
    plan, letter = campaign.plan, campaign.plan.letter
    shape: CampaignShape = answer(
        CampaignShape,
        campaign,
        plan,
        letter,
        figures,
        sender=written(letter.sender),
        reply_to=written(letter.reply_to),
        tracking=letter.is_tracked,
        local_time=None if plan.local_time is None else plan.local_time.isoformat("minutes"),
    )
    return shape


def started_shape(started: Started) -> StartedShape:
    shape: StartedShape = answer(StartedShape, started, started.campaign)
    return shape


def written(address: Address | None) -> str | None:
    if address is None:
        return None
    return address.email if address.name is None else f"{address.name} <{address.email}>"


class StartQuery(Shape, frozen=True, kw_only=True):
    """The confirmation of a start."""

    accepts_failures: Annotated[
        bool, msgspec.Meta(description="Start although more than 1 % of the mails would fail.")
    ] = False
