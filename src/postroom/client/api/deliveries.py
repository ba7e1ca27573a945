"""The endpoints of deliveries, and their types.

Generated from the table of endpoints by `./dev docs`: do not edit.
"""

from __future__ import annotations  # evaluated when an endpoint is first called

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct, field

from postroom.client.api.shared import Channel, DeliveryState, Lane, StateFilter
from postroom.client.calls import Kind, Resource, ResultPage, call, listing

if TYPE_CHECKING:
    RecipientKind = Literal["bcc", "cc", "reply_to", "to"]
    RecipientOutcome = Literal["ambiguous", "delivered", "pending", "refused", "suppressed"]
else:  # a newer server may have more values
    RecipientKind = str
    RecipientOutcome = str


class AttachmentBody(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A file in base64; with a `content_id`, an image shown inside the HTML part."""

    filename: str
    content_type: str
    content: str
    content_id: str | None = None


class Accepted(Struct, frozen=True, kw_only=True):
    """The delivery of the request; `replayed` if an earlier request with the same key created it."""

    id: int
    status: str
    replayed: bool


class DeliveryBody(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A delivery: content (`subject` with `text` or `html`), or a `template` with `variables` and `locale`."""

    to: str | Sequence[str]
    cc: str | Sequence[str] = ()
    bcc: str | Sequence[str] = ()
    reply_to: str | Sequence[str] = ()
    from_: str | None = field(name="from", default=None)
    subject: str | None = None
    text: str | None = None
    html: str | None = None
    template: str | None = None
    variables: Mapping[str, Any] = field(default_factory=dict)
    locale: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    attachments: Sequence[AttachmentBody] = ()
    tags: Mapping[str, str] = field(default_factory=dict)
    custom_data: Mapping[str, Any] | None = None
    lane: Lane = "transactional"
    send_at: datetime | None = None
    expires_at: datetime | None = None
    max_retries: int | None = None
    give_up_after: int | None = None


class BatchAnswer(Struct, frozen=True, kw_only=True):
    """One answer per delivery, in the order of the request."""

    items: list[BatchItem]


class BatchItem(Struct, frozen=True, kw_only=True):
    """The answer to one delivery of a batch; a conflict has the status `conflict` and no id."""

    id: int | None
    status: str
    replayed: bool


class DeliverySummary(Struct, frozen=True, kw_only=True):
    """One line of a listing."""

    lane: Lane
    channel: Channel
    source: str
    template: str | None
    campaign_name: str | None
    subject: str | None
    attempt_count: int
    created_at: datetime
    reason: str | None
    id: int
    status: DeliveryState
    max_retries: int | None
    give_up_after: int | None
    next_attempt_at: datetime | None
    waits_for: str | None
    finished_at: datetime | None
    campaign_id: int | None
    recipients: list[str]


class Delivery(Struct, frozen=True, kw_only=True):
    """One delivery in full: the operator's view."""

    lane: Lane
    channel: Channel
    source: str
    template: str | None
    campaign_name: str | None
    subject: str | None
    attempt_count: int
    created_at: datetime
    reason: str | None
    id: int
    status: DeliveryState
    max_retries: int | None
    give_up_after: int | None
    next_attempt_at: datetime | None
    waits_for: str | None
    finished_at: datetime | None
    campaign_id: int | None
    expires_at: datetime | None
    resend_of: int | None
    idempotency_key: str | None
    template_version: int | None
    locale: str | None
    detail: str | None
    traceparent: str | None
    tags: dict[str, str]
    custom_data: dict[str, Any] | None
    rendered_at: datetime | None
    from_: str | None = field(name="from")
    text: str | None
    html: str | None
    headers: dict[str, str]
    attachments: list[Attachment]
    recipients: list[Recipient]
    content_hidden: bool


class Attachment(Struct, frozen=True, kw_only=True):
    """An attached file; with a `content_id`, an image shown inside the HTML part."""

    filename: str
    content_type: str
    content_id: str | None
    size: int


class Recipient(Struct, frozen=True, kw_only=True):
    """One address of a delivery and its outcome."""

    kind: RecipientKind
    address: str
    name: str | None
    outcome: RecipientOutcome
    code: int | None
    enhanced_code: str | None
    detail: str | None


class Attempt(Struct, frozen=True, kw_only=True):
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


class DeliveryStatus(Struct, frozen=True, kw_only=True):
    """The delivery and its state after the operation."""

    id: int
    status: str


class Resent(Struct, frozen=True, kw_only=True):
    """The new delivery, and the one it repeats."""

    id: int
    status: str
    resend_of: int


class DeliveriesApi(Resource[Kind]):
    """The endpoints of deliveries."""

    @call("POST", "/v1/deliveries", body=True, keyed=True)
    def send(
        self,
        *,
        to: str | Sequence[str],
        cc: str | Sequence[str] = (),
        bcc: str | Sequence[str] = (),
        reply_to: str | Sequence[str] = (),
        from_: str | None = None,
        subject: str | None = None,
        text: str | None = None,
        html: str | None = None,
        template: str | None = None,
        variables: Mapping[str, Any] = ...,
        locale: str | None = None,
        headers: Mapping[str, str] = ...,
        attachments: Sequence[AttachmentBody] = (),
        tags: Mapping[str, str] = ...,
        custom_data: Mapping[str, Any] | None = None,
        lane: Lane = "transactional",
        send_at: datetime | None = None,
        expires_at: datetime | None = None,
        max_retries: int | None = None,
        give_up_after: int | None = None,
        idempotency_key: str | None = None,
    ) -> Accepted:
        """Accept a delivery. 202: accepted. 200: an earlier request with this key was."""

    @call("POST", "/v1/deliveries/batch", body=True, keyed=True)
    def send_batch(self, *, deliveries: Sequence[DeliveryBody], idempotency_key: str | None = None) -> BatchAnswer:
        """Accept up to 1000 deliveries in one transaction. One invalid delivery rejects them all."""

    @call("POST", "/v1/login-codes", body=True, keyed=True)
    def send_login_code(
        self,
        *,
        email: str,
        code: str,
        locale: str | None = None,
        expires_in: int = 600,
        variables: Mapping[str, Any] = ...,
        idempotency_key: str | None = None,
    ) -> Accepted:
        """Send a one-time code in the auth lane. It is cancelled when the code expires."""

    @listing("/v1/deliveries")
    def list(
        self,
        *,
        status: StateFilter | None = None,
        lane: Lane | None = None,
        recipient: str | None = None,
        recipient_contains: str | None = None,
        recipient_domain: str | None = None,
        template: str | None = None,
        source: str | None = None,
        idempotency_key: str | None = None,
        message_id: str | None = None,
        tag: str | None = None,
        campaign_id: int | None = None,
        campaign: str | None = None,
        sender_account_id: int | None = None,
        created_from: datetime | None = None,
        created_before: datetime | None = None,
        finished_before: datetime | None = None,
        reason: str | None = None,
        custom_data: str | None = None,
        cursor: str | None = None,
        limit: int = 50,
    ) -> ResultPage[DeliverySummary]:
        """List deliveries, newest first."""

    @call("GET", "/v1/deliveries/{delivery_id}")
    def get(self, delivery_id: int) -> Delivery:
        """Show a delivery: its state, the outcome of each recipient, and its content."""

    @listing("/v1/deliveries/{delivery_id}/attempts")
    def list_attempts(self, delivery_id: int) -> ResultPage[Attempt]:
        """List the attempts of a delivery and the reply to each."""

    @call("POST", "/v1/deliveries/{delivery_id}/cancel")
    def cancel(self, delivery_id: int) -> DeliveryStatus:
        """Cancel a waiting delivery."""

    @call("POST", "/v1/deliveries/{delivery_id}/retry")
    def retry(self, delivery_id: int) -> DeliveryStatus:
        """Retry now; a dead letter returns to the queue first."""

    @call("POST", "/v1/deliveries/{delivery_id}/resend")
    def resend(self, delivery_id: int) -> Resent:
        """Send the same content again as a new delivery."""
