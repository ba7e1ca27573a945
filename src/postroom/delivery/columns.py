"""Requests as columns: the shape in which many of them travel to the database in one statement."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from postroom.delivery.model import Channel, DeliveryRequest, Lane
from postroom.post.address import write_address

_encode = msgspec.json.Encoder(order="deterministic").encode


def _json(value: Any) -> str | None:
    return _encode(value).decode() if value else None


def ladder_of(request: DeliveryRequest) -> str:
    """The retry schedule a request asks for, or the one its channel and lane imply."""
    if request.ladder is not None:
        return request.ladder
    if request.channel is Channel.WEBHOOK:
        return "webhook"
    return "auth" if request.lane is Lane.AUTH else "generic"


def accept_columns(
    requests: Sequence[DeliveryRequest], *, idempotency_ttl: timedelta, now: datetime | None
) -> dict[str, Any]:
    """One list per column; recipients are flat and point to their request by ordinal, counted from one."""
    return {
        "channel": [request.channel.value for request in requests],
        "lane": [request.lane.value for request in requests],
        "source": [request.source for request in requests],
        "idempotency_key": [request.idempotency_key for request in requests],
        "send_at": [request.send_at for request in requests],
        "expires_at": [request.expires_at for request in requests],
        "ladder": [ladder_of(request) for request in requests],
        "max_retries": [request.max_retries for request in requests],
        "give_up_after": [request.give_up_after for request in requests],
        "template_id": [request.template for request in requests],
        "locale": [request.locale for request in requests],
        "variables": [_json(request.variables) for request in requests],
        "from_email": [request.sender.email if request.sender else None for request in requests],
        "from_name": [request.sender.name if request.sender else None for request in requests],
        "subject": [request.subject for request in requests],
        "text_body": [request.text for request in requests],
        "html_body": [request.html for request in requests],
        "headers": [_json(request.headers) for request in requests],
        "attachments": [_json(request.attachments) for request in requests],
        "tags": [_json(request.tags) for request in requests],
        "custom_data": [_json(request.custom_data) for request in requests],
        "traceparent": [request.traceparent for request in requests],
        "endpoint_id": [request.endpoint_id for request in requests],
        **_recipient_columns(requests),
        "idempotency_ttl": idempotency_ttl,
        "now": now,
    }


def accept_values(request: DeliveryRequest, *, idempotency_ttl: timedelta, now: datetime | None) -> dict[str, Any]:
    """One request as values; only its recipients stay columns."""
    columns = accept_columns([request], idempotency_ttl=idempotency_ttl, now=now)
    return {
        name: value[0] if isinstance(value, list) and not name.startswith("recipient_") else value
        for name, value in columns.items()
    }


def send_values(request: DeliveryRequest, *, idempotency_ttl: timedelta) -> dict[str, Any]:
    """One mail as the arguments of SQL `send`."""
    return {
        "to": [write_address(address) for address in request.to],
        "cc": [write_address(address) for address in request.cc],
        "bcc": [write_address(address) for address in request.bcc],
        "reply_to": [write_address(address) for address in request.reply_to],
        "from": write_address(request.sender) if request.sender else None,
        "subject": request.subject,
        "text": request.text,
        "html": request.html,
        "template": request.template,
        "variables": _json(request.variables),
        "locale": request.locale,
        "headers": _json(request.headers),
        "attachments": _json(request.attachments),
        "tags": _json(request.tags),
        "custom_data": _json(request.custom_data),
        "lane": request.lane.value,
        "source": request.source,
        "idempotency_key": request.idempotency_key,
        "idempotency_ttl": idempotency_ttl,
        "send_at": request.send_at,
        "expires_at": request.expires_at,
        "max_retries": request.max_retries,
        "give_up_after": request.give_up_after,
    }


def _recipient_columns(requests: Sequence[DeliveryRequest]) -> Mapping[str, list[Any]]:
    flat = [
        (ordinal, kind, position, address.email, address.name)
        for ordinal, request in enumerate(requests, start=1)
        for kind, addresses in (
            ("to", request.to),
            ("cc", request.cc),
            ("bcc", request.bcc),
            ("reply_to", request.reply_to),
        )
        for position, address in enumerate(addresses)
    ]
    names = ("recipient_ordinal", "recipient_kind", "recipient_position", "recipient_email", "recipient_name")
    return {name: [entry[index] for entry in flat] for index, name in enumerate(names)}
