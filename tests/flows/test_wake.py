"""NOTIFY: who sleeps is woken at once, who is awake costs nothing, and who lost the line comes back."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import pytest
from tests.support.acceptance import WAYS, Accept
from tests.support.builders import Recording, Steps, a_mail, a_worker, accepted
from tests.support.patience import PATIENCE_S

from postroom.db.pool import connect
from postroom.db.room import Room
from postroom.delivery.lane import LaneWakeups
from postroom.delivery.model import Lane
from postroom.delivery.worker import WorkerOptions

NEVER = timedelta(hours=1)


@asynccontextmanager
async def sleeping_worker(room: Room, transport: Recording, *, chunk: int = 100) -> AsyncIterator[Steps]:
    """A worker that polls once an hour and has gone to sleep in all lanes."""
    steps, waker = Steps(), LaneWakeups()
    options = WorkerOptions(poll_interval=NEVER, chunk=chunk)
    worker = a_worker(room.pool, transport, options=options, waker=waker, signal=steps)
    async with room.listener.hearing(f"{room.name}_deliveries", waker.notified):
        await asyncio.wait_for(room.listener.listening.wait(), 60)
        running = asyncio.create_task(worker.run())
        await steps.reached("asleep", times=len(Lane))
        try:
            yield steps
        finally:
            worker.stop()
            await running


@asynccontextmanager
async def eavesdropper(room: Room, channel: str = "deliveries") -> AsyncIterator[asyncio.Queue[str]]:
    """Hears every notification of the room."""
    heard: asyncio.Queue[str] = asyncio.Queue()
    connection = await connect(room.direct_url, room.name)
    await connection.add_listener(
        f"{room.name}_{channel}", lambda _connection, _pid, _channel, payload: heard.put_nowait(payload)
    )
    try:
        yield heard
    finally:
        await connection.close()


async def notify(room: Room, payload: str) -> None:
    async with room.pool.acquire() as connection:
        await connection.execute("SELECT pg_notify($1, $2)", f"{room.name}_deliveries", payload)


@pytest.mark.parametrize("lane", list(Lane))
async def test_accepting_wakes_a_sleeping_worker(room: Room, lane: Lane) -> None:
    """A worker that would look in an hour sends at once what another connection accepts."""
    transport = Recording()
    async with sleeping_worker(room, transport) as steps:
        [delivery] = await accepted(room.pool, a_mail(lane=lane))
        await steps.reached("sent")
    assert transport.delivery_ids == [delivery]


@pytest.mark.parametrize("lane", list(Lane))
async def test_mail_for_later_wakes_followers_by_a_sleeping_worker(room: Room, lane: Lane) -> None:
    """The worker is notified and finds nothing due; it notifies the followers, which acceptance does not."""
    transport = Recording()
    async with sleeping_worker(room, transport), eavesdropper(room, "events") as heard:
        await room.pool.execute("INSERT INTO event_followers (name, is_asleep) VALUES ('tests', true)")
        await accepted(room.pool, a_mail(lane=lane, send_at=datetime.now(UTC) + NEVER))
        assert await asyncio.wait_for(heard.get(), PATIENCE_S) == ""
    assert transport.envelopes == []


async def test_a_worker_stays_notified_while_mail_is_scarce(room: Room) -> None:
    """Single mails do not end the request for notifications: polls after each delayed the next one by up to 20 ms."""
    transport = Recording()
    async with sleeping_worker(room, transport) as steps:
        for number in range(1, 6):
            await accepted(room.pool)
            await steps.reached("completed", times=number)
            assert await room.pool.fetchval("SELECT cardinality(asleep) FROM workers") == len(Lane)
    assert len(transport.envelopes) == 5
    assert steps.heard.count("asleep") == len(Lane)


async def test_a_burst_ends_notifications_until_the_queue_is_empty(room: Room) -> None:
    """A worker that finds a whole chunk polls, and requests notifications again when it finds nothing."""
    transport = Recording()
    async with sleeping_worker(room, transport, chunk=5) as steps:
        await accepted(room.pool, *(a_mail(f"p{number}@example.org") for number in range(5)))
        await steps.reached("asleep", times=len(Lane) + 1)
        await accepted(room.pool)
        await steps.reached("sent", times=6)
    assert len(transport.envelopes) == 6


async def test_sql_wakes_a_sleeping_worker(room: Room) -> None:
    """`send()` from an application's connection rings the same bell."""
    transport = Recording()
    async with sleeping_worker(room, transport) as steps:
        connection = await connect(room.direct_url, "public")
        await connection.execute("SELECT postroom.send('{a@example.org}', p_subject => 'Hi', p_text => 'Hi')")
        await connection.close()
        await steps.reached("sent")
    assert len(transport.envelopes) == 1


async def test_a_sleeper_is_notified_only_in_the_lanes_it_sleeps_in(room: Room) -> None:
    """The notification names the lane, and only lanes with an idle worker are named."""
    async with eavesdropper(room) as heard:
        async with room.pool.acquire() as connection:
            await connection.execute("INSERT INTO workers (pid, host, asleep) VALUES (1, 'test', '{bulk}')")
        await accepted(room.pool, a_mail(lane=Lane.AUTH), a_mail(lane=Lane.BULK), a_mail(lane=Lane.BULK))
        await notify(room, "end")
        assert [await heard.get(), await heard.get()] == ["bulk", "end"]


@pytest.mark.parametrize("send", WAYS.values(), ids=WAYS)
async def test_no_notification_while_all_workers_are_awake(room: Room, send: Accept) -> None:
    """A worker that is at work looks by itself: accepting sends no NOTIFY."""
    async with eavesdropper(room) as heard:
        async with room.pool.acquire() as connection:
            await connection.execute("INSERT INTO workers (pid, host) VALUES (1, 'test')")
            for lane in Lane:
                await send(connection, lane)
        await notify(room, "end")
        assert await heard.get() == "end"


async def test_rolled_back_acceptance_sends_no_notification(room: Room) -> None:
    """The bell rings at the commit, not before."""
    async with eavesdropper(room) as heard:
        async with room.pool.acquire() as connection:
            await connection.execute("INSERT INTO workers (pid, host, asleep) VALUES (1, 'test', '{transactional}')")
            transaction = connection.transaction()
            await transaction.start()
            await connection.execute("SELECT send('{a@example.org}', p_subject => 'Hi', p_text => 'Hi')")
            await transaction.rollback()
        await notify(room, "end")
        assert await heard.get() == "end"


async def test_a_listener_comes_back_and_wakes_everybody_once(room: Room) -> None:
    """Its connection ended by force, a listener listens again and says that something may have been missed."""
    woken: asyncio.Queue[str] = asyncio.Queue()
    async with room.listener.hearing("postroom_deliveries", woken.put_nowait):
        assert await asyncio.wait_for(woken.get(), 60) == ""
        async with room.pool.acquire() as connection:
            await connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND query LIKE 'LISTEN%'"
            )
        assert await asyncio.wait_for(woken.get(), 60) == ""
        await notify(room, "bulk")
        assert await asyncio.wait_for(woken.get(), 60) == "bulk"
