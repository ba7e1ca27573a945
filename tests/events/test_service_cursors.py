"""With any kind of read, a cursor returns every event once."""

from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

import asyncpg
import pytest
from asyncpg.transaction import Transaction
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.events.conftest import Opener
from tests.support.events import WALLET

from postroom.db.pool import Pool
from postroom.events import Cursor, Event, EventSession, EventStore, Query, Reading

WRITERS = 3
STEPS = st.lists(
    st.tuples(st.sampled_from(["begin", "append", "commit", "rollback"]), st.integers(0, WRITERS - 1))
    | st.tuples(st.sampled_from(["read", "follow", "read within", "follow within"]), st.sampled_from([1, 2, 500]))
    | st.tuples(st.just("freeze"), st.just(0)),
    max_size=40,
)


class Scene:
    """Overlapping transactions, and a reader that may also use an old snapshot."""

    def __init__(self, store: EventStore, query: Query, connections: list[asyncpg.Connection]) -> None:
        self.store, self.query = store, query
        *self.writers, self.frozen = connections
        self.open: dict[int, Transaction] = {}
        self.long_ago: Transaction | None = None
        self.cursor: Cursor | None = None
        self.seen: Counter[int] = Counter()

    async def take(self, step: str, number: int) -> None:
        if step in ("read", "follow"):
            await self.look(self.store.read if step == "read" else self.store.follow, number)
        elif step == "freeze":
            await self.thaw()
            self.long_ago = self.frozen.transaction(isolation="repeatable_read")
            await self.long_ago.start()
            await self.frozen.fetchval("SELECT 1")  # takes the snapshot
        elif step.endswith("within"):
            if self.long_ago is not None and (self.cursor is None or self.cursor.page is None):
                session = EventSession(self.frozen)
                await self.look(session.read if step.startswith("read") else session.follow, 500)
        else:
            await self.write(step, number)

    async def write(self, step: str, number: int) -> None:
        connection = self.writers[number]
        if step == "append":
            await EventSession(connection).append(Event.of("X", wallet=1))
        elif step == "begin" and number not in self.open:
            self.open[number] = connection.transaction()
            await self.open[number].start()
            await connection.fetchval("SELECT pg_current_xact_id()")
        elif step in ("commit", "rollback") and number in self.open:
            transaction = self.open.pop(number)
            await (transaction.commit() if step == "commit" else transaction.rollback())

    async def look(self, read: Callable[..., Awaitable[Reading]], limit: int) -> bool:
        events, cursor = await read(self.query, after=self.cursor, limit=limit)
        self.cursor = Cursor.parse(str(cursor))
        self.seen.update(event.position for event in events)
        return bool(events) or cursor.page is not None

    async def thaw(self) -> None:
        if self.long_ago is not None:
            await self.long_ago.rollback()
            self.long_ago = None

    async def end(self) -> None:
        await self.thaw()
        for transaction in self.open.values():
            await transaction.commit()
        while await self.look(self.store.follow, 2):
            continue


@pytest.mark.parametrize("query", [WALLET, Query.all(), Query.of("X")], ids=["tag", "all", "type"])
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(steps=STEPS)
async def test_every_event_comes_once(
    pool: Pool, store: EventStore, connections: list[asyncpg.Connection], query: Query, steps: list[tuple[str, int]]
) -> None:
    """Reads and follows in any order, with limits and old snapshots, neither skip nor repeat an event."""
    await pool.execute("TRUNCATE events, event_tags")
    scene = Scene(store, query, connections)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(scene.end)
        for step, number in steps:
            await scene.take(step, number)
    committed = await pool.fetch("SELECT position FROM events")
    assert scene.seen == Counter(row["position"] for row in committed)


async def test_following_after_a_read_repeats_nothing(store: EventStore, opened: Opener) -> None:
    """Following stops at the oldest open transaction, and does not repeat events read beyond it."""
    idle = await opened()
    async with idle.transaction():
        await idle.fetchval("SELECT pg_current_xact_id()")
        await store.append(Event.of("X", wallet=1))
        read, seen = await store.read(WALLET)
        followed, seen = await store.follow(WALLET, after=seen)
        assert (len(read), followed) == (1, [])
        await store.append(Event.of("Y", wallet=1))
    assert [event.type for event in (await store.follow(WALLET, after=seen)).events] == ["Y"]


@pytest.fixture
async def connections(opened: Opener) -> list[asyncpg.Connection]:
    return [await opened() for _ in range(WRITERS + 1)]
