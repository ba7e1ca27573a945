"""Events over HTTP: append, query, where the store ends, and the commands that led to them."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Annotated, Any

import msgspec
from msgspec.structs import asdict

from postroom.errors import BadInput
from postroom.events import (
    AppendCondition,
    Appended,
    Command,
    Cursor,
    Event,
    EventSession,
    EventStore,
    Place,
    Query,
    QueryItem,
    SequencedEvent,
)
from postroom.events.columns import append_columns
from postroom.events.commands import list_commands
from postroom.events.errors import AppendConditionFailed, DuplicateAppend
from postroom.events.kept import KeptCommand
from postroom.events.model import LARGEST, TAG_BYTES, TYPE_LENGTH, Append
from postroom.runtime.endpoint import LARGE, Answer, Call, Endpoint
from postroom.runtime.page import Page, PageQuery, decode_cursor, encode_cursor
from postroom.runtime.record import Moment, Shape, Text

READ = "events:read"
WRITE = "events:write"

PROBLEM = "application/problem+json"
MOST_EVENTS = 1000
MOST_ITEMS = 100

_TYPE = Annotated[str, msgspec.Meta(min_length=1, max_length=TYPE_LENGTH, pattern=r"^[^\x00]*$")]
# The pattern is for readers: what is no tag is told in words, by Query and by check_events.
_TAG = Annotated[
    str,
    msgspec.Meta(
        max_length=TAG_BYTES,
        description="`key=value`.",
        extra_json_schema={"pattern": r"^[^=\x00][^=\x00]*=[^\x00]*$"},
    ),
]
# A cursor grows with the transactions that are open. In a body it may hold two snapshots with five thousand each, more
# than a server has connections; in a query string the protocol ends it at 64 KB, and any figure of ours would be lower.
_PLACE = Annotated[str, msgspec.Meta(description="A cursor of an earlier answer, as it was.")]
_LONG_PLACE = Annotated[str, msgspec.Meta(max_length=200_000, description="A cursor of an earlier answer, as it was.")]
_NAME = Annotated[str, msgspec.Meta(max_length=200, pattern=r"^[^\x00]*$")]
_LIMIT = Annotated[int, msgspec.Meta(ge=1, le=1000, description="How many events the answer holds at most.")]


class ItemShape(Shape, frozen=True, kw_only=True):
    """One of these types (none: any) and all of these tags (none: any)."""

    types: Annotated[list[_TYPE], msgspec.Meta(max_length=MOST_ITEMS)] = msgspec.field(default_factory=list)
    tags: Annotated[list[_TAG], msgspec.Meta(max_length=MOST_ITEMS)] = msgspec.field(default_factory=list)


_QUERY = Annotated[list[ItemShape], msgspec.Meta(min_length=1, max_length=MOST_ITEMS)]


class NewEvent(Shape, frozen=True, kw_only=True):
    """A fact."""

    type: _TYPE
    data: Any = msgspec.field(default_factory=dict)
    tags: Annotated[list[_TAG], msgspec.Meta(max_length=MOST_ITEMS)] = msgspec.field(default_factory=list)
    correlation_id: _NAME | None = None
    causation_id: _NAME | None = None


class ConditionShape(Shape, frozen=True, kw_only=True):
    """Nothing that matches the query was appended beyond what the cursor has seen; without a cursor, ever."""

    query: _QUERY
    after: _LONG_PLACE | None = None


class NewEvents(Shape, frozen=True, kw_only=True):
    """Facts to append, all or none. `idempotency` is a query that nothing may match, ever; it is judged first."""

    events: Annotated[list[NewEvent], msgspec.Meta(min_length=1, max_length=MOST_EVENTS)]
    condition: ConditionShape | None = None
    idempotency: _QUERY | None = None
    occurred_at: Moment | None = None


class AppendedShape(msgspec.Struct, frozen=True, kw_only=True):
    """Where an append ended: whoever has come to this transaction and position has seen all of it.

    `cursor`, after a condition: what to append after next, by the same query.
    """

    position: int
    transaction_id: int
    events_count: int
    cursor: str | None


class CommandsQuery(PageQuery, frozen=True, kw_only=True):
    """Which commands: those of one transaction, or all."""

    transaction_id: Annotated[int, msgspec.Meta(ge=0, le=LARGEST)] | None = None


class EventsQuery(Shape, frozen=True, kw_only=True):
    """Which events: one of the types, all of the tags; both may be repeated. `query` is a whole query in JSON instead.

    `cursor` goes on after an earlier answer. Backwards, the newest come first.
    """

    type: Text | list[Text] | None = None
    tag: Text | list[Text] | None = None
    query: Annotated[str, msgspec.Meta(max_length=8000, description='`[{"types": […], "tags": […]}]`.')] | None = None
    cursor: _PLACE | None = None
    limit: _LIMIT = 100
    backwards: Annotated[str, msgspec.Meta(pattern="^(true|false)$")] = "false"


class EventPage(msgspec.Struct, frozen=True, kw_only=True):
    """Events in order. `cursor` is safe as `after` of a condition; `next_cursor` is there when there is more."""

    items: list[SequencedEvent]
    next_cursor: str | None
    cursor: str


class HeadShape(msgspec.Struct, frozen=True, kw_only=True):
    """The end of the store: the largest position, and the cursor of whoever has seen everything."""

    position: int
    cursor: str


class MatchedShape(msgspec.Struct, frozen=True, kw_only=True):
    """The event that stands in the way."""

    position: int
    type: str
    tags: list[str]


class AppendProblem(msgspec.Struct, frozen=True, kw_only=True):
    """Why nothing was appended (RFC 9457), and which event matched."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    errors: list[dict[str, str]]
    matched: MatchedShape


