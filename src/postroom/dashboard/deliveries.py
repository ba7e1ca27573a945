"""Deliveries: the list, one delivery, and the actions on it; and dead letters."""

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from http import HTTPStatus

from postroom.campaigns.service import get_campaign
from postroom.dashboard.delivery_actions import AMBIGUOUS, actions_of, letter_actions
from postroom.dashboard.listing import Filter, ListColumn, PageAction, filters, options_of, query_with
from postroom.dashboard.page import OPERATE, PageRequest, listing_page, page
from postroom.dashboard.preview import preview
from postroom.dashboard.timeline import read_timeline
from postroom.dashboard.views import indented
from postroom.delivery import service
from postroom.delivery.check import parse_tag
from postroom.delivery.dead_letter_api import Reason
from postroom.delivery.filter import DeliveryFilter
from postroom.delivery.mass.model import MassKind
from postroom.delivery.model import WAITS_FOR, Channel, Delivery, DeliveryState, DeliverySummary, Lane
from postroom.delivery.shapes import delivery_shape
from postroom.inbox.model import CODES
from postroom.inbox.reader import decode_text
from postroom.inbox.service import find_captured
from postroom.limits.service import find_hold
from postroom.mail.source import compose_source
from postroom.runtime.endpoint import Answer, ProtocolError
from postroom.senders.errors import SenderNotFound
from postroom.senders.model import SenderAccount
from postroom.senders.service import get_sender

_ADDRESS = re.compile(r"[^@\s]+@[^@\s]+\.[^@\s.]{2,}")

MASS = "/deliveries/mass-actions"

RELATED = 5
"""Other deliveries to the same person that are shown."""

_DELIVERY = (
    ListColumn("id", "Id", "code", link=lambda delivery: f"/deliveries/{delivery.id}"),
    ListColumn("state", "Status", "status"),
    ListColumn("recipients", "Recipient", "recipients"),
    ListColumn("subject", "Subject", "subject"),
    ListColumn("waits_for", "Waits for", "words", is_minor=True),
    ListColumn("lane", "Lane", "words", is_minor=True),
    ListColumn("source", "Source", "word", is_minor=True),
    ListColumn("created_at", "Accepted", "when"),
)


async def list_page(request: PageRequest) -> Answer:
    found, cursor = await service.list_deliveries(request.pool, chosen_of(request), cursor=request.asked("cursor"))
    found = await request.contents.fill_subjects(found)
    rows = request.rows(
        _DELIVERY,
        (found, cursor),
        path="/deliveries",
        filters=FILTERS,
        empty="No delivery has been accepted yet.",
    )
    return request.page(
        "deliveries.html",
        rows=rows,
        filters=request.filters(FILTERS),
        mass_actions=_mass_actions(query_with(request.filters(FILTERS))) if found or cursor else (),
        actions=[PageAction("New mail", "/deliveries/new", "deliveries:write", is_link=True)],
    )


def _mass_actions(query: str) -> list[PageAction]:
    """The buttons that change all deliveries of the filter, after a page that counts them."""
    return [
        PageAction(f"{each.value.capitalize()}…", f"{MASS}/new?kind={each}&{query}", OPERATE, is_link=True)
        for each in MassKind
    ]


FILTERS = filters(
    DeliveryFilter,
    Filter("status", "Status", field="state"),
    Filter("lane", "Lane", is_rare=True),
    Filter("recipient", "Recipient", placeholder="ada@example.org"),
    Filter("domain", "Domain", field="recipient_domain", placeholder="example.org"),
    Filter("source", "Source", placeholder="shop"),
    Filter("template", "Template", field="template_id", is_rare=True),
    Filter("campaign", "Campaign id", field="campaign_id", is_rare=True),
    Filter("sender", "Sender id", field="sender_account_id", is_rare=True),
    Filter("tag", "Tag", field="tags", placeholder="order=4711", is_rare=True),
    Filter("reason", "Reason", placeholder="max_age", is_rare=True),
    Filter("key", "Idempotency key", field="idempotency_key", is_rare=True),
    Filter("message_id", "Message-ID", is_rare=True),
    Filter("from", "Accepted from", field="created_from", is_rare=True),
    Filter("before", "Accepted before", field="created_before", is_rare=True),
)


def chosen_of(request: PageRequest) -> DeliveryFilter:
    """The filter in the address. A recipient that is not a whole address is searched as a part of one."""
    chosen = request.chosen(FILTERS)
    recipient, tag = chosen.pop("recipient"), chosen.pop("tags")
    is_whole = recipient is not None and _ADDRESS.fullmatch(recipient) is not None
    person = {"recipient" if is_whole else "recipient_contains": recipient}
    return DeliveryFilter(**chosen, **person, tags=parse_tag(tag))


async def show_page(request: PageRequest) -> Answer:
    delivery = await request.contents.fill(await service.get_delivery(request.pool, request.id("delivery_id")))
    shape = delivery_shape(delivery)  # fields that the API hides are hidden here
    return request.page(
        "delivery.html",
        delivery=shape,
        timeline=await read_timeline(request, delivery),
        related=await _related(request, delivery),
        captured=await _find_captured(request, delivery),
        custom_data=indented(delivery.custom_data) if delivery.custom_data else None,
        actions=actions_of(delivery),
        is_ambiguous=delivery.state is DeliveryState.DEAD_LETTER and delivery.reason == AMBIGUOUS,
        hold=await _find_hold(request, delivery),
    )


