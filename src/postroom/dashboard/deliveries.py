"""Deliveries: the list, one of them, and what can be done to it."""

from http import HTTPStatus
from urllib.parse import urlencode

import msgspec
from starlette.responses import Response

from postroom.dashboard.preview import picture, preview
from postroom.dashboard.visit import OPERATE, Page, Visit, go
from postroom.delivery import service
from postroom.delivery.model import ENDED, WAITING, Delivery, DeliveryFilter, Lane, State
from postroom.delivery.shapes import attempt_shape, delivery_shape, summary_shape
from postroom.errors import BadInput
from postroom.runtime.endpoint import Refused

FILTERS = ("status", "recipient", "template", "source")


async def list_page(visit: Visit) -> Response:
    chosen = {name: visit.asked(name) for name in FILTERS}
    found, cursor = await service.list_deliveries(
        visit.pool,
        DeliveryFilter(
            state=_state(chosen["status"]),
            recipient=chosen["recipient"],
            template_id=chosen["template"],
            source=chosen["source"],
        ),
        cursor=visit.asked("cursor"),
    )
    return visit.page(
        "deliveries.html",
        deliveries=[summary_shape(delivery) for delivery in found],
        chosen=chosen,
        query=urlencode({name: value for name, value in chosen.items() if value}),
        next_cursor=cursor,
        is_first=visit.asked("cursor") is None,
    )


def _state(asked: str | None) -> State | None:
    try:
        return State(asked) if asked else None
    except ValueError:
        raise BadInput.of("status", "is not a status of deliveries") from None


async def show_page(visit: Visit) -> Response:
    delivery = await service.get_delivery(visit.pool, visit.id("delivery_id"))
    attempts = await service.list_attempts(visit.pool, delivery.id)
    shape = delivery_shape(delivery)  # what the API hides is hidden here
    return visit.page(
        "delivery.html",
        delivery=shape,
        attempts=[attempt_shape(attempt) for attempt in attempts],
        custom_data=_json(delivery),
        can=_allowed(delivery),
    )


def _allowed(delivery: Delivery) -> dict[str, bool]:
    """What may be offered; the statements behind it decide once more."""
    is_dead = delivery.state is State.DEAD_LETTER
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


async def preview_page(visit: Visit) -> Response:
    """The HTML body, harmless, for the frame on the delivery's page."""
    delivery = await service.get_delivery(visit.pool, visit.id("delivery_id"))
    if delivery.lane is Lane.AUTH or delivery.html is None:
        raise Refused(HTTPStatus.NOT_FOUND, "There is no HTML to show.")
    inside = {a.content_id: picture(a.content_type, a.content) for a in delivery.attachments if a.content_id}
    return preview(delivery.html, pictures={name: found for name, found in inside.items() if found})


async def cancel(visit: Visit) -> None:
    await service.cancel(visit.pool, visit.id("delivery_id"), actor=visit.actor)


async def retry(visit: Visit) -> None:
    await service.retry(visit.pool, visit.id("delivery_id"), actor=visit.actor)


async def settle(visit: Visit) -> None:
    await service.settle(visit.pool, visit.id("delivery_id"), actor=visit.actor)


async def resend_page(visit: Visit) -> Response:
    visit.need(OPERATE)
    clone = await service.resend(visit.pool, visit.id("delivery_id"), actor=visit.actor)
    return go(f"/deliveries/{clone}?done=resend")


_STEPS = {"cancel": cancel, "retry": retry, "settle": settle}


def step_page(verb: str) -> Page:
    """The page behind a button: take the step, then show the delivery as it stands."""

    async def take(visit: Visit) -> Response:
        visit.need(OPERATE)
        await _STEPS[verb](visit)
        return go(f"/deliveries/{visit.id('delivery_id')}?done={verb}")

    return take
