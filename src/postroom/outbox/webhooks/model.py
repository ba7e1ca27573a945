"""Webhook endpoints, their secrets, and the deliveries to them. Pure."""

import base64
import secrets
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

import msgspec

from postroom.delivery.model import Channel, DeliveryRequest
from postroom.outbox.cloudevents import CONTENT_TYPE, cloud_event
from postroom.outbox.publisher import SOURCE, Message
from postroom.post.address import Address
from postroom.runtime.secrets import Sealed

LADDER = "webhook"
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
        ladder=LADDER,
        source=SOURCE,
        tags={"topic": topic, "event": message.type},
        custom_data={"endpoint": endpoint.id, "message": message.id, "position": message.position},
    )
