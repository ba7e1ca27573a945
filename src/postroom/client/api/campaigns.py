"""The endpoints of campaigns, and their types.

Generated from the table of endpoints by `./dev docs`: do not edit.
"""

from __future__ import annotations  # evaluated when an endpoint is first called

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct, field

from postroom.client.api.shared import Engagement, LetterWarning
from postroom.client.calls import Kind, Resource, ResultPage, call, download, listing
from postroom.client.upload import File, OnProgress

if TYPE_CHECKING:
    CampaignStatus = Literal["active", "cancelled", "completed", "draft", "paused"]
    RecipientState = Literal["cancelled", "fed", "suppressed", "waiting"]
else:  # a newer server may have more values
    CampaignStatus = str
    RecipientState = str


class CampaignSummary(Struct, frozen=True, kw_only=True):
    """One line of a list of campaigns."""

    id: int
    status: CampaignStatus
    name: str
    subject: str
    from_: str | None = field(name="from")
    start_at: datetime | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    counts: Counts


class Counts(Struct, frozen=True, kw_only=True):
    """Recipients of a campaign by result. `bounced` includes mail rejected at once and sent mail that came back."""

    total: int
    queued: int
    sent: int
    bounced: int
    failed: int
    cancelled: int
    suppressed: int


class Campaign(Struct, frozen=True, kw_only=True):
    """A campaign with its letter and counts."""

    id: int
    status: CampaignStatus
    name: str
    subject: str
    from_: str | None = field(name="from")
    start_at: datetime | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    counts: Counts
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


class CampaignRecipient(Struct, frozen=True, kw_only=True):
    """One recipient of a campaign."""

    state: RecipientState
    delivery_id: int | None
    time_zone: str | None
    email: str
    name: str | None
    custom_data: dict[str, Any]


class Upload(Struct, frozen=True, kw_only=True):
    """The result of an upload: total = added + duplicate + invalid + suppressed. `fields` are its merge fields."""

    total: int
    added: int
    duplicate: int
    invalid: int
    suppressed: int
    fields: list[str]
    refused: list[RejectedLine]


class RejectedLine(Struct, frozen=True, kw_only=True):
    """A rejected line of an upload: its number, the field, the reason, and the beginning of the field's value."""

    line: int
    field: str
    message: str
    value: str


class CampaignPreview(Struct, frozen=True, kw_only=True):
    """The letter rendered for one recipient."""

    subject: str
    text: str | None
    html: str | None


class Warnings(Struct, frozen=True, kw_only=True):
    """The warnings about a letter; none of them blocks a start."""

    items: list[LetterWarning]


class SentTest(Struct, frozen=True, kw_only=True):
    """The deliveries of a test mail."""

    delivery_ids: list[int]


class Started(Struct, frozen=True, kw_only=True):
    """The result of a start: sums over all uploads, the queued recipients, and the estimate."""

    id: int
    status: CampaignStatus
    total: int
    suppressed: int
    duplicate: int
    invalid: int
    queued: int
    estimate: Estimate


class Estimate(Struct, frozen=True, kw_only=True):
    """The expected rate of a campaign and the time of its last mail."""

    seconds: int
    per_second: float
    finishes_at: datetime


class ClickedLink(Struct, frozen=True, kw_only=True):
    """One link and one person who followed it."""

    email: str
    url: str
    clicks: int
    is_machine: bool
    first_at: datetime
    last_at: datetime


class LinkFigures(Struct, frozen=True, kw_only=True):
    """One link of a campaign, and the clicks on it."""

    url: str
    people: int
    clicks: int
    machine_clicks: int
    first_at: datetime
    last_at: datetime


