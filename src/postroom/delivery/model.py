"""What a delivery is, and everything about it that can be decided without a database."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, NewType

ClaimId = NewType("ClaimId", int)
DeliveryId = NewType("DeliveryId", int)


class Channel(StrEnum):
    """How a delivery travels."""

    EMAIL = "email"
    WEBHOOK = "webhook"


class Lane(StrEnum):
    """Who waits for whom: a lane never waits behind the one below it."""

    AUTH = "auth"
    TRANSACTIONAL = "transactional"
    BULK = "bulk"


class RecipientKind(StrEnum):
    """Where in the message an address stands. All but `reply_to` receive it."""

    TO = "to"
    CC = "cc"
    BCC = "bcc"
    REPLY_TO = "reply_to"


class RecipientOutcome(StrEnum):
    """What became of one recipient; `pending` until something has."""

    PENDING = "pending"
    DELIVERED = "delivered"
    REFUSED = "refused"
    SUPPRESSED = "suppressed"


class State(StrEnum):
    """Where a delivery stands. The drawing is in docs/architecture.md."""

    QUEUED = "queued"
    RENDERED = "rendered"
    SENDING = "sending"
    SENT = "sent"
    FAILED = "failed"
    DEAD_LETTER = "dead_letter"
    CANCELLED = "cancelled"
    SUPPRESSED = "suppressed"


WAITING = frozenset({State.QUEUED, State.RENDERED})
ENDED = frozenset({State.SENT, State.FAILED, State.DEAD_LETTER, State.CANCELLED, State.SUPPRESSED})

TRANSITIONS: frozenset[tuple[State, State]] = frozenset(
    {
        (State.QUEUED, State.RENDERED),
        (State.QUEUED, State.SENDING),
        (State.QUEUED, State.CANCELLED),
        (State.QUEUED, State.SUPPRESSED),
        (State.QUEUED, State.FAILED),
        (State.QUEUED, State.DEAD_LETTER),
        (State.RENDERED, State.SENDING),
        (State.RENDERED, State.CANCELLED),
        (State.RENDERED, State.SUPPRESSED),
        (State.RENDERED, State.DEAD_LETTER),
        (State.SENDING, State.QUEUED),
        (State.SENDING, State.RENDERED),
        (State.SENDING, State.SENT),
        (State.SENDING, State.FAILED),
        (State.SENDING, State.DEAD_LETTER),
        (State.SENDING, State.CANCELLED),
        (State.SENDING, State.SUPPRESSED),
        (State.DEAD_LETTER, State.QUEUED),
        (State.DEAD_LETTER, State.RENDERED),
        (State.DEAD_LETTER, State.SENT),
    }
)
"""Every step a delivery may take; the trigger `deliveries_guard` refuses all others."""


@dataclass(frozen=True, slots=True)
class Address:
    """A mailbox and the name shown beside it."""

    email: str
    name: str | None = None


@dataclass(frozen=True, slots=True)
class Attachment:
    """A file carried by the message; with a `content_id`, an image shown inside the HTML part."""

    filename: str
    content_type: str
    content: str  # base64, as it came and as it will leave
    content_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryRequest:
    """What somebody wants delivered: content, or a template with its variables."""

    to: tuple[Address, ...] = ()
    cc: tuple[Address, ...] = ()
    bcc: tuple[Address, ...] = ()
    reply_to: tuple[Address, ...] = ()
    sender: Address | None = None  # the From header; None: the installation's default
    subject: str | None = None
    text: str | None = None
    html: str | None = None
    template: str | None = None
    variables: Mapping[str, Any] = field(default_factory=dict)
    locale: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    attachments: tuple[Attachment, ...] = ()
    tags: Mapping[str, str] = field(default_factory=dict)
    custom_data: Mapping[str, Any] | None = None
    channel: Channel = Channel.EMAIL
    lane: Lane = Lane.TRANSACTIONAL
    source: str = "python"
    idempotency_key: str | None = None
    send_at: datetime | None = None
    expires_at: datetime | None = None
    ladder: str | None = None  # None: the lane's own
    traceparent: str | None = None


class Acceptance(StrEnum):
    """What became of a request: taken, recognised, or refused because its key belongs to another body."""

    ACCEPTED = "accepted"
    REPLAYED = "replayed"
    CONFLICT = "conflict"


@dataclass(frozen=True, slots=True)
class Accepted:
    """The answer to one request. `id` and `state` are those of the delivery that stands."""

    id: DeliveryId
    state: State
    acceptance: Acceptance

    @property
    def replayed(self) -> bool:
        return self.acceptance is Acceptance.REPLAYED


@dataclass(frozen=True, slots=True)
class Recipient:
    """One address of a delivery and what became of it."""

    kind: RecipientKind
    position: int
    address: str
    name: str | None
    outcome: RecipientOutcome
    code: int | None = None
    enhanced: str | None = None
    detail: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outgoing:
    """A claimed delivery with everything an attempt needs."""

    id: DeliveryId
    claim_id: ClaimId
    channel: Channel
    lane: Lane
    ladder: str  # which retry schedule applies, a name in `retry.LADDERS`
    attempt_no: int
    created_at: datetime
    retry_since: datetime  # when this round of attempts began: acceptance, or the last redrive
    expires_at: datetime | None
    traceparent: str | None
    recipients: tuple[Recipient, ...]
    sender: Address | None
    subject: str
    text: str | None
    html: str | None
    headers: Mapping[str, str]
    attachments: tuple[Attachment, ...]
