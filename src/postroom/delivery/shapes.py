"""JSON shapes of deliveries, and their conversion to and from the model.

Secrets are never returned: variables and the content of attachments, and in the lane `auth`, whose mail has one-time
codes, subject and bodies.
"""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import msgspec
from msgspec.structs import asdict

from postroom.delivery.check import CheckedRequest, problems
from postroom.delivery.model import Delivery, DeliveryRequest, DeliverySummary, Lane, Recipient, RecipientKind
from postroom.delivery.retry import LONGEST_PATIENCE, MOST_RETRIES
from postroom.errors import BadInput, FieldError
from postroom.post.address import Address, parse_address, write_address
from postroom.post.mime import Attachment
from postroom.runtime.record import Moment, Shape, answer, many, request, response

Written = Annotated[str, msgspec.Meta(max_length=1000, description="`a@example.org` or `Name <a@example.org>`.")]
Addresses = Written | list[Written]

_KINDS = tuple(RecipientKind)
_LONGEST_PATIENCE_S = int(LONGEST_PATIENCE.total_seconds())
_FURTHEST = datetime(9999, 1, 1, tzinfo=UTC)  # beyond it, UTC or a local time may not exist in Python
_EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)


class AttachmentBody(Shape, frozen=True, kw_only=True):
    """A file in base64; with a `content_id`, an image shown inside the HTML part."""

    filename: str
    content_type: str
    content: str
    content_id: str | None = None


_Body = request(
    DeliveryRequest,
    "_Body",
    hide=("channel", "source", "idempotency_key", "ladder", "traceparent", "endpoint_id"),
    required=("to",),
    rename={"sender": "from"},
    types={
        "to": Addresses,
        "cc": Addresses,
        "bcc": Addresses,
        "reply_to": Addresses,
        "sender": Written | None,
        "variables": dict[str, Any],
        "send_at": Moment | None,
        "expires_at": Moment | None,
        "max_retries": Annotated[int, msgspec.Meta(ge=0, le=MOST_RETRIES)] | None,
        "give_up_after": Annotated[int, msgspec.Meta(ge=1, le=_LONGEST_PATIENCE_S)] | None,  # seconds
        "attachments": list[AttachmentBody],
        "headers": dict[str, str],
        "tags": dict[str, str],
        "custom_data": dict[str, Any] | None,
    },
)


class DeliveryBody(_Body, frozen=True, kw_only=True):  # type: ignore[call-arg, misc, valid-type]  # made by `request`
    """A delivery: content (`subject` with `text` or `html`), or a `template` with `variables` and `locale`."""


class AcceptedShape(msgspec.Struct, frozen=True):
    """The delivery of the request; `replayed` if an earlier request with the same key created it."""

    id: int
    status: str
    replayed: bool


_PUBLIC = {"state": "status", "template_id": "template"}
RecipientShape = response(
    Recipient, "RecipientShape", hide=("position", "held_for"), rename={"enhanced": "enhanced_code"}
)
AttachmentShape = response(Attachment, "AttachmentShape", hide=("content",), extra={"size": int})
SummaryShape = response(DeliverySummary, "DeliverySummary", rename=_PUBLIC, extra={"give_up_after": int | None})
DeliveryShape = response(
    Delivery,
    "DeliveryShape",
    hide=("ladder", "has_body", "variables", "dated_at", "sender_account_id"),
    rename={**_PUBLIC, "template_version_id": "template_version", "sender": "from"},
    extra={
        "give_up_after": int | None,
        "recipients": many(RecipientShape),
        "from": str | None,
        "content_hidden": bool,  # subject and bodies are hidden because they contain a code
        "attachments": many(AttachmentShape),
    },
)


# --- arriving ------------------------------------------------------------------------


def request_from(
    body: DeliveryBody, *, source: str, idempotency_key: str | None, traceparent: str | None, where: str = ""
) -> CheckedRequest:
    """Read and check a body; `where` is a prefix of the name of each invalid field."""
    errors: list[FieldError] = []
    given = asdict(body)
    read = {
        **{name: _addresses(name, given[name], errors) for name in ("to", "cc", "bcc", "reply_to")},
        **{name: _moment(name, given[name], errors) for name in ("send_at", "expires_at")},
        "sender": next(iter(_addresses("from", body.sender, errors)), None) if body.sender is not None else None,
        "attachments": tuple(Attachment(a.filename, a.content_type, a.content, a.content_id) for a in body.attachments),
        "give_up_after": None if body.give_up_after is None else timedelta(seconds=body.give_up_after),
    }
    own = {"source": source, "idempotency_key": idempotency_key, "traceparent": traceparent}
    wanted = DeliveryRequest(**{**given, **read, **own})
    errors += (FieldError(*found) for found in problems(wanted) if found[0] not in {e.field for e in errors})
    if errors:
        raise BadInput([FieldError(f"{where}{error.field}", error.message) for error in errors])
    return CheckedRequest(wanted)


def _addresses(field: str, written: str | Sequence[str], errors: list[FieldError]) -> tuple[Address, ...]:
    is_one = isinstance(written, str)
    parsed = []
    for index, text in enumerate([written] if isinstance(written, str) else written):
        try:
            parsed.append(parse_address(text))
        except ValueError as error:
            errors.append(FieldError(field if is_one else f"{field}[{index}]", str(error)))
    # An unreadable field must not be reported as missing too.
    return tuple(parsed) or ((Address("unreadable@localhost"),) if errors and written else ())


def _moment(field: str, moment: datetime | None, errors: list[FieldError]) -> datetime | None:
    if moment is None:
        return None
    try:
        in_utc = moment.astimezone(UTC)
    except OverflowError:
        in_utc = datetime.max.replace(tzinfo=UTC)
    if not _EARLIEST <= in_utc < _FURTHEST:
        errors.append(FieldError(field, "must be between the years 1970 and 9998"))
        return None
    return in_utc


def in_utc(field: str, moment: datetime | None) -> datetime | None:
    """The same moment in UTC; `BadInput` names the field if UTC cannot express it."""
    try:
        return None if moment is None else moment.astimezone(UTC)
    except OverflowError:
        raise BadInput.of(field, "is beyond the end of the calendar") from None


# --- leaving -------------------------------------------------------------------------


def summary_shape(delivery: DeliverySummary) -> Any:
    return answer(
        SummaryShape,
        delivery,
        subject=None if delivery.lane is Lane.AUTH else delivery.subject,
        give_up_after=_whole_seconds(delivery.give_up_after),
    )


def delivery_shape(delivery: Delivery) -> Any:
    is_hidden = delivery.lane is Lane.AUTH
    hidden = {"subject": None, "text": None, "html": None} if is_hidden else {}
    return answer(
        DeliveryShape,
        delivery,
        **hidden,
        **{"from": None if delivery.sender is None else write_address(delivery.sender)},
        give_up_after=_whole_seconds(delivery.give_up_after),
        recipients=[answer(RecipientShape, recipient) for recipient in sorted(delivery.recipients, key=_place)],
        content_hidden=is_hidden,
        attachments=[answer(AttachmentShape, each, size=_size(each.content)) for each in delivery.attachments],
    )


def _whole_seconds(duration: timedelta | None) -> int | None:
    return None if duration is None else round(duration.total_seconds())


def _place(recipient: Recipient) -> tuple[int, int]:
    """The order of recipient kinds: to, cc, bcc, reply_to."""
    return _KINDS.index(recipient.kind), recipient.position


def _size(content: str) -> int:
    """The number of bytes that this base64 encodes."""
    return len(content) * 3 // 4 - content[-2:].count("=")
