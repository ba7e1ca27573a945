"""Deliveries: the list, one delivery, and the actions on it."""

import re
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any

from postroom.dashboard.edit import is_editable
from postroom.dashboard.listing import Filter, PageAction, options_of, query_with
from postroom.dashboard.page import OPERATE, PageRequest
from postroom.dashboard.preview import picture, preview
from postroom.dashboard.timeline import read_timeline
from postroom.dashboard.views import indented
from postroom.delivery import service
from postroom.delivery.check import parse_tag
from postroom.delivery.mass.model import MassKind
from postroom.delivery.model import ENDED, WAITING, Channel, Delivery, DeliveryFilter, DeliveryState, Lane
from postroom.delivery.shapes import delivery_shape, summary_shape
from postroom.errors import BadInput
from postroom.limits.service import find_hold
from postroom.runtime.endpoint import Answer, ProtocolError

_ADDRESS = re.compile(r"[^@\s]+@[^@\s]+\.[^@\s.]{2,}")

MASS = "/deliveries/mass-actions"

RELATED = 5
"""Other deliveries to the same person that are shown."""


async def list_page(request: PageRequest) -> Answer:
    filters = filters_of(request)
    found, cursor = await service.list_deliveries(request.pool, chosen_of(request), cursor=request.asked("cursor"))
    found = await request.contents.fill_subjects(found)
    return request.page(
        "deliveries.html",
        deliveries=[summary_shape(delivery) for delivery in found],
        filters=filters,
        query=query_with(filters),
        next_cursor=cursor,
        is_first=request.asked("cursor") is None,
        mass_actions=_mass_actions(query_with(filters)),
        actions=[PageAction(label="New mail", path="/deliveries/new", scope="deliveries:write", is_link=True)],
    )


def _mass_actions(query: str) -> list[PageAction]:
    """The buttons that change all deliveries of the filter."""
    return [
        PageAction(
            label=f"{each.value.capitalize()}…", path=f"{MASS}/new?kind={each}&{query}", scope=OPERATE, is_link=True
        )
        for each in MassKind
    ]


def chosen_of(request: PageRequest) -> DeliveryFilter:
    """The filter in the address. A recipient that is not a whole address is searched as a part of one."""
    asked = request.asked
    recipient = asked("recipient")
    is_whole = recipient is not None and _ADDRESS.fullmatch(recipient) is not None
    return DeliveryFilter(
        state=_state(asked("status")),
        recipient=recipient if is_whole else None,
        recipient_contains=None if is_whole else recipient,
        recipient_domain=asked("domain"),
        campaign_id=request.number("campaign"),
        sender_account_id=request.number("sender"),
        template_id=asked("template"),
        source=asked("source"),
        tags=parse_tag(asked("tag")),
        idempotency_key=asked("key"),
        message_id=asked("message_id"),
        created_from=request.moment("from"),
        created_before=request.moment("before"),
        reason=asked("reason"),
    )


def filters_of(request: PageRequest) -> list[Filter]:
    asked = request.asked
    return [
        Filter("status", "Status", asked("status"), options_of(DeliveryState)),
        Filter("recipient", "Recipient", asked("recipient"), placeholder="ada@ or ada@example.org"),
        Filter("domain", "Domain", asked("domain"), placeholder="example.org"),
        Filter("source", "Source", asked("source"), placeholder="shop"),
        Filter("template", "Template", asked("template"), is_rare=True),
        Filter("campaign", "Campaign id", asked("campaign"), is_rare=True),
        Filter("sender", "Sender id", asked("sender"), is_rare=True),
        Filter("tag", "Tag", asked("tag"), placeholder="order=4711", is_rare=True),
        Filter("reason", "Reason", asked("reason"), placeholder="max_age", is_rare=True),
        Filter("key", "Idempotency key", asked("key"), is_rare=True),
        Filter("message_id", "Message-ID", asked("message_id"), is_rare=True),
        Filter("from", "Accepted from", asked("from"), kind="datetime-local", is_rare=True),
        Filter("before", "Accepted before", asked("before"), kind="datetime-local", is_rare=True),
    ]


def _state(asked: str | None) -> DeliveryState | None:
    try:
        return DeliveryState(asked) if asked else None
    except ValueError:
        raise BadInput.of("status", "is not a status of deliveries") from None


async def show_page(request: PageRequest) -> Answer:
    delivery = await request.contents.fill(await service.get_delivery(request.pool, request.id("delivery_id")))
    shape = delivery_shape(delivery)  # fields that the API hides are hidden here
    return request.page(
        "delivery.html",
        delivery=shape,
        timeline=await read_timeline(request, delivery),
        related=await _related(request, delivery),
        custom_data=indented(delivery.custom_data) if delivery.custom_data else None,
        can=_allowed(delivery),
        hold=await _find_hold(request, delivery),
    )


async def _find_hold(request: PageRequest, delivery: Delivery) -> str | None:
    """Why a due mail waits for the limits of the room."""
    is_due = delivery.next_attempt_at is not None and delivery.next_attempt_at <= datetime.now(UTC)
    is_mail = delivery.channel is Channel.EMAIL and delivery.state in WAITING
    return await find_hold(request.pool) if is_mail and is_due else None


async def _related(request: PageRequest, delivery: Delivery) -> list[Any]:
    """The newest other deliveries to the same person."""
    if not delivery.recipients:
        return []
    person = DeliveryFilter(recipient=delivery.recipients[0].address)
    found, _more = await service.list_deliveries(request.pool, person, limit=RELATED + 1)
    others = [each for each in found if each.id != delivery.id][:RELATED]
    return [summary_shape(each) for each in await request.contents.fill_subjects(others)]


def _allowed(delivery: Delivery) -> dict[str, bool]:
    """The actions to offer; the statements behind them check the state again."""
    is_dead = delivery.state is DeliveryState.DEAD_LETTER
    return {
        "cancel": delivery.state in WAITING,
        "retry": delivery.state in WAITING,
        "redrive": is_dead,
        "resend": delivery.state in ENDED and delivery.has_body,
        "edit": is_editable(delivery),
        "settle": is_dead and delivery.reason == "ambiguous",
    }


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
