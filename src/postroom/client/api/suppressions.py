"""The endpoints of suppressions, and their types.

Generated from the table of endpoints by `./dev docs`: do not edit.
"""

from __future__ import annotations  # evaluated when an endpoint is first called

from datetime import datetime
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from postroom.client.calls import Kind, Resource, ResultPage, call, download, listing
from postroom.client.upload import File, OnProgress

if TYPE_CHECKING:
    SuppressionReason = Literal["complaint", "hard_bounce", "manual", "soft_bounce", "unsubscribe"]
    Scope = Literal["all", "bulk"]
    FeedbackKind = Literal["bounce", "complaint", "unsubscribe"]
    BounceClass = Literal[
        "infrastructure", "message", "policy", "recipient_hard", "recipient_soft", "transient", "unknown"
    ]
else:  # a newer server may have more values
    SuppressionReason = str
    Scope = str
    FeedbackKind = str
    BounceClass = str


class Suppression(Struct, frozen=True, kw_only=True):
    """A stored suppression of an address."""

    id: int
    email: str
    reason: SuppressionReason
    scope: Scope
    origin: str
    created_at: datetime
    until: datetime | None
    campaign_id: int | None
    sender_account_id: int | None
    first_seen_at: datetime
    last_seen_at: datetime
    bounce_count: int
    code: str | None
    detail: str | None


class Import(Struct, frozen=True, kw_only=True):
    """The result of an import; the first thousand rejected lines are listed."""

    total: int
    imported: int
    refused: int
    errors: list[RefusedLine]


class RefusedLine(Struct, frozen=True, kw_only=True):
    """A rejected line of a file."""

    line: int
    message: str


class Address(Struct, frozen=True, kw_only=True):
    """One address: its suppressions and their history."""

    items: list[Suppression]
    history: list[HistoryStep]


class HistoryStep(Struct, frozen=True, kw_only=True):
    """One entry in the history of an address."""

    at: datetime
    change: str
    reason: SuppressionReason
    scope: Scope
    until: datetime | None
    origin: str
    actor: str | None
    note: str | None


class ReceivedReport(Struct, frozen=True, kw_only=True):
    """One stored report."""

    id: int
    kind: FeedbackKind
    classification: BounceClass | None
    delivery_id: int | None
    campaign_id: int | None
    sender_account_id: int | None
    email: str | None
    code: int | None
    enhanced: str | None
    text: str | None
    origin: str
    reported_at: datetime
    verified: bool


class SuppressionsApi(Resource[Kind]):
    """The endpoints of suppressions."""

    @listing("/v1/suppressions")
    def list(
        self,
        *,
        cursor: str | None = None,
        limit: int = 50,
        email: str | None = None,
        reason: SuppressionReason | None = None,
        origin: str | None = None,
    ) -> ResultPage[Suppression]:
        """List suppressions, newest first."""

    @call("POST", "/v1/suppressions", body=True)
    def add(
        self,
        *,
        email: str,
        reason: SuppressionReason = "manual",
        origin: str | None = None,
        campaign_id: int | None = None,
        scope: Scope | None = None,
        detail: str | None = None,
    ) -> Suppression:
        """Suppress an address. An existing suppression for a more severe reason is kept."""

    @call("DELETE", "/v1/suppressions")
    def lift(
        self, *, email: str | None = None, reason: SuppressionReason | None = None, note: str = ""
    ) -> ResultPage[Suppression]:
        """Lift the suppressions of an address; the history stays."""

    @call("POST", "/v1/suppressions/import", accepts=("text/csv",))
    def import_(self, file: File, *, media_type: str | None = None, progress: OnProgress | None = None) -> Import:
        """Suppress every address of a CSV file of any size."""

    @download("/v1/suppressions/export")
    def export(self, *, cursor: str | None = None, limit: int = 100000) -> bytes:
        """All suppressions as CSV, oldest first; X-Next-Cursor names the next page."""

    @call("GET", "/v1/suppressions/{email}")
    def get_address(self, email: str) -> Address:
        """One address: what is suppressed now, and its history."""

    @listing("/v1/bounces")
    def list_bounces(
        self,
        *,
        cursor: str | None = None,
        limit: int = 50,
        email: str | None = None,
        delivery_id: int | None = None,
        kind: FeedbackKind | None = None,
        verified: bool | None = None,
    ) -> ResultPage[ReceivedReport]:
        """List reported bounces, complaints and unsubscribes, newest first."""
