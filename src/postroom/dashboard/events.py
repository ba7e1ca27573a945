"""Events: search, one event with the command that appended it, executed commands, and the newest events live."""

from functools import partial
from typing import Any
from urllib.parse import quote

import msgspec

from postroom.dashboard.listing import Filter, ListColumn, columns
from postroom.dashboard.live import stream_rows
from postroom.dashboard.page import PageRequest, listing_page, page
from postroom.dashboard.views import indented
from postroom.errors import NotFoundError
from postroom.events import EventStore, Place, Query, SequencedEvent, split_tag
from postroom.events.commands import list_commands
from postroom.events.kept import KeptCommand
from postroom.runtime.endpoint import Answer
from postroom.runtime.page import Found

READ = "events:read"
LIVE = "/events/live"

_LONGEST_JSON = 30_000
_LONGEST_LINE = 300
_OF_TRANSACTION = 100
"""Most events of a transaction that its page shows."""

_DELIVERY = "postroom.delivery"


def place_page(place: Place) -> str:
    return f"/events/{place.transaction_id}/{place.position}"


def transaction_page(command: KeptCommand) -> str:
    return f"/events/transactions/{command.transaction_id}"


def tag_links(event: SequencedEvent) -> list[tuple[str, str]]:
    """Each tag and the page it leads to: that of the delivery it names, or the events that have it."""
    return [(tag, _tag_page(tag)) for tag in event.tags]


def _tag_page(tag: str) -> str:
    key, value = split_tag(tag)
    return f"/deliveries/{value}" if key == _DELIVERY and value.isdecimal() else f"/events?tag={quote(tag, safe='')}"


def json_line(value: Any) -> str:
    """The beginning of a JSON value on one line, for tables."""
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= _LONGEST_LINE else text[:_LONGEST_LINE] + "…"


def json_block(value: Any, *, longest: int = _LONGEST_JSON) -> str:
    """A JSON value with indentation; a very long one is cut."""
    text = indented(value)
    return text if len(text) <= longest else f"{text[:longest]}\n[… {len(text) - longest} more characters]"


_EVENT = (
    ListColumn("position", "Position", "code", link=lambda event: place_page(event.place)),
    ListColumn("occurred_at", "Occurred", "when"),
    ListColumn("type", "Type", "code", link=lambda event: f"/events?type={quote(event.type, safe='')}"),
    ListColumn("tags", "Tags", "tags", value=tag_links),
    ListColumn("data", "Data", "clip", value=lambda event: json_line(event.data)),
)

_FACTS = (
    ListColumn("occurred_at", "Occurred", "exact"),
    ListColumn("position", "Position", "code"),
    ListColumn("transaction_id", "Transaction", "code", link=transaction_page),
    ListColumn("correlation_id", "Correlation id", "code"),
    ListColumn("causation_id", "Causation id", "code"),
    ListColumn("tags", "Tags", "tags", value=tag_links),
)

_COMMAND = (
    *columns(KeptCommand, "type", "command_id", "occurred_at", type={"link": transaction_page}),
    ListColumn("data", "Data", "clip", value=lambda command: json_line(command.data)),
    ListColumn("result", "Result", "clip", value=lambda command: json_line(command.result)),
)


async def list_page(request: PageRequest) -> Answer:
    return request.listing(
        "Events",
        _EVENT,
        await _read(request),
        lead="All events of this room, newest first. The facts about deliveries are among them.",
        empty="No event has been appended yet.",
        filters=_filters(request),
        live=LIVE,
        tabs=_tabs("/events"),
    )


def _filters(request: PageRequest) -> list[Filter]:
    return [
        Filter("type", "Type", request.asked("type"), placeholder="OrderPlaced"),
        Filter("tag", "Tag", request.asked("tag"), placeholder="order=42"),
        Filter("from", "From", request.asked("from"), kind="datetime-local"),
        Filter("before", "Before", request.asked("before"), kind="datetime-local"),
        Filter("or_type", "Or type", request.asked("or_type"), is_rare=True),
        Filter("and_tag", "And tag", request.asked("and_tag"), placeholder="region=north", is_rare=True),
    ]


def _tabs(shown: str) -> list[tuple[str, str, bool]]:
    return [(name, path, path == shown) for name, path in (("Events", "/events"), ("Commands", "/events/commands"))]


async def _read(request: PageRequest) -> Found[SequencedEvent]:
    types = [asked for name in ("type", "or_type") if (asked := request.asked(name))]
    tags = [asked for name in ("tag", "and_tag") if (asked := request.asked(name))]
    found, more = await request.call.tool(EventStore).latest(
        Query.of(*types, tags=tags),
        period=(request.moment("from"), request.moment("before")),
        cursor=request.asked("cursor"),
    )
    return found.events, more


async def live_page(request: PageRequest) -> Answer:
    """The stream of the newest events; the filters of the page are in the address."""
    return stream_rows(request, _EVENT, partial(_read, request), path="/events", filters=_filters(request))


async def show_page(request: PageRequest) -> Answer:
    place = Place(request.id("transaction_id"), request.id("position"))
    before = Place(place.transaction_id, place.position + 1)
    found = await request.call.tool(EventStore).read(Query.all(), limit=1, backwards=True, before=before)
    event = next((event for event in found.events if event.place == place), None)
    if event is None:
        raise NotFoundError("There is no event at this place.")
    commands, _more = await list_commands(request.pool, transaction_id=place.transaction_id)
    return request.page(
        "event.html", event=event, facts=_FACTS, data=json_block(event.data), commands=commands, json=json_block
    )


async def show_transaction(request: PageRequest) -> Answer:
    """The commands of a transaction and the events that they appended, oldest first."""
    number = request.id("transaction_id")
    commands, _more = await list_commands(request.pool, transaction_id=number)
    found = await request.call.tool(EventStore).read(
        Query.all(), limit=_OF_TRANSACTION, backwards=True, before=Place(number + 1, 0)
    )
    events = [event for event in reversed(found.events) if event.transaction_id == number]
    if not commands and not events:
        raise NotFoundError("This transaction has no event and no command.")
    return request.page(
        "transaction.html", number=number, commands=commands, events=events, columns=_EVENT, json=json_block
    )


async def commands_page(request: PageRequest) -> Answer:
    return request.listing(
        "Commands",
        _COMMAND,
        await list_commands(request.pool, cursor=request.asked("cursor")),
        lead="Requests that were executed once, with their results. A repeated id gets the first result.",
        empty="No command has been executed. An append with an Idempotency-Key is one.",
        tabs=_tabs("/events/commands"),
    )


PAGES = (
    listing_page("/events", list_page, scope=READ),
    page(LIVE, live_page, scope=READ, keeps_session=False),
    listing_page("/events/commands", commands_page, scope=READ),
    page("/events/transactions/{transaction_id:int}", show_transaction, scope=READ),
    page("/events/{transaction_id:int}/{position:int}", show_page, scope=READ),
)
