"""Events over HTTP: append, query, the head of the store, executed commands; and the audit log, read-only."""

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
    Query,
    QueryItem,
    SequencedEvent,
)
from postroom.events.audit import list_audit
from postroom.events.columns import append_columns
from postroom.events.commands import list_commands
from postroom.events.errors import AppendConditionFailed, DuplicateAppend
from postroom.events.kept import AuditEntry, KeptCommand
from postroom.events.model import LARGEST, TAG_BYTES, TYPE_LENGTH, Append
from postroom.runtime.endpoint import LARGE, PROBLEM, Answer, Call, Endpoint, Problem
from postroom.runtime.page import Page, PageQuery
from postroom.runtime.record import Moment, Shape, Text, answer, request
from postroom.runtime.service_endpoint import serve

READ = "events:read"
WRITE = "events:write"

MOST_EVENTS = 1000  # of one append, which holds the locks of its condition until it is committed
MOST_ITEMS = 100  # of a query, and tags of an event: each is a search of an index, or an entry in it

_TYPE = Annotated[str, msgspec.Meta(min_length=1, max_length=TYPE_LENGTH, pattern=r"^[^\x00]*$")]
# The pattern is for the schema only: Query and check_events reject an invalid tag with a message in words.
_TAG = Annotated[
    str,
    msgspec.Meta(
        max_length=TAG_BYTES,
        description="`key=value`.",
        extra_json_schema={"pattern": r"^[^=\x00][^=\x00]*=[^\x00]*$"},
    ),
]
# A cursor grows with the number of open transactions. In a body it may hold two snapshots of five thousand each, more
# than a server has connections; in a query string the protocol limits it to 64 KB, below any limit of ours.
_PLACE = Annotated[str, msgspec.Meta(description="A cursor of an earlier response, unchanged.")]
_LONG_PLACE = Annotated[
    str, msgspec.Meta(max_length=200_000, description="A cursor of an earlier response, unchanged.")
]
_NAME = Annotated[str, msgspec.Meta(max_length=200, pattern=r"^[^\x00]*$")]
_LIMIT = Annotated[int, msgspec.Meta(ge=1, le=1000, description="Most events in the response.")]


class QueryItemShape(Shape, frozen=True, kw_only=True):
    """Matches events with one of these types (empty: any) and all of these tags (empty: any)."""

    types: Annotated[list[_TYPE], msgspec.Meta(max_length=MOST_ITEMS)] = msgspec.field(default_factory=list)
    tags: Annotated[list[_TAG], msgspec.Meta(max_length=MOST_ITEMS)] = msgspec.field(default_factory=list)


_QUERY = Annotated[list[QueryItemShape], msgspec.Meta(min_length=1, max_length=MOST_ITEMS)]


NewEvent = request(
    Event,
    "NewEvent",
    types={
        "type": _TYPE,
        "tags": Annotated[list[_TAG], msgspec.Meta(max_length=MOST_ITEMS)],
        "correlation_id": _NAME | None,
        "causation_id": _NAME | None,
    },
    doc="An event to append.",
)


class ConditionShape(Shape, frozen=True, kw_only=True):
    """No event that matches the query was appended after the cursor; without a cursor, none exists at all."""

    query: _QUERY
    after: _LONG_PLACE | None = None


class NewEvents(Shape, frozen=True, kw_only=True):
    """Events to append, all or none. `idempotency` is a query that no event may match; it is checked first."""

    events: Annotated[
        list[NewEvent],  # type: ignore[valid-type]  # made by `request`
        msgspec.Meta(min_length=1, max_length=MOST_EVENTS),
    ]
    condition: ConditionShape | None = None
    idempotency: _QUERY | None = None
    occurred_at: Moment | None = None


class AppendedShape(msgspec.Struct, frozen=True, kw_only=True):
    """The transaction and position of the last appended event.

    `cursor`, if there was a condition: the `after` of the next append with the same query.
    """

    position: int
    transaction_id: int
    events_count: int
    cursor: str | None


class CommandsQuery(PageQuery, frozen=True, kw_only=True):
    """Filter of commands: of one transaction, or all."""

    transaction_id: Annotated[int, msgspec.Meta(ge=0, le=LARGEST)] | None = None


class EventsQuery(Shape, frozen=True, kw_only=True):
    """Filter of events: one of the types, all of the tags; both may be repeated. `query` is a whole query in JSON.

    `cursor` continues after an earlier response. Backwards, the newest come first, and a page of several conditions
    searches 5,000 events: it may be empty and have a `next_cursor`.
    """

    type: Text | list[Text] | None = None
    tag: Text | list[Text] | None = None
    query: Annotated[str, msgspec.Meta(max_length=8000, description='`[{"types": […], "tags": […]}]`.')] | None = None
    cursor: _PLACE | None = None
    limit: _LIMIT = 100
    backwards: bool = False