async def _find_hold(request: PageRequest, delivery: Delivery) -> str | None:
    """Why it waits. The limits of the room have a sentence with their numbers."""
    if delivery.waits_for is None:
        return None
    is_limited = delivery.channel is Channel.EMAIL and delivery.waits_for in {"quota", "turn"}
    return (await find_hold(request.pool) if is_limited else None) or WAITS_FOR[delivery.waits_for]


async def _find_captured(request: PageRequest, delivery: Delivery) -> int | None:
    """The message in the inbox, with its source, headers and checks."""
    if not delivery.recipients or not request.may("inbox:read"):
        return None
    recipient = delivery.recipients[0].address
    return await find_captured(request.pool, delivery.id, recipient, sees_codes=request.may(CODES))


async def _related(request: PageRequest, delivery: Delivery) -> Sequence[DeliverySummary]:
    """The newest other deliveries to the same person."""
    if not delivery.recipients:
        return []
    person = DeliveryFilter(recipient=delivery.recipients[0].address)
    found, _more = await service.list_deliveries(request.pool, person, limit=RELATED + 1)
    others = [each for each in found if each.id != delivery.id][:RELATED]
    return await request.contents.fill_subjects(others)


async def preview_page(request: PageRequest) -> Answer:
    """The HTML body, harmless, for the frame on the delivery's page."""
    delivery = await request.contents.fill(await service.get_delivery(request.pool, request.id("delivery_id")))
    if delivery.lane is Lane.AUTH or delivery.html is None:
        raise ProtocolError(HTTPStatus.NOT_FOUND, "There is no HTML to show.")
    return await preview(delivery.html, attached=delivery.attachments)


async def source_page(request: PageRequest) -> Answer:
    """The message with its headers, composed again."""
    delivery = await request.contents.fill(await service.get_delivery(request.pool, request.id("delivery_id")))
    is_mail = delivery.channel is Channel.EMAIL and delivery.lane is not Lane.AUTH
    if not is_mail or (delivery.text is None and delivery.html is None):
        raise ProtocolError(HTTPStatus.NOT_FOUND, "There is no source to show.")
    if delivery.campaign_id is not None:
        letter = (await get_campaign(request.pool, delivery.campaign_id)).plan.letter
        delivery = replace(delivery, sender=letter.sender)
    account = await _find_account(request, delivery)
    try:
        source = decode_text(compose_source(request.call.room.settings, delivery, account))
    except ValueError as error:  # written by SQL: the attempts fail with the same words
        source = f"The message cannot be composed: {error}"
    return request.page("source.html", id=delivery.id, source=source)


async def _find_account(request: PageRequest, delivery: Delivery) -> SenderAccount | None:
    """The sender account of the last attempt, as it is now; None if there was none, or it was deleted since."""
    if delivery.sender_account_id is None:
        return None
    with suppress(SenderNotFound):
        return await get_sender(request.pool, delivery.sender_account_id)
    return None


# ── dead letters ───────────────────────────────────────────────────────────────────────────────────────────────────


_LETTER = (
    ListColumn("delivery_id", "Id", "code", link=lambda letter: f"/deliveries/{letter.delivery_id}"),
    ListColumn("recipients", "Recipient", "recipients"),
    ListColumn("subject", "Subject", "subject"),
    ListColumn("reason", "Reason", "noted", value=lambda letter: (letter.reason.replace("_", " "), letter.detail)),
    ListColumn("source", "Source", "noted", value=lambda letter: (letter.source, letter.lane)),
    ListColumn("attempt_count", "Attempts", "number", is_minor=True),
    ListColumn("created_at", "Given up", "when"),
)

_LETTER_FILTERS = (Filter("reason", "Reason", options=options_of(Reason), type=Reason),)


async def letters_page(request: PageRequest) -> Answer:
    """Counted by reason, and listed. A redrive of many is a mass action: a retry with a filter."""
    chosen = request.chosen(_LETTER_FILTERS)
    found, next_cursor = await service.list_dead_letters(request.pool, **chosen, cursor=request.asked("cursor"))
    counts = await service.count_dead_letters(request.pool)
    rows = request.rows(
        _LETTER,
        (await request.contents.fill_subjects(found), next_cursor),
        path="/dead-letters",
        filters=_LETTER_FILTERS,
        empty="None. Nothing was given up.",
        row_actions=letter_actions,
    )
    return request.page(
        "dead_letters.html",
        rows=rows,
        filters=request.filters(_LETTER_FILTERS),
        by_reason=list(counts.items()),
        is_more=sum(counts.values()) >= service.COUNTED,
        reasons=[known.value for known in Reason],
        reason=request.asked("reason"),
    )


PAGES = (
    listing_page("/dead-letters", letters_page),
    listing_page("/deliveries", list_page),
    page("/deliveries/{delivery_id:int}", show_page),
    page("/deliveries/{delivery_id:int}/preview", preview_page),
    page("/deliveries/{delivery_id:int}/source", source_page),
)
