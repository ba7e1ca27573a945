"""An endpoint, its secrets and what is posted to it. Pure."""

import base64
import secrets
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

import msgspec

from postroom.delivery.model import Address, Channel, DeliveryRequest
from postroom.outbox.publisher import SOURCE, Message
from postroom.runtime.secrets import Sealed

LADDER = "webhook"
PURPOSE = "webhook endpoint secret"
ENDPOINT_HEADER = "Postroom-Endpoint"
MESSAGE_HEADER = "Postroom-Message"
_SECRET_BYTES = 32


class EndpointStatus(StrEnum):
    """Whether anything is posted."""

    ENABLED = "enabled"
    DISABLED = "disabled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where webhooks of some topics go."""

    id: int
    status: EndpointStatus
    created_at: datetime
    updated_at: datetime
    disabled_at: datetime | None
    disabled_reason: str | None
    url: str
    topics: tuple[str, ...]
    description: str
    previous_until: datetime | None
    secret: Sealed = field(repr=False)
    previous: Sealed | None = field(default=None, repr=False)


def new_secret() -> str:
    """A secret as Standard Webhooks writes it."""
    return "whsec_" + base64.b64encode(secrets.token_bytes(_SECRET_BYTES)).decode()


def body_of(message: Message) -> str:
    """The payload of Standard Webhooks."""
    shape = {"type": message.type, "timestamp": message.occurred_at, "data": message.data}
    return msgspec.json.encode(shape).decode()


def request_for(endpoint: Endpoint, topic: str, message: Message) -> DeliveryRequest:
    """The delivery of one event to one endpoint. It needs no key: it is committed with the progress, or not at all."""
    return DeliveryRequest(
        to=(Address(endpoint.url),),
        text=body_of(message),
        headers={ENDPOINT_HEADER: str(endpoint.id), MESSAGE_HEADER: message.id},
        channel=Channel.WEBHOOK,
        ladder=LADDER,
        source=SOURCE,
        tags={"topic": topic, "event": message.type},
        custom_data={"endpoint": endpoint.id, "message": message.id, "position": message.position},
    )
