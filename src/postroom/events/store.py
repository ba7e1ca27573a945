"""One function per statement of `queries.sql`, with the same name. Rows become models only here."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import starmap
from typing import Any

import asyncpg
import msgspec

from postroom.db.queries import Connection, Statement, column, columns, load
from postroom.events.errors import EventUnreadable
from postroom.events.kept import AuditEntry, KeptCommand
from postroom.events.model import NOTHING_SEEN, Cursor, Head, Place, Query, SequencedEvent

QUERIES = load("postroom.events")

_UNREADABLE = (msgspec.MsgspecError, RecursionError)
_decode = msgspec.json.Decoder().decode
_decode_page = msgspec.json.Decoder(
    list[tuple[int, int, datetime, str, tuple[str, ...], Any, str | None, str | None]]
).decode


@dataclass(frozen=True, slots=True)
class CommandRow:
    """The stored result of a command."""

    result: Any
    transaction_id: int
    position: int | None
    is_same: bool


@dataclass(frozen=True, slots=True)
class ReadRows:
    """The rows of a read, its snapshot and its transaction."""

    events: list[SequencedEvent]
    until: str
    own: int | None


def _statement(name: str, room: str | None) -> Statement:
    return QUERIES[name] if room is None else QUERIES.in_room(name, room)


def event_of(columns: Sequence[Any]) -> SequencedEvent:
    """The event in these eight columns, whose order is the same in every statement. Raises `EventUnreadable`."""
    # by index and not by name: a page has hundreds of rows
    position, transaction_id, occurred_at, type_, tags, data, correlation_id, causation_id = columns
    try:
        content = _decode(data)
    except _UNREADABLE as error:
        raise EventUnreadable(position, str(error)) from error
    if tags and type(tags[0]) is list:
        raise EventUnreadable(position, "its tags are a list of lists")
    return SequencedEvent(
        position, transaction_id, occurred_at, type_, tuple(tags), content, correlation_id, causation_id
    )


def _reading(rows: Sequence[asyncpg.Record]) -> ReadRows:
    events = [event_of(row[:8]) for row in rows if row[0] is not None]
    return ReadRows(events, rows[0]["until"], rows[0]["own"])


def _beyond(rows: Sequence[asyncpg.Record], position: int, after: str | None) -> str:
    """The cursor after the event at this position and all before it."""
    place = next(Place(row[1], row[0]) for row in rows if row[0] == position)
    seen = NOTHING_SEEN if after is None else Cursor.parse(after)
    return str(seen.advanced(until=rows[0]["until"], own=rows[0]["own"], seen=[place], is_cut=True))


def _audit_entry(row: Mapping[str, Any]) -> AuditEntry:
    plain = {name: row[name] for name in ("id", "at", "actor", "action", "subject")}
    return AuditEntry(**plain, before=_json(row["before"]), after=_json(row["after"]))


def _json(value: str | None) -> Any:
    return None if value is None else _decode(value)


adopt_restored_events = QUERIES["adopt_restored_events"].one_as(column("was_restored", bool))


async def append_events(connection: Connection, *, room: str | None = None, **columns: Any) -> Mapping[str, Any]:
    """The answer of the stored function; on a connection from outside the pool, `room` names the schema."""
    answer: Mapping[str, Any] = _decode((await _statement("append_events", room).one(connection, **columns))["answer"])
    return answer


append_events_each = QUERIES["append_events_each"].many_as(column("answer", _decode))
begin_command = QUERIES["begin_command"].maybe_as(column("id", int))
"""The id of the row, or None if the command was executed before."""
delete_old_facts = QUERIES["delete_old_facts"].one_as(column("deleted", int))
find_command = QUERIES["find_command"].maybe_as(lambda row: CommandRow(**{**row, "result": _json(row["result"])}))


async def find_head(connection: Connection, *, room: str | None = None) -> Head:
    row = await _statement("find_head", room).one(connection)
    return Head(Cursor.parse(row["cursor"]), row["position"] or 0)


async def find_place_at(connection: Connection, *, at: datetime) -> Place | None:
    row = await QUERIES["find_place_at"].maybe(connection, at=at)
    return None if row is None or row["position"] is None else Place(row["transaction_id"], row["position"])


async def find_search_end(connection: Connection, *, room: str | None = None, **values: Any) -> Place | None:
    row = await _statement("find_search_end", room).maybe(connection, **values)
    return None if row is None else Place(row["transaction_id"], row["position"])


finish_command = QUERIES["finish_command"].one_as(columns("transaction_id", "position"))
"""The transaction, and the last position it has written."""
forget_follower = QUERIES["forget_follower"].exec
index_event_tags = QUERIES["index_event_tags"].exec
list_audit = QUERIES["list_audit"].search_as(_audit_entry)
list_commands = QUERIES["list_commands"].many_as(
    lambda row: KeptCommand(**{**row, **{name: _json(row[name]) for name in ("data", "metadata", "result")}})
)


async def read_events(
    connection: Connection,
    *,
    query: str,
    after: str | None,
    page_limit: int | None,
    is_settled: bool,
    room: str | None = None,
) -> ReadRows:
    """One event more than the limit, if it exists."""
    rows = await _statement("read_events", room).many(
        connection, query=query, after=after, page_limit=page_limit, is_settled=is_settled
    )
    try:
        return _reading(rows)
    except EventUnreadable as error:
        raise EventUnreadable(error.position, error.reason, beyond=_beyond(rows, error.position, after)) from error


async def read_events_backwards(connection: Connection, *, room: str | None = None, **values: Any) -> ReadRows:
    return _reading(await _statement("read_events_backwards", room).many(connection, **values))


async def read_tag(connection: Connection, *, tag: str, page_limit: int, room: str | None = None) -> ReadRows:
    """Like `read_events` from the beginning, for one tag."""
    row = await _statement("read_tag", room).one(connection, tag=tag, page_limit=page_limit)
    try:
        events = [] if row["events"] is None else list(starmap(SequencedEvent, _decode_page(row["events"])))
    except _UNREADABLE:  # read_events goes row by row, and finds the unreadable one
        query = Query.of(tags=[tag]).json
        return await read_events(
            connection, query=query, after=None, page_limit=page_limit, is_settled=False, room=room
        )
    return ReadRows(events, row["until"], row["own"])


record_audit = QUERIES["record_audit"].exec
register_follower = QUERIES["register_follower"].one_as(column("id", int))
set_follower_asleep = QUERIES["set_follower_asleep"].exec
take_turn = QUERIES["take_turn"].exec