class EventPage(msgspec.Struct, frozen=True, kw_only=True):
    """Events in order. `cursor` is safe as `after` of a condition; `next_cursor` is set if more events may follow."""

    items: list[SequencedEvent]
    next_cursor: str | None
    cursor: str


class HeadShape(msgspec.Struct, frozen=True, kw_only=True):
    """The end of the store: the largest position, and a cursor after all events."""

    position: int
    cursor: str


class MatchedShape(msgspec.Struct, frozen=True, kw_only=True):
    """The event that prevented the append."""

    position: int
    type: str
    tags: list[str]


class AppendProblem(Problem, frozen=True, kw_only=True):
    """The reason why nothing was appended (RFC 9457), and the event that matched."""

    matched: MatchedShape


async def append_events(call: Call) -> Answer:
    store = call.tool(EventStore)
    body: NewEvents = call.body
    append = _asked_append(body)
    key = call.headers.get("idempotency-key")
    try:
        if key is None:
            return Answer(_appended(await _append(store, append)), 201)
        append_columns(append)  # validates here, so that errors name the fields of the body and not of the command
        command = Command("http.append_events", f"{call.source}:{key}", msgspec.to_builtins(body))
        # One attempt: the condition is the caller's, and a retry cannot make it true.
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


def _event(given: Any) -> Event:
    return Event(**{**asdict(given), "tags": tuple(given.tags)})


def _asked_append(body: NewEvents) -> Append:
    return Append(
        tuple(map(_event, body.events)),
        _condition(body.condition),
        _query(body.idempotency, "idempotency") if body.idempotency is not None else None,
        body.occurred_at,
    )


def _appended(appended: Appended) -> AppendedShape:
    cursor = None if appended.cursor is None else str(appended.cursor)
    shape: AppendedShape = answer(AppendedShape, appended, cursor=cursor)
    return shape


async def get_head(call: Call) -> Answer:
    head = await call.tool(EventStore).head()
    return Answer(HeadShape(position=head.position, cursor=str(head.cursor)))


async def list_events(call: Call) -> Answer:
    store = call.tool(EventStore)
    asked: EventsQuery = call.query
    query = _asked(asked)
    if asked.backwards:
        found, more = await store.latest(query, cursor=asked.cursor, limit=asked.limit)
        return Answer(EventPage(items=found.events, next_cursor=more, cursor=str(found.cursor)))
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


def _query(items: list[QueryItemShape], field: str) -> Query:
    asked = tuple(QueryItem(tuple(item.types), tuple(item.tags)) for item in items)
    return _checked(asked, lambda name: name.replace("query", field, 1))


def _checked(items: tuple[QueryItem, ...], name: Callable[[str], str]) -> Query:
    """Build a query; errors name the fields of the request."""
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
    """A problem response with the event that matched, for callers that decide again."""
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


class AuditQuery(PageQuery, frozen=True, kw_only=True):
    """Filter of entries: by actor, action or group of actions, subject and time."""

    actor: Text | None = None
    action: Text | None = None
    subject: Text | None = None
    recorded_from: Moment | None = None
    recorded_before: Moment | None = None


_endpoint = partial(Endpoint, tag="events")

ENDPOINTS = [
    serve(
        "GET", "/v1/commands", list_commands, "List executed commands with their results, newest first.",
        scope=READ, tag="events", query=CommandsQuery, answers={200: Page[KeptCommand]},
    ),
    _endpoint(
        "GET", "/v1/events", list_events, "List matching events in order; newest first with backwards=true.",
        scope=READ, query=EventsQuery, answers={200: EventPage}, problems=(409,),
    ),
    _endpoint(
        "POST", "/v1/events", append_events,
        "Append events, all or none, if the condition holds; 409 names the event that matched.", scope=WRITE,
        body=NewEvents, most_body=LARGE, answers={200: AppendedShape, 201: AppendedShape}, problems=(409,),
        idempotent=True,
    ),
    _endpoint(
        "GET", "/v1/events/head", get_head, "Show the end of the store.", scope=READ, answers={200: HeadShape},
    ),
    serve(
        "GET", "/v1/audit", list_audit,
        "List manual actions, newest first: who did what to which object, and the values before and after.",
        scope="audit:read", tag="audit", query=AuditQuery, from_replica=True, answers={200: Page[AuditEntry]},
    ),
]  # fmt: skip
"""They share one `EventStore`, a tool of the site, so that concurrent appends share a commit."""
