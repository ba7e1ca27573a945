"""The records of deliveries, and the rules that need no database."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, NewType

import msgspec

from postroom.post.address import Address
from postroom.post.mime import Attachment
from postroom.senders.model import StartSlot

ClaimId = NewType("ClaimId", int)
DeliveryId = NewType("DeliveryId", int)


class _Text(StrEnum):
    __hash__ = str.__hash__  # that of an enum is Python code, and every mail needs it a dozen times


class Channel(_Text):
    """The channel of a delivery."""

    EMAIL = "email"
    WEBHOOK = "webhook"


class Lane(_Text):
    """A priority: a lane never waits for the one below it."""

    AUTH = "auth"
    TRANSACTIONAL = "transactional"
    BULK = "bulk"


class RecipientKind(_Text):
    """The header of an address. All but `reply_to` receive the message."""

    TO = "to"
    CC = "cc"
    BCC = "bcc"
    REPLY_TO = "reply_to"


class RecipientOutcome(_Text):
    """The outcome of one recipient. `ambiguous`: the content was sent and no reply was recorded."""

    PENDING = "pending"
    DELIVERED = "delivered"
    REFUSED = "refused"
    SUPPRESSED = "suppressed"
    AMBIGUOUS = "ambiguous"


UNSERVED = (RecipientOutcome.PENDING, RecipientOutcome.AMBIGUOUS)
"""Outcomes that the next attempt still addresses."""


class DeliveryState(StrEnum):
    """The state of a delivery. docs/architecture.md has the diagram."""

    QUEUED = "queued"
    RENDERED = "rendered"
    SENDING = "sending"
    SENT = "sent"
    FAILED = "failed"
    DEAD_LETTER = "dead_letter"
    CANCELLED = "cancelled"
    SUPPRESSED = "suppressed"


WAITING = frozenset({DeliveryState.QUEUED, DeliveryState.RENDERED})
ENDED = frozenset(DeliveryState) - WAITING - {DeliveryState.SENDING}

WAITS_FOR: Mapping[str, str] = {
    "time": "It is to leave later.",
    "pause": "Its campaign is paused.",
    "hold": "The last mail to this address bounced for a reason that may pass. Bulk mail to it waits.",
    "relay": "The relay was not reached, or refused the login. It leaves as soon as the relay answers.",
    "retry": "The server asked to try later, or did not answer.",
    "worker": "No worker runs.",
    "quota": "Its sender accounts, or the room, have used their quota of the day. Mail waits until 00:00 UTC.",
    "sender": "No sender account may send now: they are paused, suspended or resting.",
    "turn": "It is due, and leaves after the mail before it.",
}
"""Each answer of the function `waits_for`, as a sentence."""

TRANSITIONS: frozenset[tuple[DeliveryState, DeliveryState]] = frozenset(
    {
        (DeliveryState.QUEUED, DeliveryState.RENDERED),
        (DeliveryState.QUEUED, DeliveryState.SENDING),
        (DeliveryState.QUEUED, DeliveryState.CANCELLED),
        (DeliveryState.QUEUED, DeliveryState.SUPPRESSED),
        (DeliveryState.QUEUED, DeliveryState.FAILED),
        (DeliveryState.RENDERED, DeliveryState.SENDING),
        (DeliveryState.RENDERED, DeliveryState.CANCELLED),
        (DeliveryState.RENDERED, DeliveryState.SUPPRESSED),
        (DeliveryState.SENDING, DeliveryState.QUEUED),
        (DeliveryState.SENDING, DeliveryState.RENDERED),
        (DeliveryState.SENDING, DeliveryState.SENT),
        (DeliveryState.SENDING, DeliveryState.FAILED),
        (DeliveryState.SENDING, DeliveryState.DEAD_LETTER),
        (DeliveryState.SENDING, DeliveryState.CANCELLED),
        (DeliveryState.SENDING, DeliveryState.SUPPRESSED),
        (DeliveryState.DEAD_LETTER, DeliveryState.QUEUED),
        (DeliveryState.DEAD_LETTER, DeliveryState.RENDERED),
        (DeliveryState.DEAD_LETTER, DeliveryState.SENT),
    }
)
"""Every allowed transition; the trigger `deliveries_guard` rejects all others."""


IDEMPOTENCY_TTL = timedelta(days=7)
"""How long a key is remembered by default, as in SQL `send`."""


@dataclass(slots=True, kw_only=True)  # not frozen: that costs 4 µs for 26 fields, in every call of send
class DeliveryRequest:
    """A request for a delivery: content, or a template with its variables."""

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
    max_retries: int | None = None  # after the first attempt; None: as many as the ladder has
    give_up_after: timedelta | None = None  # since the first attempt; None: the ladder's age limit
    traceparent: str | None = None
    endpoint_id: int | None = None  # of a webhook that the outbox posts to an endpoint


class Acceptance(StrEnum):
    """The result of a request: accepted, replayed, or a conflict because its key belongs to another body."""

    ACCEPTED = "accepted"
    REPLAYED = "replayed"
    CONFLICT = "conflict"


class Accepted(msgspec.Struct, frozen=True, gc=False):
    """The answer to one request. `id` and `state` belong to the delivery with its key."""

    id: DeliveryId
    state: DeliveryState
    acceptance: Acceptance

    @property
    def replayed(self) -> bool:
        return self.acceptance is Acceptance.REPLAYED


class Recipient(msgspec.Struct, frozen=True, gc=False):
    """One address of a delivery and its outcome."""

    kind: RecipientKind
    position: int
    address: str
    name: str | None
    outcome: RecipientOutcome
    code: int | None = None
    enhanced: str | None = None
    detail: str | None = None
    held_for: timedelta | None = None  # time that bulk mail to this address waits after a soft bounce

    @property
    def is_first(self) -> bool:
        """True for the recipient that is stored with the delivery."""
        return self.position == 0 and self.kind is RecipientKind.TO

    @property
    def is_open(self) -> bool:
        """True while the next attempt addresses this recipient."""
        return self.kind is not RecipientKind.REPLY_TO and self.outcome in UNSERVED


class Outgoing(msgspec.Struct, frozen=True, kw_only=True):
    """A claimed delivery with everything that an attempt needs; recipients and content are read when it starts."""

    id: DeliveryId
    claim_id: ClaimId
    channel: Channel
    lane: Lane
    ladder: str  # the retry schedule, a name in `retry.LADDERS`
    attempt_no: int
    attempt_base: int  # attempts that are not counted: those before a redrive
    created_at: datetime
    dated_at: datetime  # the Date header, the same at every attempt: first possible start, or last redrive
    expires_at: datetime | None
    traceparent: str | None
    recipients: tuple[Recipient, ...]
    sender: Address | None
    subject: str
    text: str | bytes | None  # bytes: as in `ComposedMessage`
    html: str | bytes | None
    headers: Mapping[str, str]
    attachments: tuple[Attachment, ...]
    is_canonical: bool = False  # text and HTML: see `mail.render.Rendered`
    unsubscribe_url: str | None = None  # the signed link that its content has, for `List-Unsubscribe`
    problem: str | None = None  # the reason why the stored row cannot be sent
    is_stopped: bool = False  # a cancel or a pause covers it since it was claimed
    campaign_id: int | None = None  # the campaign with the content, personalised by `variables`
    template_id: str | None = None  # the template with the content
    template_version_id: int | None = None  # the version it was accepted with; None: the template was unknown
    locale: str | None = None
    variables: Mapping[str, Any] = msgspec.field(default_factory=dict)  # of a template or a campaign
    age: timedelta = timedelta()  # since the first attempt, by the database's clock
    max_retries: int | None = None
    give_up_after: timedelta | None = None
    throttled_by: tuple[int, ...] = ()  # accounts that were throttled with this mail, in order
    sender_account_id: int | None = None  # the sender account; None: the relay of the settings
    slot: StartSlot | None = None  # its start time; None: at once
    idempotency_key: str | None = None  # of a webhook: sent as `X-Idempotency-Key`
    endpoint_id: int | None = None  # of a webhook: the endpoint whose secret signs it and whose URL receives it
    size: int = 0  # bytes of its content, as stored

    @property
    def held_for(self) -> timedelta | None:
        """The time this mail has to wait for recipients on hold; None if it may leave."""
        return max([each.held_for for each in self.recipients if each.held_for is not None], default=None)

    @property
    def open_addresses(self) -> tuple[str, ...]:
        """The recipients of the next attempt, each address once even if it is in To and Cc."""
        if len(self.recipients) == 1:  # nearly every mail, and several readers per attempt
            [only] = self.recipients
            return (only.address,) if only.is_open else ()
        return tuple(dict.fromkeys([each.address for each in self.recipients if each.is_open]))

    @property
    def url(self) -> str:
        """The URL of a webhook; empty if the row has none."""
        return self.recipients[0].address if self.recipients else ""

    @property
    def domain(self) -> str | None:
        """The domain of the first recipient, in lower case."""
        if self.channel is not Channel.EMAIL:
            return None
        for recipient in self.recipients:
            if recipient.kind is not RecipientKind.REPLY_TO:
                return recipient.address.rpartition("@")[2].lower()
        return None


@dataclass(frozen=True, slots=True)
class Attempt:
    """One finished attempt, as stored in the ledger."""

    attempt_no: int
    outcome: str
    transport: str | None
    stage: str | None
    code: int | None
    enhanced_code: str | None
    reply_text: str | None
    remote_host: str | None
    tls: str | None
    started_at: datetime
    finished_at: datetime
    next_attempt_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Outline:
    """The fields that every view of a delivery has."""

    lane: Lane
    channel: Channel
    source: str
    template_id: str | None
    campaign_name: str | None
    subject: str | None
    attempt_count: int
    created_at: datetime
    reason: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter(_Outline):
    """A delivery given up, with the reason. The subject of the lane `auth`, which can contain a code, is hidden."""

    delivery_id: DeliveryId
    reason: str
    detail: str | None
    recipients: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Standing(_Outline):
    """The state of a delivery and its times."""

    id: DeliveryId
    state: DeliveryState
    max_retries: int | None
    give_up_after: timedelta | None
    next_attempt_at: datetime | None
    waits_for: str | None  # why it waits, by the function `waits_for`; None if it does not
    finished_at: datetime | None
    campaign_id: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliverySummary(_Standing):
    """One line of a listing."""

    recipients: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery(_Standing):
    """One delivery in full: the operator's view."""

    dated_at: datetime  # the Date header
    expires_at: datetime | None
    resend_of: DeliveryId | None
    ladder: str
    idempotency_key: str | None
    template_version_id: int | None  # the version it was accepted with; None: no template, or an unknown one
    sender_account_id: int | None  # the account of the last claim
    locale: str | None
    detail: str | None
    traceparent: str | None
    tags: Mapping[str, str]
    custom_data: Mapping[str, Any] | None
    rendered_at: datetime | None
    has_body: bool  # False once retention or an erasure has deleted its content
    sender: Address | None
    text: str | None
    html: str | None
    variables: Mapping[str, Any]
    headers: Mapping[str, str]
    attachments: tuple[Attachment, ...]
    recipients: tuple[Recipient, ...]


@dataclass(frozen=True, slots=True)
class LaneDepth:
    """The queue length of a lane; `waiting`, and `due` of them, are counted up to a limit."""

    lane: Lane
    waiting: int
    oldest_due_at: datetime | None
    due: int


@dataclass(frozen=True, slots=True)
class Recovered:
    """A delivery taken over from a dead worker; ambiguous if it may have been sent."""

    id: DeliveryId
    state: DeliveryState
    is_ambiguous: bool
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Unrendered:
    """A delivery with a template, and everything that its content is rendered from."""

    id: DeliveryId
    template_id: str
    template_version_id: int | None
    locale: str | None
    variables: Mapping[str, Any]
    problem: str | None = None  # the reason why its variables cannot be read
