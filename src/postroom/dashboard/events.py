"""Events: search, one event with the command that appended it, executed commands, and the newest events live."""

from functools import partial
from typing import Any
from urllib.parse import quote

from postroom.dashboard.listing import Filter, ListColumn, columns, pairs
from postroom.dashboard.live import stream_changes
from postroom.dashboard.page import PageRequest, listing, listing_page, page
from postroom.dashboard.views import indented
from postroom.errors import NotFoundError
from postroom.events import EventStore, Place, Query, SequencedEvent, split_tag
from postroom.events.commands import list_commands
from postroom.events.kept import KeptCommand
from postroom.runtime.endpoint import Answer
from postroom.runtime.page import Found

READ = "events:read"
LIVE = "/events/live"

_LONGEST_JSON = 30_000  # a page stays small; the API has all of it
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


def json_block(value: Any, *, longest: int = _LONGEST_JSON) -> str:
    """A JSON value with indentation; a very long one is cut."""
    text = indented(value)
    return text if len(text) <= longest else f"{text[:longest]}\n[… {len(text) - longest} more characters]"


_EVENT = (
    ListColumn("position", "Position", "code", link=lambda event: place_page(event.place)),
    ListColumn("occurred_at", "Occurred", "when"),
    ListColumn("type", "Type", "code", link=lambda event: f"/events?type={quote(event.type, safe='')}"),
    ListColumn("tags", "Tags", "tags", value=tag_links),
    ListColumn("data", "Data", "pairs", value=lambda event: pairs(event.data, is_brief=True)),
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
    ListColumn("data", "Data", "pairs", value=lambda command: pairs(command.data, is_brief=True)),
    ListColumn("result", "Result", "pairs", value=lambda command: pairs(command.result, is_brief=True)),
)


_FILTERS = (
    Filter("type", "Type", placeholder="OrderPlaced"),
    Filter("tag", "Tag", placeholder="order=42"),
    Filter("from", "From", kind="datetime-local"),
    Filter("before", "Before", kind="datetime-local"),
    Filter("or_type", "Or type", is_rare=True),
    Filter("and_tag", "And tag", placeholder="region=north", is_rare=True),
)


async def list_page(request: PageRequest) -> Answer:
    return request.listing(
        "Events",
        _EVENT,
        await _read(request),
        lead="All events of this room, newest first. The facts about deliveries are among them.",
        empty="No event has been appended yet.",
        filters=_FILTERS,
        live=LIVE,
        tabs=_tabs("/events"),
    )


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

    def draw(found: Found[SequencedEvent]) -> dict[str, str]:
        return {"rows": request.rows(_EVENT, found, path="/events", filters=_FILTERS)}

    return stream_changes(request, partial(_read, request), draw)


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


PAGES = (
    listing_page("/events", list_page, scope=READ),
    page(LIVE, live_page, scope=READ, keeps_session=False),
    listing(
        "/events/commands",
        "Commands",
        _COMMAND,
        list_commands,
        scope=READ,
        from_replica=True,
        lead="Requests that were executed once, with their results. A repeated id gets the first result.",
        empty="No command has been executed. An append with an Idempotency-Key is one.",
        tabs=_tabs("/events/commands"),
    ),
    page("/events/transactions/{transaction_id:int}", show_transaction, scope=READ),
    page("/events/{transaction_id:int}/{position:int}", show_page, scope=READ),
)