async def append_events(store: EventStore, call: Call) -> Answer:
    body: NewEvents = call.body
    append = _asked_append(body)
    key = call.headers.get("idempotency-key")
    try:
        if key is None:
            return Answer(_appended(await _append(store, append)), 201)
        append_columns(append)  # what is wrong is told by its name in the body, not in the command
        command = Command("http.append_events", f"{call.source}:{key}", msgspec.to_builtins(body))
        # Once: the condition is the caller's, and does not come true by itself.
        result = await store.execute(command, lambda session: _append_once(session, append), attempts=1)
    except (AppendConditionFailed, DuplicateAppend) as refusal:
        return _refused(refusal)
    return Answer(result.value, 200 if result.replayed else 201)


async def _append_once(session: EventSession, append: Append) -> AppendedShape:
    return _appended(await _append(session, append))


async def _append(store: EventStore | EventSession, append: Append) -> Appended:
    return await store.append(
        append.events, append.condition, idempotency=append.idempotency, occurred_at=append.occurred_at
    )


def _asked_append(body: NewEvents) -> Append:
    return Append(
        tuple(
            Event(event.type, event.data, tuple(event.tags), event.correlation_id, event.causation_id)
            for event in body.events
        ),
        _condition(body.condition),
        _query(body.idempotency, "idempotency") if body.idempotency is not None else None,
        body.occurred_at,
    )


def _appended(appended: Appended) -> AppendedShape:
    cursor = None if appended.cursor is None else str(appended.cursor)
    return AppendedShape(
        position=appended.position,
        transaction_id=appended.transaction_id,
        events_count=appended.events_count,
        cursor=cursor,
    )


async def get_head(store: EventStore, _call: Call) -> Answer:
    head = await store.head()
    return Answer(HeadShape(position=head.position, cursor=str(head.cursor)))


async def list_kept_commands(call: Call) -> Answer:
    return Answer(Page(*await list_commands(call.room.pool, **asdict(call.query))))


