"""Requests of Resend's clients, and their conversion to deliveries."""

import base64
import mimetypes
import re
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import msgspec

from postroom.delivery.shapes import Addresses, AttachmentBody, DeliveryBody
from postroom.dropins.endpoint import once
from postroom.errors import BadInput
from postroom.intake.media_type import plain_media_type
from postroom.runtime.record import Shape

MOST_EMAILS = 100  # as in Resend's API
EARLIEST, LATEST = datetime(1970, 1, 1, tzinfo=UTC), datetime(9999, 1, 1, tzinfo=UTC)  # as `delivery.shapes`

_IN = re.compile(
    r"in (?P<count>\d{1,5}|an?) "
    r"(?P<unit>s(?:ec(?:ond)?s?)?|m(?:in(?:ute)?s?)?|h(?:(?:ou)?rs?)?|d(?:ays?)?|w(?:eeks?)?)",
    re.IGNORECASE,
)
_UNITS = {
    "s": timedelta(seconds=1),
    "m": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
    "w": timedelta(weeks=1),
}

Octets = list[Annotated[int, msgspec.Meta(ge=0, le=255)]]


class NodeBuffer(Shape, frozen=True, kw_only=True):
    """A Buffer of Node.js, as JSON writes it."""

    type: str
    data: Octets


class ResendAttachment(Shape, frozen=True, kw_only=True):
    """A file: base64, or its bytes as numbers."""

    content: str | Octets | NodeBuffer | None = None
    filename: str | None = None
    path: str | None = None
    content_type: str | None = None
    content_id: str | None = None
    inline_content_id: str | None = None


class ResendTag(Shape, frozen=True, kw_only=True):
    """A name and a value by which a mail is found."""

    name: str
    value: str = ""


class ResendTemplate(Shape, frozen=True, kw_only=True):
    """One of our templates, by its id."""

    id: str
    variables: dict[str, Any] = msgspec.field(default_factory=dict)


class ResendEmail(Shape, frozen=True, kw_only=True, rename={"sender": "from"}):
    """One mail as clients of Resend describe it."""

    to: Addresses
    sender: str | None = None
    subject: str | None = None
    html: str | None = None
    text: str | None = None
    cc: Addresses | None = None
    bcc: Addresses | None = None
    reply_to: Addresses | None = None
    headers: dict[str, str] | None = None
    attachments: list[ResendAttachment] | None = None
    tags: list[ResendTag] | None = None
    template: ResendTemplate | None = None
    scheduled_at: str | None = None


class ResendUpdate(Shape, frozen=True, kw_only=True):
    """Another moment for a mail that has not left; the id stands in the path, and clients repeat it."""

    scheduled_at: str
    id: str | None = None


class EmailsQuery(Shape, frozen=True, kw_only=True):
    """The page of the listing; read as text, so that errors can be written in Resend's format."""

    limit: str = "20"
    after: str | None = None
    before: str | None = None


def delivery_body(email: ResendEmail) -> DeliveryBody:
    """Convert to a delivery; `BadInput` names unsupported fields."""
    chosen = email.template
    return DeliveryBody(
        to=email.to,
        cc=email.cc or [],
        bcc=email.bcc or [],
        reply_to=email.reply_to or [],
        sender=email.sender,
        subject=email.subject,
        text=email.text,
        html=email.html,
        template=chosen.id if chosen else None,
        variables=chosen.variables if chosen else {},
        headers=email.headers or {},
        attachments=[_attachment(file, index) for index, file in enumerate(email.attachments or ())],
        tags=once("tags", ((tag.name, tag.value) for tag in email.tags or ())),
        send_at=None if email.scheduled_at is None else parse_schedule(email.scheduled_at),
    )


def is_relative(written: str | None) -> bool:
    """True for `in 5 minutes`, which means another time when the request is repeated."""
    return written is not None and _IN.fullmatch(written.strip()) is not None


def parse_schedule(written: str, *, now: datetime | None = None) -> datetime:
    """A time in ISO 8601, in UTC if it does not say, or from now: `in 1 min`, `in 2 hours`, `in 3 days`."""
    if (later := _IN.fullmatch(written.strip())) is not None:
        count = int(later["count"]) if later["count"].isdigit() else 1
        return (now or datetime.now(UTC)) + count * _UNITS[later["unit"][0].lower()]
    with BadInput.naming("scheduled_at", "must be a time such as 2030-01-31T09:00:00Z or `in 5 minutes`"):
        moment = datetime.fromisoformat(written.strip())
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    if not EARLIEST <= aware < LATEST:
        raise BadInput.of("scheduled_at", "must be between the years 1970 and 9998")
    return aware


def _attachment(file: ResendAttachment, index: int) -> AttachmentBody:
    where = f"attachments[{index}]"
    if file.path is not None:
        raise BadInput.of(f"{where}.path", "is not supported: files are not fetched, send their content")
    if file.content is None:
        raise BadInput.of(f"{where}.content", "is required")
    filename = file.filename or f"attachment-{index + 1}"
    guessed = mimetypes.guess_type(filename)[0] or "application/octet-stream"
    return AttachmentBody(
        filename=filename,
        content_type=plain_media_type(file.content_type or guessed),
        content=_base64(file.content),
        content_id=file.content_id or file.inline_content_id,
    )


def _base64(content: str | list[int] | NodeBuffer) -> str:
    if isinstance(content, str):
        return content
    return base64.b64encode(bytes(content.data if isinstance(content, NodeBuffer) else content)).decode()
