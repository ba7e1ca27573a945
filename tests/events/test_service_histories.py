"""Random concurrent histories, compared with a serial execution.

A conditional append that succeeded asserts that every matching event it has not seen comes after it. All these
assertions together must allow one order of all appends. If they form a cycle, two decisions were made without seeing
each other, and one of them was lost.
"""

import asyncio
from dataclasses import dataclass, field, replace
from graphlib import CycleError, TopologicalSorter
from typing import TypeAlias
from uuid import uuid4

import asyncpg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.events.conftest import Opener
from tests.support.events import LEVELS

from postroom.db.pool import Pool
from postroom.events import (
    AppendCondition,
    Appended,
    CombiningWriter,
    Cursor,
    Event,
    EventSession,
    EventStore,
    Query,
    QueryItem,
)
from postroom.events.errors import AppendConditionFailed, DuplicateAppend

Refusal: TypeAlias = AppendConditionFailed | DuplicateAppend

TYPES = st.sampled_from(["A", "B"])
TAGS = st.sampled_from(["t=1", "t=2", "u=1"])
ITEMS = st.builds(
    QueryItem,
    st.lists(TYPES, max_size=2, unique=True).map(tuple),
    st.lists(TAGS, max_size=2, unique=True).map(tuple),
)
QUERIES = st.lists(ITEMS, min_size=1, max_size=2).map(lambda items: Query(tuple(items)))
EVENTS = st.builds(Event, TYPES, st.just({}), st.lists(TAGS, max_size=3, unique=True).map(tuple))


@dataclass(frozen=True)
class Step:
    """Read by a query, wait, append."""

    query: Query
    events: list[Event]
    level: str
    is_conditional: bool
    is_idempotent: bool
    reads_inside: bool
    dawdle: int

    @property
    def idempotency(self) -> Query | None:
        return self.query if self.is_idempotent and not self.is_conditional else None


@dataclass
class History:
    """The appends that succeeded with the events each had seen, and the rejected ones."""

    writes: dict[int, list[tuple[int, Event]]] = field(default_factory=dict)
    seen: dict[int, tuple[Query, set[int]]] = field(default_factory=dict)
    refused: list[tuple[Query, set[int], Refusal]] = field(default_factory=list)
    number: int = 0

    def lost(self, step: Step, seen: set[int], refusal: Refusal) -> None:
        """Check a condition against the events not seen, a duplicate against all."""
        self.refused.append((step.query, seen if isinstance(refusal, AppendConditionFailed) else set(), refusal))

    def won(self, step: Step, seen: set[int], positions: list[int]) -> None:
        self.number += 1
        self.writes[self.number] = list(zip(positions, step.events, strict=True))
        if step.is_conditional:
            self.seen[self.number] = (step.query, seen)
        elif step.is_idempotent:
            self.seen[self.number] = (step.query, set())

    def is_serializable(self) -> bool:
        """True if a serial order explains the history; every rejection must have a cause."""
        order: TopologicalSorter[int] = TopologicalSorter(dict.fromkeys(self.writes, ()))
        for decision, (query, seen) in self.seen.items():
            for writer, events in self.writes.items():
                matching = {position for position, event in events if query.matches(event.type, event.tags)}
                if writer != decision and matching:
                    assert matching <= seen or not matching & seen, "a part of an append was seen"
                    order.add(decision, writer) if matching <= seen else order.add(writer, decision)
        try:
            order.prepare()
        except CycleError:
            return False
        stored = {position: event for events in self.writes.values() for position, event in events}
        for query, seen, refusal in self.refused:
            assert refusal.position not in seen
            assert refusal.position in stored, "the event that matched was never appended"
            event = stored[refusal.position]
            assert (refusal.type, refusal.tags) == (event.type, event.tags)
            assert query.matches(event.type, event.tags)
        return True


STEPS = st.builds(
    Step, QUERIES, st.lists(EVENTS, min_size=1, max_size=2), st.sampled_from(LEVELS), st.booleans(),
    st.sampled_from([False, False, False, True]), st.booleans(), st.integers(0, 3),
)  # fmt: skip
PLANS = st.lists(st.lists(STEPS, min_size=2, max_size=4), min_size=3, max_size=4)


async def read(session: EventSession | EventStore, query: Query) -> tuple[set[int], Cursor]:
    events, cursor = await session.read(query)
    return {event.position for event in events}, cursor


