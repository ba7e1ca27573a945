"""Mailgun's webhooks.

The signature covers a timestamp and a token but not the body: anyone who saw one request could send another body with
it. A token is therefore valid once, and only near its timestamp; the caller stores used tokens
(`used_feedback_tokens`).
"""

import hashlib
import hmac
from datetime import datetime, timedelta

import msgspec

from postroom.feedback.model import BounceClass, FeedbackKind, classify
from postroom.feedback.providers.model import ProviderNotice, ProviderReports, moment

WINDOW = timedelta(hours=12)
"""Mailgun retries for eight hours."""

_KINDS = {
    "failed": FeedbackKind.BOUNCE,
    "complained": FeedbackKind.COMPLAINT,
    "unsubscribed": FeedbackKind.UNSUBSCRIBE,
}


_SUPPRESSED = {
    "suppress-bounce": (FeedbackKind.BOUNCE, BounceClass.RECIPIENT_HARD),
    "suppress-complaint": (FeedbackKind.COMPLAINT, None),
    "suppress-unsubscribe": (FeedbackKind.UNSUBSCRIBE, None),
}
"""Reasons of mail that Mailgun did not attempt, because its own list has the address."""


class Signature(msgspec.Struct, frozen=True):
    timestamp: str
    token: str
    signature: str


class MailgunStatus(msgspec.Struct, frozen=True):
    code: int | None = None
    enhanced: str | None = msgspec.field(default=None, name="enhanced-code")
    message: str | None = None
    description: str | None = None


class Headers(msgspec.Struct, frozen=True):
    message_id: str = msgspec.field(default="", name="message-id")


class MailgunMessage(msgspec.Struct, frozen=True):
    headers: Headers = Headers()


class MailgunEvent(msgspec.Struct, frozen=True):
    event: str = ""
    id: str = ""
    recipient: str = ""
    severity: str = ""
    reason: str = ""
    timestamp: float | None = None
    status: MailgunStatus = msgspec.field(default=MailgunStatus(), name="delivery-status")
    message: MailgunMessage = MailgunMessage()


class Request(msgspec.Struct, frozen=True):
    """One event with its signature."""

    signature: Signature
    event: MailgunEvent = msgspec.field(name="event-data")


read_request = msgspec.json.Decoder(Request).decode
"""Decode a request; raises `msgspec.MsgspecError`."""


def is_genuine(request: Request, *, key: str, now: datetime) -> bool:
    """True if Mailgun signed this token recently. The caller checks whether the token was used before."""
    given = request.signature
    expected = hmac.new(key.encode(), f"{given.timestamp}{given.token}".encode(), hashlib.sha256).hexdigest()
    if not hmac.compare_digest(expected.encode(), given.signature.encode()):
        return False
    if not (given.timestamp.isascii() and given.timestamp.isdigit() and len(given.timestamp) <= 12):  # noqa: PLR2004 - bounds int()
        return False
    return abs(now.timestamp() - int(given.timestamp)) <= WINDOW.total_seconds()


def read(request: Request) -> ProviderReports:
    """The event of a request; empty for one that Mailgun will retry."""
    event = request.event
    kind = _KINDS.get(event.event)
    if kind is None or not event.recipient or event.severity == "temporary":
        return ProviderReports((), 1)
    status = event.status
    said = " ".join(part for part in (status.message, status.description) if part) or event.reason
    found = classify(_smtp(status.code), status.enhanced, said) if kind is FeedbackKind.BOUNCE else None
    kind, found = _SUPPRESSED.get(event.reason, (kind, found))
    return ProviderReports(
        [
            ProviderNotice(
                kind=kind,
                address=event.recipient,
                event_id=event.id or request.signature.token,
                classification=found,
                code=_smtp(status.code),
                enhanced=status.enhanced or None,
                text=said,
                trace=f"<{event.message.headers.message_id.strip('<>')}>",
                reported_at=moment(event.timestamp),
            )
        ]
    )


def _smtp(code: int | None) -> int | None:
    """The SMTP code of an event; None for Mailgun's own codes, such as 605."""
    return code if code is not None and code // 100 in (4, 5) else None
