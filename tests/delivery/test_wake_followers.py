"""Followers of facts are woken by the worker and the rollup, never by a transaction that only sends a mail."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from tests.support.acceptance import WAYS, Accept
from tests.support.builders import Recording, a_mail, a_worker, accepted, claimed
from tests.support.outbox import settled

from postroom.db.pool import Pool, connect
from postroom.delivery import store
from postroom.delivery.model import Lane
from postroom.stats.worker import Rollup

Heard = Callable[[], Awaitable[int]]


@pytest.fixture
async def heard(pool: Pool, database_url: str) -> AsyncIterator[Heard]:
    """A sleeping follower; the function returns the number of notifications since the last call."""
    await pool.execute("INSERT INTO event_followers (name, is_asleep) VALUES ('tests', true)")
    listener = await connect(database_url, "postroom")
    payloads: asyncio.Queue[str] = asyncio.Queue()
    await listener.add_listener("postroom_events", lambda *notification: payloads.put_nowait(notification[3]))

    async def count() -> int:
        await pool.execute(
            "SELECT pg_notify('postroom_events', 'mark')"
        )  # notifications arrive in the order of commits
        count = 0
        while await payloads.get() != "mark":
            count += 1
        return count

    yield count
    await listener.close()


@pytest.mark.parametrize("send", WAYS.values(), ids=WAYS)
async def test_accepting_wakes_no_follower(pool: Pool, heard: Heard, send: Accept) -> None:
    """The commit of an application pays for no NOTIFY of the event store."""
    async with pool.acquire() as connection:
        for lane in Lane:
            await send(connection, lane)
    assert await pool.fetchval("SELECT count(*) FROM due_deliveries") == len(Lane)
    assert await heard() == 0


async def test_finished_attempts_wake_followers(pool: Pool, heard: Heard) -> None:
    """The worker wakes them with its results."""
    await accepted(pool, a_mail())
    await heard()
    await a_worker(pool, Recording()).run_once(Lane.TRANSACTIONAL)
    assert await heard() > 0


async def test_a_claim_wakes_followers(pool: Pool, heard: Heard) -> None:
    """The acceptance is published before the attempt ends, however long that takes."""
    await accepted(pool, a_mail(), a_mail())
    await heard()
    assert len(await claimed(pool)) == 2
    assert await heard() == 1
    assert await claimed(pool) == []
    assert await heard() == 0


async def test_a_lane_that_falls_asleep_wakes_followers(pool: Pool, heard: Heard) -> None:
    """While it was awake, acceptance did not notify it of mail that is due later."""
    async with pool.acquire() as connection:
        worker_id = await store.register_worker(connection, pid=1, host="tests")
        await store.put_to_sleep(connection, worker_id=worker_id, lane=Lane.BULK)
    assert await heard() == 1
    assert await pool.fetchval("SELECT asleep::text FROM workers") == "{bulk}"


async def test_the_rollup_wakes_followers_of_mail_that_waits(pool: Pool, heard: Heard) -> None:
    """Without a worker that looks at the lane, an acceptance is published within an interval of the rollup."""
    await accepted(pool, a_mail())
    await settled(pool)
    await Rollup(pool).run_once()
    assert await heard() == 1
    await Rollup(pool).run_once()
    assert await heard() == 0