def marked(events: list[Event]) -> tuple[str, list[Event]]:
    """The same events with a tag to recognise them: the positions of one append may have gaps."""
    mark = uuid4().hex
    return mark, [replace(event, data={"append": mark}) for event in events]


async def positions_of(connection: asyncpg.Connection | Pool, mark: str) -> list[int]:
    rows = await connection.fetch("SELECT position FROM events WHERE data ->> 'append' = $1 ORDER BY position", mark)
    return [row["position"] for row in rows]


async def transact(
    connection: asyncpg.Connection, step: Step, events: list[Event]
) -> tuple[set[int], Appended | Refusal]:
    """The events that the step had seen, and the result of its append."""
    session = EventSession(connection)
    seen, cursor = await read(session, step.query)
    async with connection.transaction(isolation=step.level):
        if step.reads_inside:
            seen, cursor = await read(session, step.query)
        for _ in range(step.dawdle):
            await connection.execute("SELECT 1")
        condition = AppendCondition(step.query, cursor) if step.is_conditional else None
        try:
            appended = await session.append(events, condition, idempotency=step.idempotency)
        except (AppendConditionFailed, DuplicateAppend) as refusal:
            return seen, refusal
        for _ in range(step.dawdle):
            await connection.execute("SELECT 1")
    return seen, appended


async def take(connection: asyncpg.Connection, step: Step, history: History) -> None:
    """Run one step; a serialization failure counts as not tried."""
    mark, events = marked(step.events)
    try:
        seen, result = await transact(connection, step, events)
    except asyncpg.SerializationError:
        return
    if isinstance(result, Appended):
        history.won(step, seen, await positions_of(connection, mark))
    else:
        history.lost(step, seen, result)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(plans=PLANS)
async def test_every_history_is_serializable(
    opened: Opener, pool: Pool, connections: list[asyncpg.Connection], plans: list[list[Step]]
) -> None:
    """With all isolation levels mixed, no decision is lost and every rejection has a cause."""
    await pool.execute("TRUNCATE events, event_tags")
    history = History()

    async def work(connection: asyncpg.Connection, plan: list[Step]) -> None:
        for step in plan:
            await take(connection, step, history)

    await asyncio.gather(*map(work, connections, plans))
    assert history.is_serializable()


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(plans=PLANS)
async def test_combined_appends_are_checked_separately(pool: Pool, store: EventStore, plans: list[list[Step]]) -> None:
    """Appends of two writers that share commits follow the same rule."""
    await pool.execute("TRUNCATE events, event_tags")
    history, writers = History(), [CombiningWriter(pool), CombiningWriter(pool)]

    async def work(writer: CombiningWriter, plan: list[Step]) -> None:
        for step in plan:
            mark, events = marked(step.events)
            seen, cursor = await read(store, step.query)
            try:
                condition = AppendCondition(step.query, cursor) if step.is_conditional else None
                await writer.append(events, condition, idempotency=step.idempotency)
            except (AppendConditionFailed, DuplicateAppend) as refusal:
                history.lost(step, seen, refusal)
            else:
                history.won(step, seen, await positions_of(pool, mark))

    await asyncio.gather(*(work(writers[n % 2], plan) for n, plan in enumerate(plans)))
    assert history.is_serializable()


STEP = Step(
    query=Query.of(tags=["t=1"]),
    events=[Event("A", {}, ("t=1",))],
    level="read_committed",
    is_conditional=True,
    is_idempotent=False,
    reads_inside=False,
    dawdle=0,
)


def test_check_detects_a_lost_decision() -> None:
    """The check detects two decisions that did not see each other."""
    history = History()
    history.won(STEP, set(), [1])
    history.won(STEP, set(), [2])
    assert not history.is_serializable()


@pytest.mark.parametrize(
    "refusal",
    [
        DuplicateAppend(2, "A", ("t=1",)),
        DuplicateAppend(1, "A", ("t=2",)),
        DuplicateAppend(1, "A", ()),
        AppendConditionFailed(1, "A", ()),
    ],
)
def test_check_detects_a_rejection_without_cause(refusal: Refusal) -> None:
    """A rejection by an event that does not exist, differs or does not match is detected."""
    history, untagged = History(), replace(STEP, events=[Event("A", {}, ())])
    history.won(untagged, set(), [1])
    history.lost(STEP, set(), refusal)
    with pytest.raises(AssertionError):
        assert history.is_serializable()


@pytest.fixture
async def connections(opened: Opener) -> list[asyncpg.Connection]:
    return [await opened() for _ in range(4)]
