"""A role that may only connect cannot stop appends of events, starts of processes or the second phase of an upgrade."""

import asyncpg
import pytest

from postroom.db.pool import Pool
from postroom.db.processes import process_registered
from postroom.db.room import Room
from postroom.events import AppendCondition, Appended, Event, EventStore, Query
from postroom.events.errors import AppendConditionFailed

NAMES = ["*", "type OrderPlaced", "order=1", "turn order=1", "postroom:start:postroom"]
HOLD = "SELECT pg_advisory_lock(hashtextextended(name, $2)) FROM unnest($1::text[]) AS name"


async def hold_public_locks(session: asyncpg.Connection) -> None:
    """Take every advisory lock whose number follows from public names, as release 0.1.0 made them."""
    for seed in (0, await session.fetchval("SELECT hashtextextended('postroom', 0)")):
        await session.execute(HOLD, NAMES, seed)


async def test_foreign_advisory_locks_stop_no_append_and_no_start(room: Room, pool: Pool, database_url: str) -> None:
    """Appends, with conditions on tags and on everything, and registrations of processes pass beside them."""
    stranger = await asyncpg.connect(database_url)
    try:
        await hold_public_locks(stranger)
        store = EventStore(pool)
        await store.append(Event.of("OrderPlaced", order=1))
        on_tag = AppendCondition(Query.of("OrderPaid", tags={"order": 1}))
        assert isinstance(await store.append(Event.of("OrderPaid", order=1), on_tag), Appended)
        on_everything = AppendCondition(Query.all())
        with pytest.raises(AppendConditionFailed):
            await store.append(Event.of("OrderPlaced", order=2), on_everything)
        async with process_registered(pool, room.name, "serve"):
            assert await pool.fetchval("SELECT count(*) FROM processes") == 1
    finally:
        await stranger.close()
