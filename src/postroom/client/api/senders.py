"""The endpoints of senders, and their types.

Generated from the table of endpoints by `./dev docs`: do not edit.
"""

from __future__ import annotations  # evaluated when an endpoint is first called

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from postroom.client.calls import Kind, Resource, ResultPage, call, listing

if TYPE_CHECKING:
    AuthType = Literal["gmail", "ses", "smtp"]
    SenderStatus = Literal["active", "paused", "paused_limit_reached", "suspended", "warming_up"]
    PausedBy = Literal["health", "person"]
else:  # a newer server may have more values
    AuthType = str
    SenderStatus = str
    PausedBy = str


class SenderAccount(Struct, frozen=True, kw_only=True):
    """One mailbox, without its secrets."""

    id: int
    email: str
    display_name: str | None
    auth_type: AuthType
    status: SenderStatus
    status_reason: str | None
    paused_by: PausedBy | None
    resume_status: SenderStatus | None
    gmail_subject_email: str | None
    smtp_host: str | None
    smtp_port: int | None
    smtp_username: str | None
    smtp_use_tls: bool
    ses_region: str | None
    daily_limit: int
    batch_size: int
    send_delay_ms: int
    lanes: list[str]
    daily_sent: int
    daily_bounces: int
    daily_errors: int
    consecutive_errors: int
    last_reset_at: datetime
    warmup_stage: int
    warmup_current_limit: int | None
    warmup_days: int
    warmup_limits: list[int]
    warmup_days_per_stage: int
    paused_until: datetime | None
    last_used_at: datetime | None
    created_at: datetime
    updated_at: datetime
    notes: str | None


class Removed(Struct, frozen=True, kw_only=True):
    """Response after an account was removed."""

    id: int


class Trial(Struct, frozen=True, kw_only=True):
    """The steps of a trial; `ok` if the mail was accepted."""

    ok: bool
    steps: list[TrialStep]


class TrialStep(Struct, frozen=True, kw_only=True):
    """One step of a trial."""

    name: str
    ok: bool
    detail: str | None


class DestinationLimits(Struct, frozen=True, kw_only=True):
    """The limits of one destination and its current pause."""

    domain: str
    max_connections: int | None
    messages_per_second: float | None
    paused_until: datetime | None
    backoff_level: int
    updated_at: datetime


class Unlimited(Struct, frozen=True, kw_only=True):
    """Response after the limits of a destination were removed."""

    domain: str


class SendersApi(Resource[Kind]):
    """The endpoints of senders."""

    @listing("/v1/senders")
    def list(self, *, cursor: str | None = None, limit: int = 50) -> ResultPage[SenderAccount]:
        """List accounts, oldest first."""

    @call("POST", "/v1/senders", body=True)
    def create(
        self,
        *,
        email: str,
        auth_type: AuthType,
        display_name: str | None = None,
        smtp_host: str | None = None,
        smtp_port: int | None = None,
        smtp_username: str | None = None,
        smtp_password: str | None = None,
        smtp_use_tls: bool = True,
        gmail_subject_email: str | None = None,
        gmail_credentials: str | None = None,
        ses_region: str | None = None,
        ses_access_key_id: str | None = None,
        ses_secret_access_key: str | None = None,
        daily_limit: int = 2000,
        batch_size: int = 50,
        send_delay_ms: int | None = None,
        lanes: Sequence[str] | None = None,
        warmup: bool = False,
        warmup_limits: Sequence[int] = (50, 100, 250, 500, 1000, 2000),
        warmup_days_per_stage: int = 7,
        notes: str | None = None,
    ) -> SenderAccount:
        """Add an account. Its secret is stored sealed and never shown."""

    @call("GET", "/v1/senders/{sender_id}")
    def get(self, sender_id: int) -> SenderAccount:
        """Show an account."""

    @call("PATCH", "/v1/senders/{sender_id}", body=True)
    def change(
        self,
        sender_id: int,
        *,
        email: str = ...,
        display_name: str | None = ...,
        smtp_host: str = ...,
        smtp_port: int = ...,
        smtp_username: str | None = ...,
        smtp_password: str = ...,
        smtp_use_tls: bool = ...,
        gmail_subject_email: str = ...,
        gmail_credentials: str = ...,
        ses_region: str = ...,
        ses_access_key_id: str = ...,
        ses_secret_access_key: str = ...,
        daily_limit: int = ...,
        batch_size: int = ...,
        send_delay_ms: int = ...,
        lanes: Sequence[str] | None = ...,
        warmup: bool = ...,
        warmup_limits: Sequence[int] = ...,
        warmup_days_per_stage: int = ...,
        notes: str | None = ...,
    ) -> SenderAccount:
        """Change an account; its type cannot be changed."""

    @call("DELETE", "/v1/senders/{sender_id}")
    def delete(self, sender_id: int) -> Removed:
        """Remove an account and its secret."""

    @call("POST", "/v1/senders/{sender_id}/pause")
    def pause(self, sender_id: int, *, reason: str | None = None) -> SenderAccount:
        """Stop sending through the account until it is resumed."""

    @call("POST", "/v1/senders/{sender_id}/resume")
    def resume(self, sender_id: int) -> SenderAccount:
        """Resume an account and clear its record."""

    @call("POST", "/v1/senders/{sender_id}/test")
    def test(self, sender_id: int) -> Trial:
        """Send a mail from the account to itself and return each step."""

    @listing("/v1/domains")
    def list_domains(self, *, cursor: str | None = None, limit: int = 50) -> ResultPage[DestinationLimits]:
        """List destinations with limits or an active pause."""

    @call("PUT", "/v1/domains/{domain}", body=True)
    def put_domain(
        self, domain: str, *, max_connections: int | None = None, messages_per_second: float | None = None
    ) -> DestinationLimits:
        """Set the limits of a destination."""

    @call("DELETE", "/v1/domains/{domain}")
    def delete_domain(self, domain: str) -> Unlimited:
        """Remove the limits of a destination."""
