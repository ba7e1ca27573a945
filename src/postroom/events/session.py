"""Read and append on one connection: the caller's, or one of the pool.

On the caller's connection everything happens in the caller's transaction: appended events become visible when it
commits. Nothing here opens, commits or retries a transaction.
"""

from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from typing import TypeVar

from postroom.db.drivers import async_connection
from postroom.db.faults import translated
from postroom.errors import BadInput
from postroom.events import store
from postroom.events.columns import append_columns, appended
from postroom.events.delivery_facts import is_delivery_tag
from postroom.events.errors import AppendConditionFailed
from postroom.events.model import (
    LARGEST,
    NOTHING_SEEN,
    Append,
    AppendCondition,
    Appended,
    Cursor,
    Event,
    Head,
    Place,
    Query,
    Reading,
)
from postroom.events.projection import Decision, Handlers, Projection, fold
from postroom.events.typed import as_events

State = TypeVar("State")

BEGINNING = Place(0, 0)  # before every event
END = Place(LARGEST, 0)  # after every event
PAGE = 500
"""Events per read of a fold; a page of one tag is returned as a single JSON value, which must stay small."""


class EventSession:
    """The event store on one connection, of any driver that `postroom.send` takes."""

    def __init__(self, connection: object, room: str | None = None) -> None:
        """`room` names the schema; None if it is the connection's search path."""
        self._connection, self._room = async_connection(connection), room

    async def append(
        self,
        events: Event | object | Sequence[Event | object],
        condition: AppendCondition | None = None,
        *,
        idempotency: Query | None = None,
        occurred_at: datetime | None = None,
    ) -> Appended:
        """Append all of these events or none, in this connection's transaction.

        Raises `BadInput`, `DuplicateAppend` if an event matches `idempotency`, and `AppendConditionFailed`; both name
        the event that matched, and leave the transaction usable.
        """
        return await self.append_whole(Append(as_events(events), condition, idempotency, occurred_at))

    async def append_whole(self, append: Append, *, is_patient: bool | None = None) -> Appended:
        """Like `append`. `is_patient` selects the lock timeout; None keeps the caller's."""
        columns = append_columns(append)
        with translated():
            answer = await store.append_events(self._connection, room=self._room, is_patient=is_patient, **columns)
        return appended(answer)

    async def decide(
        self,
        query: Query,
        initial: State,
        handlers: Handlers[State],
        decision: Decision[State],
        *,
        idempotency: Query | None = None,
    ) -> Appended | None:
        """Read, decide, append, in this connection's transaction; see `EventStore.decide`.

        If another append was committed in between, it reads and decides once more. The first append has left the locks
        of the query with this transaction, so no other append can overtake the second one at READ COMMITTED. With a
        snapshot for the whole transaction, PostgreSQL raises a serialization failure instead: repeat the transaction.
        """
        projection = Projection(query, initial, handlers)
        with suppress(AppendConditionFailed):
            return await projection.decide(self, decision, idempotency)
        return await projection.decide(self, decision, idempotency)

    async def follow(self, query: Query, *, after: Cursor | None = None, limit: int = 500) -> Reading:
        """The next events below the oldest open transaction, in order: nothing is skipped or repeated.

        After a cursor of `read` or `head`, it returns nothing until all transactions that were open then have ended.
        """
        return await self._read(query, after, limit, is_settled=True)

    async def head(self) -> Head:
        """The cursor after all visible events."""
        return await store.find_head(self._connection, room=self._room)

    async def place_at(self, moment: datetime | None) -> Place | None:
        """The place of the first event that occurred then or later; the end of the store if all occurred earlier."""
        if moment is None:
            return None
        return await store.find_place_at(self._connection, at=moment) or END

    async def project(
        self, initial: State, handlers: Handlers[State], query: Query, *, after: Cursor | None = None
    ) -> tuple[State, Cursor]:
        """Fold matching events into a state; events without a handler change nothing. The cursor is safe as `after`."""
        reading = await self.read(query, after=after, limit=PAGE)
        state = fold(initial, handlers, reading.events)
        while reading.cursor.page is not None:
            reading = await self.read(query, after=reading.cursor, limit=PAGE)
            state = fold(state, handlers, reading.events)
        return state, reading.cursor

    async def read(
        self,
        query: Query,
        *,
        after: Cursor | None = None,
        limit: int | None = None,
        backwards: bool = False,
        before: Place | None = None,
    ) -> Reading:
        """Read matching events not seen by `after`, oldest first, or newest first and older than `before`.

        The cursor is safe as `after` of an append, whether a limit cut the read or not; with a limit of 0 it has seen
        no more than `after` if any event matches. Backwards, the cursor counts all older events as seen.
        """
        if not backwards:
            return await self._read(query, after, limit, is_settled=False)
        return await self._read_backwards(query, after, limit, before)

    async def search(
        self, query: Query, *, after: Cursor | None, limit: int, before: Place | None, bound: int
    ) -> tuple[Reading, Place | None]:
        """The latest matching events, and the place where the search ended; None if it found them all.

        A query with a tag and other conditions reads at most `bound` events.
        """
        values = {"query": query.json, "bound": bound, **_bounds(before)}
        end = await store.find_search_end(self._connection, room=self._room, **values)
        found = await self._read_backwards(query, after, limit, before, since=end or BEGINNING)
        events = [event for event in found.events if end is None or event.place >= end]
        return Reading(events, found.cursor), end

    async def _read_backwards(
        self, query: Query, after: Cursor | None, limit: int | None, before: Place | None, since: Place | None = None
    ) -> Reading:
        _check_limit(limit)
        with translated():
            rows = await store.read_events_backwards(
                self._connection,
                room=self._room,
                query=query.json,
                after=None if after is None else str(after),
                page_limit=limit,
                since_transaction_id=since.transaction_id if since else None,
                **_bounds(before),
            )
        seen = rows.events[::-1]
        return Reading(rows.events, NOTHING_SEEN.advanced(until=rows.until, own=rows.own, seen=seen, is_cut=False))

    async def _read(self, query: Query, after: Cursor | None, limit: int | None, *, is_settled: bool) -> Reading:
        _check_limit(limit)
        rows = await self._rows(query, after, limit, is_settled=is_settled)
        events = rows.events if limit is None else rows.events[:limit]
        cursor = (after or NOTHING_SEEN).advanced(
            until=rows.until,
            own=rows.own,
            seen=events,
            is_cut=len(events) < len(rows.events),
        )
        return Reading(events, cursor)

    async def _rows(self, query: Query, after: Cursor | None, limit: int | None, *, is_settled: bool) -> store.ReadRows:
        tag = query.only_tag
        is_page = after is None and not is_settled and limit is not None and limit <= PAGE
        if is_page and tag is not None and not is_delivery_tag(tag):
            return await store.read_tag(self._connection, room=self._room, tag=tag, page_limit=limit or 0)
        with translated():
            return await store.read_events(
                self._connection,
                room=self._room,
                query=query.json,
                after=None if after is None else str(after),
                page_limit=limit,
                is_settled=is_settled,
            )


def _bounds(before: Place | None) -> dict[str, int | None]:
    """The parameters of a statement that reads what is older than a place."""
    return {
        "before_transaction_id": before.transaction_id if before else None,
        "before_position": before.position if before else None,
    }


def _check_limit(limit: int | None) -> None:
    if limit is not None and not 0 <= limit < LARGEST:
        raise BadInput.of("limit", "must be between 0 and the largest bigint")
