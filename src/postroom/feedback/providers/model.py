"""Events of all providers in one form. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from postroom.feedback.model import BounceClass, FeedbackKind


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderOptions:
    """The keys that verify providers; a provider without one is disabled."""

    ses_topics: tuple[str, ...] = ()  # ARNs
    sendgrid_key: str | None = None  # the public key, base64
    mailgun_key: str | None = field(default=None, repr=False)
    postmark_secret: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderNotice:
    """One event about one recipient. `event_id` is the provider's id; `trace` may hold our Message-ID."""

    kind: FeedbackKind
    address: str
    event_id: str
    classification: BounceClass | None = None
    code: int | None = None
    enhanced: str | None = None
    text: str = ""
    trace: str = ""
    reported_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class ProviderReports:
    """The events of one request, and the number of ignored ones."""

    notices: Sequence[ProviderNotice] = ()
    ignored: int = 0


def moment(seconds: float | None) -> datetime | None:
    """A time from seconds since the epoch; None if it is not a valid time."""
    try:
        return None if seconds is None else datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, OSError, ValueError):
        return None


def parsed_moment(text: str) -> datetime | None:
    """A time as providers write it, UTC without a zone; None if it is not a valid time."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)
