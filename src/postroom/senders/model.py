"""Sender accounts and the rules about them that need no database."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import NewType

import msgspec

SenderId = NewType("SenderId", int)

WARMUP_LIMITS = (50, 100, 250, 500, 1000, 2000)  # about twice as many each stage, as large receivers recommend
WARMUP_DAYS = 7  # of a stage; fewer raise the limit faster than receivers get used to the sender
DAILY_LIMIT = 2000  # Google Workspace allows 2,000 mails per day and mailbox
BATCH_SIZE = 50  # mails of one account per claim, so that accounts share a claim
LANES = ("auth", "transactional", "bulk")


class AuthType(StrEnum):
    """The protocol and authentication of an account."""

    SMTP = "smtp"
    GMAIL = "gmail"
    SES = "ses"


SEND_DELAY_MS: Mapping[AuthType, int] = {
    AuthType.SMTP: 100,
    AuthType.GMAIL: 400,  # 250 quota units a second, 100 for each mail
    AuthType.SES: 0,  # the service limits its own rate with 429 and is built for many connections
}


class SenderStatus(StrEnum):
    """The status of an account: whether it may send."""

    ACTIVE = "active"
    PAUSED = "paused"  # by a person or by poor health; only a person resumes it
    SUSPENDED = "suspended"  # its login was rejected; only a person resumes it
    WARMING_UP = "warming_up"  # active, with a growing limit
    PAUSED_LIMIT_REACHED = "paused_limit_reached"  # resumes automatically on the next UTC day


class PausedBy(StrEnum):
    """The cause of a pause."""

    PERSON = "person"
    HEALTH = "health"


@dataclass(frozen=True, slots=True, kw_only=True)
class SenderAccount:
    """One mailbox, without its secrets."""

    id: SenderId
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
    lanes: tuple[str, ...]
    daily_sent: int
    daily_bounces: int
    daily_errors: int
    consecutive_errors: int
    last_reset_at: datetime
    warmup_stage: int
    warmup_current_limit: int | None
    warmup_days: int
    warmup_limits: tuple[int, ...]
    warmup_days_per_stage: int
    paused_until: datetime | None
    last_used_at: datetime | None
    created_at: datetime
    updated_at: datetime
    notes: str | None

    @property
    def limit(self) -> int:
        """Maximum number of mails today."""
        return min(self.daily_limit, self.warmup_current_limit or self.daily_limit)


@dataclass(frozen=True, slots=True)
class SealedAccount:
    """An account with its encrypted secret."""

    account: SenderAccount
    secret: str | None = field(repr=False)
    key_id: str | None = None


@dataclass(frozen=True, slots=True)
class SmtpCredentials:
    """The password of a login; None for a server without authentication."""

    password: str | None = field(default=None, repr=False)


class StartSlot(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The start time of a claimed mail, relative to the claim, and the account or destination that limits it."""

    claim_id: int
    account_id: int | None = None
    start_in_s: float = 0.0
    delay_s: float = 0.0  # between two starts; 0: no delay
    domain: str | None = None  # a destination with limits
    connections: int | None = None  # limit to that destination, in this process
    doubtful_account_id: int | None = None  # account of an ambiguous attempt, queried before the next one

    @property
    def is_free(self) -> bool:
        """True if the mail waits neither for a time nor for a connection or a query."""
        return not self.delay_s and self.domain is None and self.doubtful_account_id is None


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthPolicy:
    """The thresholds at which an account is paused because of its results."""

    window: timedelta = timedelta(hours=1)  # a bad list shows within it; older results say nothing about now
    minimum: int = 50  # attempts below which a rate is not significant
    bounce_rate: float = 0.05  # providers review or suspend an account above it
    error_rate: float = 0.10  # ordinary networks and servers fail less often
    errors_in_a_row: int = 10  # an account that cannot send is found before its batch is used up


@dataclass(frozen=True, slots=True)
class SenderFigures:
    """The results of an account within the window."""

    tried: int
    bounces: int
    errors: int
    errors_in_a_row: int


@dataclass(frozen=True, slots=True)
class DestinationLimits:
    """The limits of one destination and its current pause."""

    domain: str
    max_connections: int | None
    messages_per_second: float | None
    paused_until: datetime | None
    backoff_level: int
    updated_at: datetime


def find_trouble(figures: SenderFigures, policy: HealthPolicy) -> str | None:
    """The reason to pause an account with these figures; None if it is healthy."""
    if figures.errors_in_a_row >= policy.errors_in_a_row:
        return f"{figures.errors_in_a_row} errors in a row"
    if figures.tried < policy.minimum:
        return None
    if figures.bounces > policy.bounce_rate * figures.tried:
        return f"{figures.bounces} of {figures.tried} mails bounced"
    if figures.errors > policy.error_rate * figures.tried:
        return f"{figures.errors} of {figures.tried} attempts failed"
    return None
