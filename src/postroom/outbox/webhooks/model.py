"""An endpoint, its secrets and what is posted to it. Pure."""

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
_SECRET_BYTES = 32


class EndpointFormat(StrEnum):
    """In which envelope an event is posted."""

    STANDARD = "standard"  # type, timestamp and data, as Standard Webhooks has it
    CLOUDEVENTS = "cloudevents"


class EndpointStatus(StrEnum):
    """Whether anything is posted."""

    ENABLED = "enabled"
    DISABLED = "disabled"


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookEndpoint:
    """An endpoint: where webhooks of some topics go. Until `previous_until` the secret before it signs too.

    Postroom posts nothing of its `silent_topics`: there is no such topic, or its publisher `webhook` is missing, paused
    or failed.
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
    silent_topics: tuple[str, ...] = ()  # of `topics`: those that no webhook is made of now
    secret: Sealed = field(repr=False)
    previous: Sealed | None = field(default=None, repr=False)


def purpose_of(endpoint_id: int) -> str:
    """The associated data of a sealed secret: copied to another endpoint it does not open."""
    return f"secret of webhook endpoint {endpoint_id}"


def new_secret() -> str:
    """A secret as Standard Webhooks writes it."""
    return "whsec_" + base64.b64encode(secrets.token_bytes(_SECRET_BYTES)).decode()


def body_of(message: Message) -> str:
    """The payload of Standard Webhooks."""
    shape = {"type": message.type, "timestamp": message.occurred_at, "data": message.data}
    return msgspec.json.encode(shape).decode()


def request_for(endpoint: WebhookEndpoint, topic: str, message: Message, *, base_url: str = "") -> DeliveryRequest:
    """The delivery of one event to one endpoint. It needs no key: it is committed with the progress, or not at all."""
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
