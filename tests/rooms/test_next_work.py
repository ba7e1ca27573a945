"""The work for which a sleeping room wakes: every loop has a condition, and each is true exactly while work waits."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.support.accounts import sign_up
from tests.support.builders import a_mail, accepted
from tests.support.campaigns import a_running_campaign
from tests.support.outbox import append, until
from tests.support.schedule import born

from postroom.app import run_worker
from postroom.background import UPKEEP, WAKES, open_loops
from postroom.db.migrate import RELEASE
from postroom.db.pool import Pool
from postroom.db.room import Room
from postroom.events.service import EventStore
from postroom.outbox import topics
from postroom.outbox.model import Topic
from postroom.rooms import store
from postroom.rooms.wake import RoomWake
from postroom.runtime.loop import Loop
from postroom.stats import store as stats_store

NEXT = "SELECT next_work_at(true, '{log}')"


async def loops_of(room: Room) -> list[Loop]:
    async with AsyncExitStack() as stack:
        return await open_loops(room, stack, asyncio.Event(), wake=await a_wake(room))


async def a_wake(room: Room) -> RoomWake:
    worker_id, process = await store.wake_room(room.pool, pid=1, host="tests", release=RELEASE)
    wake = RoomWake(worker_id=worker_id, process=process, lanes=frozenset(), upkeep_in=timedelta())
    wake.gates.open_all()
    return wake


async def test_every_loop_of_a_sleeping_room_has_a_condition(room: Room, tmp_path: Path) -> None:
    """Each loop is upkeep or has a function, and the room asks all of them; the fleet follows the files."""
    settings = replace(room.settings, admin_email="admin@example.org", template_dir=tmp_path, secret_key=bytes(32))
    names = {loop.name for loop in await loops_of(replace(room, settings=settings))}
    assert names | {"renderer"} == WAKES.keys() | UPKEEP | {"templates"}
    for asking in ("next_work_at", "due_work"):
        source = await room.pool.fetchval("SELECT prosrc FROM pg_proc WHERE oid = $1::regproc", asking)
        assert {function for function in WAKES.values() if f"{function}(" not in source} == set()


async def test_every_table_with_work_is_counted(pool: Pool) -> None:
    """A write to any table that these functions read changes the number by which a sleeping room is noticed."""
    sources = await pool.fetch("SELECT prosrc FROM pg_proc WHERE proname ~ '^next_[a-z]+_at$'")
    read = {name for row in sources for name in re.findall(r"(?:FROM|JOIN)\s+([a-z_]+)", row["prosrc"])}
    tables = {row["relname"] for row in await pool.fetch("SELECT relname FROM pg_class WHERE relkind IN ('r', 'p')")}
    counted = store.QUERIES["count_writes"].sql
    assert {name for name in read & tables if f"'{name}'" not in counted} == set()
    assert "all_steps" in read  # a view: accepting a mail also writes due_deliveries, or another step
    assert r"LIKE 'delivery\_steps\_%'" in counted  # its partitions: the server counts no writes of a parent
    assert "due_deliveries" in read & tables


async def test_an_idle_room_has_no_work(pool: Pool) -> None:
    """A fresh room sleeps until something is written."""
    assert await pool.fetchval(NEXT) is None


async def _mail(pool: Pool) -> None:
    await accepted(pool, a_mail())


async def _mail_of_tomorrow(pool: Pool) -> None:
    await accepted(pool, a_mail(send_at=datetime.now(UTC) + timedelta(days=1)))


async def _expired_claim(pool: Pool) -> None:
    await pool.execute(
        "INSERT INTO claims (lane, worker_id, claimed_at, expires_at, delivery_ids)"
        " VALUES ('auth', 1, now(), now(), '{}')"
    )


async def _mass_action(pool: Pool) -> None:
    await pool.execute("INSERT INTO mass_actions (before_id, kind, actor, filter) VALUES (1, 'cancel', 'tests', '{}')")


async def _token(pool: Pool) -> None:
    await sign_up(pool)


async def _campaign(pool: Pool) -> None:
    await a_running_campaign(pool, 3)


async def _person(pool: Pool) -> None:
    await born(pool, "1990-05-05", now="2026-11-15T09:00")


async def _delta(pool: Pool) -> None:
    await pool.execute(
        "INSERT INTO stat_deltas (hour, campaign_id, sender_account_id, amount, domain, metric)"
        " VALUES (now(), 0, 0, 1, 'example.org', 'opened')"
    )


async def _event(pool: Pool) -> None:
    await topics.create_topic(pool, Topic(name="all"), publishers=["log"], actor="tests")
    await append(EventStore(pool), 1)


WORK = {
    "next_delivery_at()": [_mail, _mail_of_tomorrow, _expired_claim, _mass_action],
    "next_token_at()": [_token],
    "next_feed_at()": [_campaign],
    "next_event_at()": [_person],
    "next_rollup_at()": [_delta, _mail],
    "next_publication_at('{log}')": [_event],
}


@pytest.mark.parametrize(
    "function, write",
    [(function, write) for function, writers in WORK.items() for write in writers],
    ids=lambda value: getattr(value, "__name__", value),
)
async def test_work_is_found(pool: Pool, function: str, write: Callable[[Pool], Awaitable[None]]) -> None:
    """The function of the capability has a time, and so has the room."""
    assert await pool.fetchval(f"SELECT {function}") is None
    await write(pool)
    assert await pool.fetchval(f"SELECT {function}") is not None
    assert await pool.fetchval(NEXT) is not None


async def test_the_time_is_that_of_the_first_work(pool: Pool) -> None:
    """A room with mail of tomorrow can sleep until then."""
    await _mail_of_tomorrow(pool)
    while await stats_store.fold(pool, batch_limit=1000):
        pass
    assert await pool.fetchval(f"{NEXT} - now() BETWEEN interval '23 hours' AND interval '25 hours'")


async def test_a_worker_leaves_no_work_behind(room: Room) -> None:
    """After mail, tokens, a campaign, statistics and events are done, the room can sleep."""
    settings = replace(room.settings, transport="noop", secret_key=bytes(32))
    for write in (_mail, _token, _campaign, _delta, _event):
        await write(room.pool)
    stop = asyncio.Event()
    wake = await a_wake(room)
    running = asyncio.create_task(run_worker(replace(room, settings=settings), stop=stop, wake=wake))
    try:
        await until(lambda: _is_idle(room.pool))
    finally:
        stop.set()
        await running
    assert await room.pool.fetchval("SELECT count(*) FROM deliveries WHERE finished_at IS NULL") == 0


async def _is_idle(pool: Pool) -> bool:
    return await pool.fetchval(NEXT) is None