async def list_events(store: EventStore, call: Call) -> Answer:
    asked: EventsQuery = call.query
    query = _asked(asked)
    if asked.backwards == "true":
        before = Place(*decode_cursor(asked.cursor, tuple[int, int])) if asked.cursor else None
        found = await store.read(query, limit=asked.limit + 1, backwards=True, before=before)
        events = found.events[: asked.limit]
        more = encode_cursor(*events[-1].place) if len(found.events) > asked.limit else None
        return Answer(EventPage(items=events, next_cursor=more, cursor=str(found.cursor)))
    after = _cursor("cursor", asked.cursor)
    found = await store.read(query, after=after, limit=asked.limit)
    cursor = str(found.cursor)
    is_cut = found.cursor.page is not None
    return Answer(EventPage(items=found.events, next_cursor=cursor if is_cut else None, cursor=cursor))


def _asked(asked: EventsQuery) -> Query:
    if asked.query is None:
        item = QueryItem(_several(asked.type), _several(asked.tag))
        return _checked((item,), lambda field: "type" if ".types" in field else "tag")
    if asked.type is not None or asked.tag is not None:
        raise BadInput.of("query", "cannot be given together with type or tag")
    try:
        items = msgspec.json.decode(asked.query, type=_QUERY)
    except msgspec.MsgspecError as error:
        raise BadInput.of("query", f"is not a query: {error}") from error
    return _query(items, "query")


def _several(given: str | list[str] | None) -> tuple[str, ...]:
    if given is None:
        return ()
    return (given,) if isinstance(given, str) else tuple(given)


def _query(items: list[ItemShape], field: str) -> Query:
    asked = tuple(QueryItem(tuple(item.types), tuple(item.tags)) for item in items)
    return _checked(asked, lambda name: name.replace("query", field, 1))


def _checked(items: tuple[QueryItem, ...], name: Callable[[str], str]) -> Query:
    """What is wrong is told by its name in the request."""
    try:
        return Query(items)
    except BadInput as error:
        raise BadInput([replace(one, field=name(one.field)) for one in error.errors]) from error


def _condition(given: ConditionShape | None) -> AppendCondition | None:
    if given is None:
        return None
    return AppendCondition(_query(given.query, "condition.query"), _cursor("condition.after", given.after))


def _cursor(field: str, text: str | None) -> Cursor | None:
    try:
        return Cursor.parse(text) if text else None
    except BadInput as error:
        raise BadInput.of(field, error.errors[0].message) from error


def _refused(refusal: AppendConditionFailed | DuplicateAppend) -> Answer:
    """A problem like any other, with what matched: whoever decides again wants to see it."""
    problem = AppendProblem(
        type=f"urn:postroom:problem:{refusal.code}",
        title="Conflict",
        status=409,
        detail=refusal.message,
        code=refusal.code,
        errors=[],
        matched=MatchedShape(position=refusal.position, type=refusal.type, tags=list(refusal.tags)),
    )
    return Answer(problem, 409, PROBLEM)


COMMANDS = Endpoint(
    method="GET",
    path="/v1/commands",
    handler=list_kept_commands,
    summary="Commands that were executed, newest first, with what came of them.",
    scope=READ,
    tag="events",
    query=CommandsQuery,
    answers={200: Page[KeptCommand]},
)


def endpoints(store: EventStore) -> list[Endpoint]:
    """One store for all calls: appends of one moment share a commit."""
    return [
        COMMANDS,
        Endpoint(
            method="GET",
            path="/v1/events",
            handler=partial(list_events, store),
            summary="Events that match, in order; newest first with backwards=true.",
            scope=READ,
            tag="events",
            query=EventsQuery,
            answers={200: EventPage},
            problems=(409,),
        ),
        Endpoint(
            method="POST",
            path="/v1/events",
            handler=partial(append_events, store),
            summary="Append events, all or none, if nothing forbids it; 409 says what matched.",
            scope=WRITE,
            tag="events",
            body=NewEvents,
            most_body=LARGE,
            answers={200: AppendedShape, 201: AppendedShape},
            problems=(409,),
            idempotent=True,
        ),
        Endpoint(
            method="GET",
            path="/v1/events/head",
            handler=partial(get_head, store),
            summary="Where the store ends.",
            scope=READ,
            tag="events",
            answers={200: HeadShape},
        ),
    ]
