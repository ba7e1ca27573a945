"""Deliveries: the list, one delivery, and the actions on it."""

from http import HTTPStatus
from urllib.parse import urlencode

import msgspec

from postroom.dashboard.page import PageRequest
from postroom.dashboard.preview import picture, preview
from postroom.delivery import service
from postroom.delivery.check import parse_tag
from postroom.delivery.model import ENDED, WAITING, Delivery, DeliveryFilter, DeliveryState, Lane
from postroom.delivery.shapes import delivery_shape, summary_shape
from postroom.errors import BadInput
from postroom.runtime.endpoint import Answer, ProtocolError

FILTERS = ("status", "recipient", "domain", "template", "source", "tag", "key", "message_id")


async def list_page(request: PageRequest) -> Answer:
    chosen = {name: request.asked(name) for name in FILTERS}
    found, cursor = await service.list_deliveries(
        request.pool,
        DeliveryFilter(
            state=_state(chosen["status"]),
            recipient=chosen["recipient"],
            recipient_domain=chosen["domain"],
            template_id=chosen["template"],
            source=chosen["source"],
            tags=parse_tag(chosen["tag"]),
            idempotency_key=chosen["key"],
            message_id=chosen["message_id"],
        ),
        cursor=request.asked("cursor"),
    )
    found = await request.contents.fill_subjects(found)
    return request.page(
        "deliveries.html",
        deliveries=[summary_shape(delivery) for delivery in found],
        chosen=chosen,
        query=urlencode({name: value for name, value in chosen.items() if value}),
        next_cursor=cursor,
        is_first=request.asked("cursor") is None,
    )


def _state(asked: str | None) -> DeliveryState | None:
    try:
        return DeliveryState(asked) if asked else None
    except ValueError:
        raise BadInput.of("status", "is not a status of deliveries") from None


async def show_page(request: PageRequest) -> Answer:
    delivery = await request.contents.fill(await service.get_delivery(request.pool, request.id("delivery_id")))
    attempts = await service.list_attempts(request.pool, delivery.id)
    shape = delivery_shape(delivery)  # what the API hides is hidden here
    return request.page(
        "delivery.html",
        delivery=shape,
        attempts=attempts,
        custom_data=_json(delivery),
        can=_allowed(delivery),
    )


def _allowed(delivery: Delivery) -> dict[str, bool]:
    """The actions to offer; the statements behind them check the state again."""
    is_dead = delivery.state is DeliveryState.DEAD_LETTER
    return {
        "cancel": delivery.state in WAITING,
        "retry": delivery.state in WAITING,
        "redrive": is_dead,
        "resend": delivery.state in ENDED and delivery.has_body,
        "settle": is_dead and delivery.reason == "ambiguous",
    }


def _json(delivery: Delivery) -> str | None:
    if not delivery.custom_data:
        return None
    return msgspec.json.format(msgspec.json.encode(delivery.custom_data), indent=2).decode()


async def preview_page(request: PageRequest) -> Answer:
    """The HTML body, harmless, for the frame on the delivery's page."""
    delivery = await request.contents.fill(await service.get_delivery(request.pool, request.id("delivery_id")))
    if delivery.lane is Lane.AUTH or delivery.html is None:
        raise ProtocolError(HTTPStatus.NOT_FOUND, "There is no HTML to show.")
    inside = {a.content_id: picture(a.content_type, a.content) for a in delivery.attachments if a.content_id}
    return preview(delivery.html, pictures={name: found for name, found in inside.items() if found})


async def cancel_page(request: PageRequest) -> Answer:
    await service.cancel(request.pool, request.id("delivery_id"), actor=request.actor)
    return _back_to_delivery(request, "The delivery is cancelled.")


async def retry_page(request: PageRequest) -> Answer:
    await service.retry(request.pool, request.id("delivery_id"), actor=request.actor)
    return _back_to_delivery(request, "The delivery is due now.")


async def settle_page(request: PageRequest) -> Answer:
    await service.settle(request.pool, request.id("delivery_id"), actor=request.actor)
    return _back_to_delivery(request, "The delivery counts as sent.")


async def resend_page(request: PageRequest) -> Answer:
    clone = await service.resend(request.pool, request.id("delivery_id"), actor=request.actor)
    return request.done(f"/deliveries/{clone}", "This is a new delivery of the same message.")


def _back_to_delivery(request: PageRequest, sentence: str) -> Answer:
    return request.done(f"/deliveries/{request.id('delivery_id')}", sentence)
