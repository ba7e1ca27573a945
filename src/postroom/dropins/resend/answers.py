"""Responses to clients of Resend: deliveries in its words, errors in its format.

{"statusCode": 422, "name": "validation_error", "message": "to[0]: …"}
"""

from datetime import datetime
from http import HTTPStatus
from typing import Any

import msgspec

from postroom.db.faults import is_connection_lost
from postroom.delivery.errors import WrongState
from postroom.delivery.model import Delivery, DeliveryState, Lane, RecipientKind, RecipientOutcome
from postroom.dropins.resend.model import ListedEmail
from postroom.errors import (
    AccessError,
    BadInput,
    IdempotencyConflict,
    KeyExpired,
    NotFoundError,
    PostroomError,
    ScopeMissing,
    Unauthenticated,
)
from postroom.limits.errors import QuotaExceeded, RateExceeded
from postroom.mail.compose import message_domain_of
from postroom.post.address import Address
from postroom.post.message_id import make_message_id, room_keys
from postroom.runtime.endpoint import Answer, ProtocolError
from postroom.settings import Settings

_EVENTS = {
    DeliveryState.SENDING: "queued",
    DeliveryState.SENT: "sent",
    DeliveryState.DEAD_LETTER: "failed",
    DeliveryState.CANCELLED: "canceled",
    DeliveryState.SUPPRESSED: "suppressed",
}


_NO_KEY = (401, "missing_api_key", "There is no API key in the Authorization header.")
_INVALID_KEY = (403, "invalid_api_key", "The API key is not valid.")
_NO_DATABASE = (503, "application_error", "The database is not reachable. Retry the request.")
_NAMES: dict[type, tuple[int, str]] = {
    ScopeMissing: (401, "restricted_api_key"),
    IdempotencyConflict: (409, "invalid_idempotent_request"),
    NotFoundError: (404, "not_found"),
    WrongState: (422, "validation_error"),
    KeyExpired: (401, "invalid_api_key"),
    RateExceeded: (429, "rate_limit_exceeded"),
    QuotaExceeded: (429, "daily_quota_exceeded"),
    AccessError: (403, "validation_error"),
}


_OTHER = "Postroom does not have this endpoint of Resend. It has /emails, /emails/batch and /emails/{id}."
_STATUSES = {
    HTTPStatus.NOT_FOUND: "not_found",
    HTTPStatus.METHOD_NOT_ALLOWED: "method_not_allowed",
}


class ResendError(msgspec.Struct, frozen=True, rename="camel"):
    """The reason why a request was rejected."""

    status_code: int
    name: str
    message: str


class ResendEmailId(msgspec.Struct, frozen=True):
    """The id of a mail that was taken."""

    id: str


class BatchError(msgspec.Struct, frozen=True):
    """One mail of a batch that was not taken, by its place."""

    index: int
    message: str


class SentBatch(msgspec.Struct, frozen=True, omit_defaults=True):
    """The ids of a batch, and what was left out if the client allows that."""

    data: list[ResendEmailId]
    errors: list[BatchError] | None = None


class Named(msgspec.Struct, frozen=True):
    """A mail after something was done to it."""

    id: str
    object: str = "email"


class EmailTag(msgspec.Struct, frozen=True):
    """A name and a value by which a mail is found."""

    name: str
    value: str


class EmailLine(msgspec.Struct, frozen=True, kw_only=True, rename={"sender": "from"}):
    """One mail of a listing: without its bodies."""

    id: str
    sender: str | None
    to: list[str]
    cc: list[str]
    bcc: list[str]
    reply_to: list[str]
    subject: str | None
    created_at: datetime
    scheduled_at: datetime | None
    last_event: str


class Email(EmailLine, frozen=True, kw_only=True, rename={"sender": "from"}):
    """One mail as clients of Resend read it."""

    object: str = "email"
    message_id: str | None
    html: str | None
    text: str | None
    tags: list[EmailTag]


class Emails(msgspec.Struct, frozen=True, kw_only=True):
    """A page of mails, newest first. The next page is asked for with the last id as `after`."""

    object: str = "list"
    has_more: bool
    data: list[EmailLine]


