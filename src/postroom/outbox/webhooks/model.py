"""Webhook endpoints, their secrets, and the deliveries to them. Pure."""

import base64
import re
import secrets
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

import msgspec

from postroom.delivery.model import Attempt, Channel, DeliveryRequest, DeliverySummary
from postroom.events.model import SequencedEvent
from postroom.outbox.cloudevents import CONTENT_TYPE, cloud_event
from postroom.outbox.publisher import SOURCE, Message
from postroom.post.address import Address
from postroom.runtime.secrets import Sealed

LADDER = "webhook"
TEST = "postroom.test"
_HTTP = re.compile(r"HTTP (\d{3})\b")
_SECRET_BYTES = 32  # 24 to 64 (Standard Webhooks)


class EndpointFormat(StrEnum):
    """The envelope in which events are posted."""

    STANDARD = "standard"  # type, timestamp and data, as in Standard Webhooks
    CLOUDEVENTS = "cloudevents"


class EndpointStatus(StrEnum):
    """The status of an endpoint; nothing is posted to a disabled one."""

    ENABLED = "enabled"
    DISABLED = "disabled"


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookEndpoint:
    """A URL that gets the webhooks of some topics. Until `previous_until` the previous secret signs too.

    Postroom posts nothing of its `silent_topics`: the topic does not exist, or its publisher `webhook` is missing,
    paused or failed.
    """

    id: int
    status: EndpointStatus
    created_at: datetime
    updated_at: datetime
    disabled_at: datetime | None
    disabled_reason: str | None
    url: str
    topics: tuple[str, ...]
    description: str
    format: EndpointFormat
    previous_until: datetime | None
    silent_topics: tuple[str, ...] = ()  # the part of `topics` for which no webhooks are made now
    secret: Sealed = field(repr=False)
    previous: Sealed | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class WebhookAnswer:
    """A delivery to an endpoint, and the last attempt to post it."""

    delivery: DeliverySummary
    attempt: Attempt | None

    @property
    def status(self) -> int | None:
        """The HTTP status of the answer; None without an answer. The ledger holds it in the words of the reply."""
        found = _HTTP.match(self.attempt.reply_text or "") if self.attempt else None
        return int(found[1]) if found else None

    @property
    def duration_s(self) -> float | None:
        return None if self.attempt is None else (self.attempt.finished_at - self.attempt.started_at).total_seconds()


def purpose_of(endpoint_id: int) -> str:
    """The associated data of a sealed secret: copied to another endpoint it cannot be opened."""
    return f"secret of webhook endpoint {endpoint_id}"


def new_secret() -> str:
    """A new secret in the format of Standard Webhooks."""
    return "whsec_" + base64.b64encode(secrets.token_bytes(_SECRET_BYTES)).decode()


def body_of(message: Message) -> str:
    """The payload of Standard Webhooks."""
    shape = {"type": message.type, "timestamp": message.occurred_at, "data": message.data}
    return msgspec.json.encode(shape).decode()


def sample_request(endpoint: WebhookEndpoint, *, now: datetime) -> DeliveryRequest:
    """A test of an endpoint, which its receiver recognises by the type `postroom.test`."""
    event = SequencedEvent(0, 0, now, TEST, (), {"endpoint": endpoint.id, "description": endpoint.description})
    return request_for(endpoint, "", Message(f"test_{secrets.token_hex(12)}", event))


def request_for(endpoint: WebhookEndpoint, topic: str, message: Message, *, base_url: str = "") -> DeliveryRequest:
    """The delivery of one event to one endpoint. It has no idempotency key: it is committed with the progress."""
    is_cloud = endpoint.format is EndpointFormat.CLOUDEVENTS
    # The delivery keeps its content type, because the endpoint's format may change before it is posted.
    typed = {"Content-Type": CONTENT_TYPE} if is_cloud else {}
    return DeliveryRequest(
        to=(Address(endpoint.url),),
        text=cloud_event(message, base_url=base_url).decode() if is_cloud else body_of(message),
        headers={"webhook-id": message.id, **typed},
        endpoint_id=endpoint.id,
        channel=Channel.WEBHOOK,
        subject=message.type,  # listings name the event
        ladder=LADDER,
        source=SOURCE,
        tags={"topic": topic, "event": message.type},
        custom_data={"endpoint": endpoint.id, "message": message.id, "position": message.position},
    )
