"""Serialised decisions: within a process at once, between processes after losing a race."""

import asyncio
import threading
from collections.abc import Callable
from dataclasses import replace

import asyncpg
import pytest
from tests.events.conftest import Opener
from tests.support.events import WALLET

from postroom.db.pool import Pool
from postroom.events import Event, EventSession, EventStore
from postroom.events import store as statements
from postroom.events.session import PAGE

COUNT = {"Withdrawn": lambda count, _event: count + 1}
WITHDRAWN = Event.of("Withdrawn", wallet=1)


@pytest.fixture
def long_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the lock timeout of serialised decisions to an hour instead of a second."""
    take_turn = statements.QUERIES["take_turn"]
    assert "'1s'" in take_turn.sql
    patient = replace(take_turn, sql=take_turn.sql.replace("'1s'", "'1h'"))
    monkeypatch.setitem(statements.QUERIES._own, "take_turn", patient)


def overtaken_at_first(database_url: str, times: int = 1) -> Callable[[int], Event]:
    """A decision that another append overtakes the first `times` times."""
    asked = 0

    async def overtake() -> None:
        rival = await asyncpg.connect(database_url)
        await EventSession(rival, "postroom").append(WITHDRAWN)
        await rival.close()

    def decide(count: int) -> Event:
        nonlocal asked
        asked += 1
        if asked <= times:
            thread = threading.Thread(target=lambda: asyncio.run(overtake()))
            thread.start()
            thread.join()
        return Event.of("Withdrawn", {"after": count}, wallet=1)

    return decide


@pytest.mark.usefixtures("long_lines")
async def test_independent_stores_all_succeed(pool: Pool) -> None:
    """Sixteen independent stores decide ten times each by one query: all decisions succeed."""
    stores = [EventStore(pool) for _ in range(16)]
    await asyncio.gather(
        *(store.decide(WALLET, 0, COUNT, lambda _count: WITHDRAWN) for store in stores for _ in range(10))
    )
    assert (await stores[0].project(0, COUNT, WALLET))[0] == 160


@pytest.mark.usefixtures("long_lines")
async def test_loser_of_a_race_waits_for_the_lock(
    store: EventStore, opened: Opener, database_url: str, pool: Pool
) -> None:
    """A decision that lost a race waits for the serialised decision of another process, and reads its event."""
    other = EventStore(pool)
    async with other.in_turn(WALLET) as theirs:
        ours = asyncio.create_task(store.decide(WALLET, 0, COUNT, overtaken_at_first(database_url)))
        watcher = await opened()
        while not await watcher.fetchval("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"):
            assert not ours.done()
        await theirs.append(WITHDRAWN)
    await ours
    events = (await store.read(WALLET)).events
    assert [event.data for event in events] == [{}, {}, {"after": 2}]


async def test_decision_continues_after_the_lock_timeout(store: EventStore, database_url: str, pool: Pool) -> None:
    """A decision continues without the lock after its timeout, and is still correct."""
    async with EventStore(pool).in_turn(WALLET):
        await store.decide(WALLET, 0, COUNT, overtaken_at_first(database_url))
    assert (await store.project(0, COUNT, WALLET))[0] == 2


async def test_projection_of_many_pages_folds_each_event_once(store: EventStore) -> None:
    """More events than a page are each folded once, in order, and the cursor has seen them all."""
    await store.append([Event.of("Withdrawn", {"n": n}, wallet=1) for n in range(2 * PAGE + 1)])
    nothing: list[int] = []
    seen, cursor = await store.project(nothing, {"Withdrawn": lambda seen, event: [*seen, event.data["n"]]}, WALLET)
    assert seen == list(range(2 * PAGE + 1))
    assert (await store.read(WALLET, after=cursor)).events == []
    await store.append(WITHDRAWN)
    assert (await store.project(0, COUNT, WALLET, after=cursor))[0] == 1
