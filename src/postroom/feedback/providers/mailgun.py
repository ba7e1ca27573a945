"""Mailgun's webhooks.

The signature covers a time and a token and not the body: whoever saw one request could send another body with it. So a
token is good once, and only near its time; the caller keeps tokens (`used_feedback_tokens`).
"""

import hashlib
import hmac
from datetime import datetime, timedelta

import msgspec

from postroom.feedback.model import BounceClass, FeedbackKind, classify
from postroom.feedback.providers.model import ProviderNotice, ProviderReports, moment

WINDOW = timedelta(hours=12)
"""Mailgun tries for eight hours."""

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
"""Mail they did not even try, because their own list has the address."""


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
    """One event, and the proof beside it."""

    signature: Signature
    event: MailgunEvent = msgspec.field(name="event-data")


_requests = msgspec.json.Decoder(Request)


def read_request(raw: bytes) -> Request:
    """Raises `msgspec.MsgspecError`."""
    return _requests.decode(raw)


def is_genuine(request: Request, *, key: str, now: datetime) -> bool:
    """True if Mailgun signed this token, lately. Whether the token was used before is for the caller to find out."""
    given = request.signature
    expected = hmac.new(key.encode(), f"{given.timestamp}{given.token}".encode(), hashlib.sha256).hexdigest()
    if not hmac.compare_digest(expected.encode(), given.signature.encode()):
        return False
    if not (given.timestamp.isascii() and given.timestamp.isdigit() and len(given.timestamp) <= 12):  # noqa: PLR2004
        return False
    return abs(now.timestamp() - int(given.timestamp)) <= WINDOW.total_seconds()


def read(request: Request) -> ProviderReports:
    """The event of a request; one that will be tried again is none."""
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
    """Mailgun has codes of its own, such as 605; they are no SMTP."""
    return code if code is not None and code // 100 in (4, 5) else None
