"""`EventStore`: append events if no relevant event was appended since you read.

    wallet = Query.of(tags={"wallet": 1})
    balance, seen = await store.project(0, {"Deposited": lambda total, e: total + e.data["amount"]}, wallet)
    await store.append(Event.of("Withdrawn", {"amount": 5}, wallet=1), AppendCondition(wallet, seen))

or with retries, `decide`.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import datetime
from functools import partial
from typing import TypeVar

from postroom.db.optional_index import make_index
from postroom.db.pool import Pool
from postroom.errors import BadInput
from postroom.events import store
from postroom.events.audit import record_audit
from postroom.events.commands import Command, CommandResult, execute_once
from postroom.events.commands import CommandHandler as Handler
from postroom.events.decider import Decider
from postroom.events.lock_wait import LockWait
from postroom.events.model import (
    Append,
    AppendCondition,
    Appended,
    Cursor,
    Event,
    Head,
    Place,
    Query,
    Reading,
    SequencedEvent,
)
from postroom.events.projection import Decision, Handlers
from postroom.events.retry import ATTEMPTS, retried
from postroom.events.serialize import Serializer, in_turn
from postroom.events.session import EventSession
from postroom.events.typed import as_events
from postroom.events.writer import CombiningWriter
from postroom.runtime.page import EXAMINED, decode_cursor, encode_cursor

State = TypeVar("State")

Period = tuple[datetime | None, datetime | None]
"""From a time on, and before a time; None: without a bound."""

BATCH = 500  # events per statement of a follower: bounds memory, costs few round trips
FEW = 16
"""Appends of at most this many events share a commit with concurrent appends of this process."""


class EventStore:
    """The events of a room. Each method is one transaction, unless it is given the caller's connection."""

    def __init__(self, pool: Pool, *, room: str = "postroom") -> None:
        """`room` names the schema for calls on connections from outside the pool."""
        self._pool, self._room = pool, room
        self._is_adopted = False
        self._turns, self._patience = Serializer(), LockWait(pool)
        self._writer = CombiningWriter(pool, self._patience)

    def on(self, connection: object) -> EventSession:
        """The store on your own connection, of any driver that `postroom.send` takes, in your own transaction."""
        return EventSession(connection, self._room)

    async def append(
        self,
        events: Event | object | Sequence[Event | object],
        condition: AppendCondition | None = None,
        *,
        idempotency: Query | None = None,
        occurred_at: datetime | None = None,
        connection: object | None = None,
    ) -> Appended:
        """Append all of these events or none; committed on return, or with the caller's transaction.

        Concurrent small appends of one process share a commit; each is checked separately. Raises `BadInput`,
        `DuplicateAppend` if an event matches `idempotency`, and `AppendConditionFailed`; both name the event that
        matched. `EventsBusy`, never on the caller's connection: timed out waiting for a lock of an open transaction.
        """
        if connection is not None:
            return await self.on(connection).append(events, condition, idempotency=idempotency, occurred_at=occurred_at)
        await self._adopt()
        if isinstance(events, Sequence) and len(events) > FEW:
            append = Append(as_events(events), condition, idempotency, occurred_at)
            return await self._patience.run(partial(self._append_many, append))
        return await self._writer.append(events, condition, idempotency=idempotency, occurred_at=occurred_at)

    async def decide(
        self,
        query: Query,
        initial: State,
        handlers: Handlers[State],
        decision: Decision[State],
        *,
        idempotency: Query | None = None,
        attempts: int = ATTEMPTS,
    ) -> Appended | None:
        """Read, decide, append; retried if another append wins the race, at most `attempts` times, with random delays.

        `decision` must be pure, because it may run more than once. None or an empty list appends nothing. Its
        exceptions propagate. Decisions by the same query are serialised in this process, and across processes after
        losing once.
        """
        async with self._turns.take(query.json):
            decider = self.decider(query, initial, handlers)
            return await decider.decide(decision, idempotency=idempotency, attempts=attempts)

    def decider(self, query: Query, initial: State, handlers: Handlers[State]) -> Decider[State]:
        """A decider for frequent decisions by this query: it keeps its state and reads only new events."""
        return Decider(self, query, initial, handlers)

    async def execute(self, command: Command, handler: Handler, *, attempts: int = ATTEMPTS) -> CommandResult:
        """Run a command's handler once: a repeated id returns the first result.

        The command, the events of its handler and its result are one transaction. If the same id arrives twice at once,
        one call runs and the other waits for its result. If the handler loses a race or times out waiting for a lock,
        everything is rolled back and run again. Raises `EventsBusy` if the lock stays held.
        """
        once = partial(execute_once, self._pool, command, handler)
        return await retried(lambda: self._patience.run(once), attempts=attempts)

    async def follow(self, query: Query, *, after: Cursor | None = None, limit: int = BATCH) -> Reading:
        """The next events below the oldest open transaction: reading only these never skips an event."""
        async with self._session() as session:
            return await session.follow(query, after=after, limit=limit)

    async def head(self) -> Head:
        """The cursor after all visible events, and the largest visible position."""
        async with self._session() as session:
            return await session.head()

    def in_turn(self, query: Query) -> AbstractAsyncContextManager[EventSession]:
        """A transaction for one decision by this query, serialised across processes; see `serialize.in_turn`."""
        return in_turn(self._pool, query)

    async def latest(
        self,
        query: Query,
        *,
        after: Cursor | None = None,
        cursor: str | None = None,
        limit: int = 50,
        period: Period = (None, None),
        bound: int = EXAMINED,
    ) -> tuple[Reading, str | None]:
        """A page of matching events not seen by `after`, newest first, and the cursor of the next page.

        `period` bounds the time of the first and before the last event, as accurately as events were appended in the
        order in which they occurred. A query with a tag and other conditions reads at most `bound` events, so a page
        may have fewer events than `limit`, even none, and yet a cursor that continues the search.
        """
        async with self._session() as session:
            begin, last = [await session.place_at(moment) for moment in period]
            before = Place(*decode_cursor(cursor, tuple[int, int])) if cursor else last
            found, end = await session.search(query, after=after, limit=limit + 1, before=before, bound=bound)
        events = [event for event in found.events if begin is None or event.place >= begin]
        if len(events) > limit:
            end = events[limit - 1].place
        elif end is not None and begin is not None and end <= begin:
            end = None
        return Reading(events[:limit], found.cursor), None if end is None else encode_cursor(*end)

    async def project(
        self, initial: State, handlers: Handlers[State], query: Query, *, after: Cursor | None = None
    ) -> tuple[State, Cursor]:
        """Fold matching events into a state. With a state and its cursor, only new events are read."""
        async with self._session() as session:
            return await session.project(initial, handlers, query, after=after)

    async def read(
        self,
        query: Query,
        *,
        after: Cursor | None = None,
        limit: int | None = None,
        backwards: bool = False,
        before: Place | None = None,
    ) -> Reading:
        """Read matching events not seen by `after`, and a cursor that is safe as `after`; see `EventSession.read`."""
        async with self._session() as session:
            return await session.read(query, after=after, limit=limit, backwards=backwards, before=before)

    async def stream(
        self, query: Query, *, after: Cursor | None = None, batch: int = BATCH
    ) -> AsyncIterator[SequencedEvent]:
        """All matching events as of the start, fetched batch by batch as the caller consumes them."""
        if batch < 1:
            raise BadInput.of("batch", "must be at least 1")
        cursor, is_cut = after, True
        while is_cut:
            events, cursor = await self.read(query, after=cursor, limit=batch)
            is_cut = cursor.page is not None
            for event in events:
                yield event

    @asynccontextmanager
    async def _session(self) -> AsyncIterator[EventSession]:
        await self._adopt()
        async with self._pool.acquire() as ours:
            yield EventSession(ours)

    async def _append_many(self, append: Append, *, is_patient: bool) -> Appended:
        async with self._pool.acquire() as connection:
            return await EventSession(connection).append_whole(append, is_patient=is_patient)

    async def _adopt(self) -> None:
        if not self._is_adopted:
            await adopt_restored_events(self._pool)
            self._is_adopted = True


async def adopt_restored_events(pool: Pool, *, force: bool = False) -> bool:
    """After a restore into another cluster: begin a new epoch if the ids of the events are ahead. True if it did."""
    async with pool.acquire() as connection:
        return await store.adopt_restored_events(connection, force=force)


async def index_event_tags(pool: Pool, *, actor: str) -> bool:
    """Create the index for `tags @> …` on events, concurrently with appends; False if it exists."""
    made = await make_index(pool, "events_tags_idx", store.index_event_tags)
    if made:
        await record_audit(pool, actor, "event_tags.index", "events")
    return made
