"""One pool for many rooms: each finds its own tables on any connection, and none takes all connections."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
from tests.support.builders import Recording, a_mail, a_worker, accepted

from postroom.db.migrate import migrate
from postroom.db.room import Room
from postroom.db.shared_pool import MOST_ROOMS, SharedPool, Turns, open_shared_pool
from postroom.delivery import service
from postroom.delivery.filter import DeliveryFilter
from postroom.delivery.model import Lane


@pytest.fixture
async def shared(room: Room) -> AsyncIterator[SharedPool]:
    """A pool with one connection, and a second room `annex` beside `postroom`."""
    await migrate(room.direct_url, "annex")
    pool = await open_shared_pool(room.direct, size=1, limit=timedelta(minutes=5))
    try:
        yield pool
    finally:
        await pool.close()


async def test_two_rooms_take_turns_on_one_connection(shared: SharedPool) -> None:
    """The same statements, prepared in turn, write and read only the tables of the room that runs them."""
    rooms = {name: shared.of(name) for name in ("postroom", "annex")}
    for number in range(3):
        for name, pool in rooms.items():
            await accepted(pool, a_mail(f"{name}{number}@example.org", lane=Lane.AUTH))
    for name, pool in rooms.items():
        transport = Recording()
        await a_worker(pool, transport).run_once(Lane.AUTH)
        assert sorted(envelope.recipients[0] for envelope in transport.envelopes) == [
            f"{name}{number}@example.org" for number in range(3)
        ]
        lines, _ = await service.list_deliveries(pool, DeliveryFilter())
        assert [line.state for line in lines] == ["sent"] * 3
    pids = [await pool.fetch("SELECT pg_backend_pid()") for pool in rooms.values()]
    assert pids[0] == pids[1]


async def test_a_connection_that_fails_to_enter_a_room_is_not_mistaken_for_it(shared: SharedPool) -> None:
    """A statement that fails leaves the connection in its room; the next room enters its own."""
    with pytest.raises(Exception, match="does not exist"):
        await shared.of("nowhere").fetch("SELECT * FROM deliveries")
    assert await shared.of("annex").fetch("SELECT current_schema()") == [("annex",)]
    assert await shared.of("postroom").fetch("SELECT current_schema()") == [("postroom",)]


async def test_a_connection_is_replaced_after_many_rooms(shared: SharedPool) -> None:
    """The server's caches of these rooms end with the session; a statement may name many rooms."""
    [(first,)] = await shared.of("annex").fetch("SELECT pg_backend_pid()")
    [(second,)] = await shared.of("postroom").fetch("SELECT pg_backend_pid()")
    async with shared.acquire_in("annex", naming=[f"tenant_{number}" for number in range(MOST_ROOMS)]) as connection:
        assert await connection.fetchval("SELECT pg_backend_pid()") == first
    [(third,)] = await shared.of("postroom").fetch("SELECT pg_backend_pid()")
    assert first == second != third


async def taken(turns: Turns, room: str) -> bool:
    """Ask for a place; True if it is granted at once."""
    request = asyncio.create_task(turns.take(room))
    for _ in range(3):
        await asyncio.sleep(0)
    is_granted = request.done()
    request.cancel()
    await asyncio.gather(request, return_exceptions=True)
    return is_granted


async def test_a_busy_room_leaves_places_for_the_others() -> None:
    """Three quarters are the most that one room holds; another room gets the rest at once."""
    turns = Turns(4, count_own=lambda _room: 4)
    assert [await taken(turns, "busy") for _ in range(4)] == [True, True, True, False]
    assert await taken(turns, "quiet")


async def test_the_room_with_the_fewest_places_is_next() -> None:
    """A request of a quiet room is granted before older ones of a busy room."""
    turns, order = Turns(2, count_own=lambda _room: 4), list[str]()

    async def use(room: str) -> None:
        await turns.take(room)
        order.append(room)

    await turns.take("busy")
    await turns.take("other")
    waiting = [asyncio.create_task(use(room)) for room in ("busy", "quiet", "third")]
    await asyncio.sleep(0)
    for room in ("other", "quiet", "busy"):
        turns.give_back(room)
        await asyncio.sleep(0)
    await asyncio.gather(*waiting)
    assert order == ["quiet", "third", "busy"]


async def test_a_room_waits_for_a_connection_that_knows_its_tables() -> None:
    """A second request of a room that wakes does not take a connection on which the room never ran."""
    turns = Turns(4, count_own=lambda _room: 1, patience_s=3600)
    await turns.take("waking")
    waiting = asyncio.create_task(turns.take("waking"))
    await asyncio.sleep(0)
    assert not waiting.done()
    turns.give_back("waking")
    await waiting


async def test_a_room_takes_another_connection_after_a_while() -> None:
    """Its own may be in use for long, and code that holds one connection may ask for another."""
    turns = Turns(4, count_own=lambda _room: 1, patience_s=0)
    await turns.take("waking")
    await turns.take("waking")


async def test_a_room_prefers_a_connection_that_knows_its_tables(room: Room) -> None:
    """A room gets the free connection on which it ran before, although another room used that one since."""
    await migrate(room.direct_url, "annex")
    pool = await open_shared_pool(room.direct, size=2, limit=timedelta(minutes=5))
    try:
        async with pool.acquire_in("postroom") as first, pool.acquire_in("annex") as second:
            own, other = [await each.fetchval("SELECT pg_backend_pid()") for each in (first, second)]
        async with pool.acquire_in("annex"):
            assert await pool.of("postroom").fetch("SELECT pg_backend_pid()") == [(own,)]
        assert await pool.of("postroom").fetch("SELECT pg_backend_pid()") == [(own,)]
        assert await pool.of("annex").fetch("SELECT pg_backend_pid()") == [(other,)]
    finally:
        await pool.close()
