"""Commands: the place of their last event, so that callers can wait for followers."""

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta

import pytest
from tests.support.http import open_browser

from postroom.db.pool import Pool
from postroom.db.queries import Connection
from postroom.db.room import Room
from postroom.errors import BadInput
from postroom.events import Command, Event, EventSession, EventStore, Place, Query, SequencedEvent
from postroom.events.api import ENDPOINTS
from postroom.events.commands import list_commands
from postroom.http.asgi import HttpApplication
from postroom.http.auth import Authenticator
from postroom.outbox.publisher import Publishers
from postroom.outbox.views import View, ViewCatalog
from postroom.outbox.worker import Outbox
from postroom.runtime.endpoint import Site


async def deposit_twice(session: EventSession) -> str:
    """Append twice: the place of the command is that of the second event."""
    await session.append(Event.of("Deposited", wallet=1))
    await session.append([Event.of("Deposited", wallet=1), Event.of("Deposited", wallet=2)])
    return "done"


async def test_a_command_has_the_place_of_its_last_event(store: EventStore) -> None:
    """The first and every repeated result have the same place, even after later appends."""
    first = await store.execute(Command("Deposit", "deposit-1"), deposit_twice)
    await store.append(Event.of("Deposited", wallet=1))
    again = await store.execute(Command("Deposit", "deposit-1"), deposit_twice)
    last = (await store.read(Query.all())).events[2]
    assert (first.place, first.transaction_id, first.replayed) == (last.place, last.transaction_id, False)
    assert (again.place, again.transaction_id, again.replayed) == (first.place, first.transaction_id, True)


async def test_a_command_without_events_has_no_place(store: EventStore) -> None:
    """A command that appends nothing has no place."""

    async def look(session: EventSession) -> int:
        return len((await session.read(Query.all())).events)

    result = await store.execute(Command("Look", "look-1"), look)
    assert (result.value, result.place) == (0, None)
    assert result.transaction_id > 0


async def test_commands_of_one_transaction_are_found(store: EventStore, pool: Pool) -> None:
    """Commands are found by the transaction id of their events."""
    results = [await store.execute(Command("Deposit", f"deposit-{n}"), deposit_twice) for n in range(3)]
    found, more = await list_commands(pool, transaction_id=results[1].transaction_id)
    assert ([command.command_id for command in found], more) == (["deposit-1"], None)
    everything, more = await list_commands(pool, limit=2)
    assert [command.command_id for command in everything] == ["deposit-2", "deposit-1"]
    rest, more = await list_commands(pool, cursor=more, limit=2)
    assert ([command.command_id for command in rest], more) == (["deposit-0"], None)


WRONG = [
    (Command("", "id"), "type"),
    (Command("x" * 65, "id"), "type"),
    (Command("nul\0", "id"), "type"),
    (Command("Do", ""), "id"),
    (Command("Do", "nul\0"), "id"),
    (Command("Do", "x" * 2000), "id"),
    (Command("Do", "id", {"a": "nul\0"}), "data"),
    (Command("Do", "id", {}, {"a": float("nan")}), "metadata"),
    (Command("Do", "id", occurred_at=datetime(2030, 1, 1)), "occurred_at"),  # noqa: DTZ001 - the mistake under test
]


@pytest.mark.parametrize("command,field", WRONG)
async def test_a_command_that_cannot_be_stored_is_rejected(store: EventStore, command: Command, field: str) -> None:
    """The error names the field, and the handler does not run."""
    with pytest.raises(BadInput) as caught:
        await store.execute(command, deposit_twice)
    assert [error.field for error in caught.value.errors] == [field]
    assert (await store.read(Query.all())).events == []


async def test_invalid_result_rolls_the_command_back(store: EventStore) -> None:
    """Nothing is appended, and the id can be used again."""

    async def handle(session: EventSession) -> str:
        return "nul\0" + await deposit_twice(session)

    with pytest.raises(BadInput, match="result"):
        await store.execute(Command("Deposit", "deposit-1"), handle)
    assert (await store.execute(Command("Deposit", "deposit-1"), deposit_twice)).replayed is False


async def count(connection: Connection, events: Sequence[SequencedEvent]) -> None:
    await connection.execute("UPDATE totals SET deposited = deposited + $1", len(events))


async def forget(connection: Connection) -> None:
    await connection.execute("UPDATE totals SET deposited = 0")


async def test_a_view_can_be_waited_for_after_a_command(room: Room, store: EventStore) -> None:
    """A view that has reached the command's place has applied all its events; over HTTP the place has two fields."""
    pool, stop = room.pool, asyncio.Event()
    await pool.execute("CREATE TABLE totals AS SELECT 0 AS deposited")
    view = View("deposited", count, forget, types=("Deposited",))
    await ViewCatalog(pool).install(view)
    app = HttpApplication(room, (), auth=Authenticator(pool), sites=(Site(ENDPOINTS, tools=(store,)),))
    running = asyncio.create_task(Outbox(room, Publishers.of([view])).loop(stop).run(stop))
    try:
        result = await store.execute(Command("Deposit", "deposit-1"), deposit_twice)
        assert result.place is not None
        await ViewCatalog(pool).wait_for(view, result.place, timeout=timedelta(minutes=1))
        assert await pool.fetchval("SELECT deposited FROM totals") == 3
        browser = await open_browser(room, app=app)
        answer = (await browser.post("/v1/events", json={"events": [{"type": "Deposited"}] * 2})).json
        place = Place(answer["transaction_id"], answer["position"])
        await ViewCatalog(pool).wait_for(view, place, timeout=timedelta(minutes=1))
        assert await pool.fetchval("SELECT deposited FROM totals") == 5
    finally:
        stop.set()
        await running
