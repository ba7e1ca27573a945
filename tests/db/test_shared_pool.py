"""One pool for many rooms: each finds its own tables on any connection, and none takes all connections."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
from tests.support.builders import Recording, a_mail, a_worker, accepted

from postroom.db import shared_pool
from postroom.db.migrate import migrate
from postroom.db.room import Room
from postroom.db.shared_pool import SharedPool, Turns, open_shared_pool
from postroom.delivery import service
from postroom.delivery.model import DeliveryFilter, Lane


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


async def test_a_connection_is_replaced_after_many_changes(shared: SharedPool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server's caches of visited rooms end with the session."""
    monkeypatch.setattr(shared_pool, "MOST_VISITS", 1)
    [(first,)] = await shared.of("annex").fetch("SELECT pg_backend_pid()")
    [(second,)] = await shared.of("postroom").fetch("SELECT pg_backend_pid()")
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
    turns = Turns(4)
    assert [await taken(turns, "busy") for _ in range(4)] == [True, True, True, False]
    assert await taken(turns, "quiet")


async def test_the_room_with_the_fewest_places_is_next() -> None:
    """A request of a quiet room is granted before older ones of a busy room."""
    turns, order = Turns(2), list[str]()

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