class CampaignsApi(Resource[Kind]):
    """The endpoints of campaigns."""

    @listing("/v1/campaigns")
    def list(
        self, *, cursor: str | None = None, limit: int = 50, status: CampaignStatus | None = None
    ) -> ResultPage[CampaignSummary]:
        """List campaigns with their counts, newest first."""

    @call("POST", "/v1/campaigns", body=True)
    def create(
        self,
        *,
        name: str,
        subject: str,
        html: str | None = None,
        text: str | None = None,
        from_: str | None = None,
        reply_to: str | None = None,
        tracking: bool = True,
        start_at: datetime | None = None,
        local_time: str | None = None,
        time_zone: str = "UTC",
    ) -> Campaign:
        """Create a campaign as a draft."""

    @call("GET", "/v1/campaigns/{campaign_id}")
    def get(self, campaign_id: int) -> Campaign:
        """Read a campaign with all its counts."""

    @call("PATCH", "/v1/campaigns/{campaign_id}", body=True)
    def update(
        self,
        campaign_id: int,
        *,
        name: str = ...,
        subject: str = ...,
        html: str | None = ...,
        text: str | None = ...,
        from_: str | None = ...,
        reply_to: str | None = ...,
        tracking: bool = ...,
        start_at: datetime | None = ...,
        local_time: str | None = ...,
        time_zone: str = ...,
    ) -> Campaign:
        """Change a draft. A started campaign cannot be changed."""

    @call("DELETE", "/v1/campaigns/{campaign_id}")
    def delete(self, campaign_id: int) -> None:
        """Delete a draft and its recipients."""

    @listing("/v1/campaigns/{campaign_id}/recipients")
    def list_recipients(
        self,
        campaign_id: int,
        *,
        cursor: str | None = None,
        limit: int = 50,
        state: RecipientState | None = None,
        custom_data: str | None = None,
    ) -> ResultPage[CampaignRecipient]:
        """List recipients, filtered by state or by their merge fields."""

    @call("POST", "/v1/campaigns/{campaign_id}/recipients", accepts=("text/csv", "application/x-ndjson"))
    def upload_recipients(
        self, campaign_id: int, file: File, *, media_type: str | None = None, progress: OnProgress | None = None
    ) -> Upload:
        """Add recipients from CSV with a header line, or from JSON lines. A repeated upload skips known addresses."""

    @call("GET", "/v1/campaigns/{campaign_id}/preview")
    def preview(self, campaign_id: int, *, email: str | None = None) -> CampaignPreview:
        """Preview the letter for one recipient."""

    @call("POST", "/v1/campaigns/{campaign_id}/preview", body=True)
    def preview_with(
        self, campaign_id: int, *, email: str | None = None, variables: Mapping[str, Any] = ...
    ) -> CampaignPreview:
        """Preview the letter with given variables."""

    @call("GET", "/v1/campaigns/{campaign_id}/lint")
    def lint(self, campaign_id: int) -> Warnings:
        """Check the letter and list warnings."""

    @call("POST", "/v1/campaigns/{campaign_id}/test", body=True)
    def send_test(
        self, campaign_id: int, *, to: Sequence[str], email: str | None = None, variables: Mapping[str, Any] = ...
    ) -> SentTest:
        """Send a test mail of the letter. Tests are marked and not counted."""

    @call("POST", "/v1/campaigns/{campaign_id}/start")
    def start(self, campaign_id: int, *, accepts_failures: bool = False) -> Started:
        """Start a campaign. Its letter can no longer be changed."""

    @call("POST", "/v1/campaigns/{campaign_id}/reopen")
    def reopen(self, campaign_id: int) -> Campaign:
        """Return a campaign to a draft, while no mail of it was queued."""

    @call("POST", "/v1/campaigns/{campaign_id}/pause")
    def pause(self, campaign_id: int) -> Campaign:
        """Pause a campaign and hold its unsent mail."""

    @call("POST", "/v1/campaigns/{campaign_id}/resume")
    def resume(self, campaign_id: int) -> Campaign:
        """Resume a paused campaign."""

    @call("POST", "/v1/campaigns/{campaign_id}/cancel")
    def cancel(self, campaign_id: int) -> Campaign:
        """Cancel a campaign and its unsent mail."""

    @listing("/v1/clicks")
    def list_clicks(
        self,
        *,
        cursor: str | None = None,
        limit: int = 50,
        campaign_id: int | None = None,
        email: str | None = None,
        url: str | None = None,
    ) -> ResultPage[ClickedLink]:
        """List clicks by person and link; give campaign_id, email or url."""

    @download("/v1/clicks/export")
    def export_clicks(
        self,
        *,
        cursor: str | None = None,
        limit: int = 50,
        campaign_id: int | None = None,
        email: str | None = None,
        url: str | None = None,
    ) -> bytes:
        """Export clicks by person and link as CSV; x-next-cursor names the next page."""

    @listing("/v1/campaigns/{campaign_id}/links")
    def list_links(self, campaign_id: int, *, cursor: str | None = None, limit: int = 50) -> ResultPage[LinkFigures]:
        """List the links of a campaign with their clicks, the most clicked first."""

    @download("/v1/campaigns/{campaign_id}/links/export")
    def export_links(self, campaign_id: int, *, cursor: str | None = None, limit: int = 50) -> bytes:
        """Export the links of a campaign with their clicks as CSV; x-next-cursor names the next page."""
