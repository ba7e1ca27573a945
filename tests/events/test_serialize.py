"""Decisions by one query take turns: within a process at once, between processes after being overtaken."""

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
    """Whoever stands in line for a turn does so for an hour, not for a second."""
    take_turn = statements.QUERIES["take_turn"]
    assert "'1s'" in take_turn.sql
    patient = replace(take_turn, sql=take_turn.sql.replace("'1s'", "'1h'"))
    monkeypatch.setitem(statements.QUERIES._own, "take_turn", patient)


def overtaken_at_first(database_url: str, times: int = 1) -> Callable[[int], Event]:
    """A decision during which somebody else appends, the first so many times it is asked."""
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
async def test_stores_apart_all_get_on(pool: Pool) -> None:
    """Sixteen stores that know nothing of each other decide by one query, ten times each: nobody gives up."""
    stores = [EventStore(pool) for _ in range(16)]
    await asyncio.gather(
        *(store.decide(WALLET, 0, COUNT, lambda _count: WITHDRAWN) for store in stores for _ in range(10))
    )
    assert (await stores[0].project(0, COUNT, WALLET))[0] == 160


@pytest.mark.usefixtures("long_lines")
async def test_whoever_was_overtaken_waits_for_the_turn(
    store: EventStore, opened: Opener, database_url: str, pool: Pool
) -> None:
    """While another process decides in its turn, one that was overtaken stands behind it, and reads what it wrote."""
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


async def test_a_turn_that_does_not_end_holds_nobody_up(store: EventStore, database_url: str, pool: Pool) -> None:
    """Turns are a courtesy: whoever waits too long goes on without, and is right all the same."""
    async with EventStore(pool).in_turn(WALLET):
        await store.decide(WALLET, 0, COUNT, overtaken_at_first(database_url))
    assert (await store.project(0, COUNT, WALLET))[0] == 2


async def test_a_projection_of_many_pages_is_one_view(store: EventStore) -> None:
    """More events than a page holds are folded each once, in order, and the cursor has seen them all."""
    await store.append([Event.of("Withdrawn", {"n": n}, wallet=1) for n in range(2 * PAGE + 1)])
    nothing: list[int] = []
    seen, cursor = await store.project(nothing, {"Withdrawn": lambda seen, event: [*seen, event.data["n"]]}, WALLET)
    assert seen == list(range(2 * PAGE + 1))
    assert (await store.read(WALLET, after=cursor)).events == []
    await store.append(WITHDRAWN)
    assert (await store.project(0, COUNT, WALLET, after=cursor))[0] == 1