def line_of(email: Delivery | ListedEmail, *, now: datetime) -> EmailLine:
    """A line of the listing in Resend's words; the subject of a one-time code stays hidden."""
    event = last_event(email, now=now)
    return EmailLine(
        id=str(email.id),
        sender=_written(email.sender),
        to=_addresses(email, RecipientKind.TO),
        cc=_addresses(email, RecipientKind.CC),
        bcc=_addresses(email, RecipientKind.BCC),
        reply_to=_addresses(email, RecipientKind.REPLY_TO),
        subject=None if email.lane is Lane.AUTH else email.subject,
        created_at=email.created_at,
        scheduled_at=email.next_attempt_at if event == "scheduled" else None,
        last_event=event,
    )


def email_of(delivery: Delivery, settings: Settings, *, now: datetime) -> Email:
    """A delivery in Resend's words. Content with a one-time code stays hidden."""
    is_hidden = delivery.lane is Lane.AUTH
    return Email(
        **msgspec.structs.asdict(line_of(delivery, now=now)),
        message_id=_message_id(delivery, settings),
        html=None if is_hidden else delivery.html,
        text=None if is_hidden else delivery.text,
        tags=[EmailTag(name, value) for name, value in delivery.tags.items()],
    )


def last_event(delivery: Delivery | ListedEmail, *, now: datetime) -> str:
    """Where a delivery stands, in one of Resend's words."""
    if delivery.state in (DeliveryState.QUEUED, DeliveryState.RENDERED):
        if delivery.attempt_count > 0:
            return "delivery_delayed"
        is_ahead = delivery.next_attempt_at is not None and delivery.next_attempt_at > now
        return "scheduled" if is_ahead else "queued"
    if delivery.state is DeliveryState.FAILED:
        was_refused = any(each.outcome is RecipientOutcome.REFUSED for each in delivery.recipients)
        return "bounced" if was_refused else "failed"
    return _EVENTS[delivery.state]


def other_call_refused() -> Answer:
    """The answer to a call that Resend has and Postroom has not."""
    return Answer(ResendError(404, "not_found", _OTHER), 404)


def refusal(error: Exception, *, without_key: bool = False) -> Answer | None:
    """The answer to an error that a client can understand; None for one that is our fault."""
    if isinstance(error, ProtocolError):
        found = (int(error.status), _STATUSES.get(error.status, "validation_error"), error.detail)
    elif type(error) is Unauthenticated:
        found = _NO_KEY if without_key else _INVALID_KEY
    elif isinstance(error, BadInput):
        found = _bad(error)
    elif is_connection_lost(error):
        found = _NO_DATABASE
    else:
        named = next((_NAMES[kind] for kind in type(error).__mro__ if kind in _NAMES), None)
        if named is None:
            return None
        found = (*named, str(error))
    wait = error.retry_after_s if isinstance(error, PostroomError) else None
    return Answer(ResendError(*found), found[0], headers={} if wait is None else {"retry-after": str(wait)})


def _bad(error: BadInput) -> tuple[int, str, str]:
    fields: list[Any] = [each.field for each in error.errors]
    if fields == ["Idempotency-Key"]:
        return 400, "invalid_idempotency_key", error.message
    is_missing = any(each.message == "is required" for each in error.errors)
    return 422, "missing_required_field" if is_missing else "validation_error", error.message


def _message_id(delivery: Delivery, settings: Settings) -> str | None:
    """The caller's own or ours. Without the headers it is unknown which of them the mail carries."""
    if not delivery.has_body:
        return None
    given = {name.lower(): value for name, value in delivery.headers.items()}
    domain, key = (
        message_domain_of(settings.message_domain),
        next(iter(room_keys(settings.secret_keys, settings.schema)), None),
    )
    return given.get("message-id") or make_message_id(delivery.id, delivery.created_at, domain=domain, key=key)


def _written(address: Address | None) -> str | None:
    if address is None:
        return None
    return f"{address.name} <{address.email}>" if address.name else address.email


def _addresses(delivery: Delivery | ListedEmail, kind: RecipientKind) -> list[str]:
    chosen = sorted((each for each in delivery.recipients if each.kind is kind), key=lambda each: each.position)
    return [each.address for each in chosen]
