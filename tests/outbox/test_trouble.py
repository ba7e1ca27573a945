"""Failures of publishers, events and other instances, and the reaction of a leader."""

import asyncio
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import asyncpg
import pytest
from tests.outbox.conftest import MakeRelay, MakeTopic
from tests.support.embedded import FAST
from tests.support.outbox import HURRY, Recorder, append, lead

from postroom.db.migrate import migrate
from postroom.db.pool import Pool, open_pool
from postroom.embedded.server import EmbeddedServer
from postroom.events import Event, EventSession, EventStore
from postroom.outbox import service
from postroom.outbox import store as outbox_store
from postroom.outbox.model import Topic
from postroom.outbox.publisher import Batch
from postroom.outbox.relay import PublishStep, Relay
from postroom.outbox.topics import save_topic


@pytest.mark.parametrize("is_local", [False, True])
async def test_publisher_timeout_is_reported_as_its_own(
    store: EventStore, pool: Pool, make_topic: MakeTopic, make_relay: MakeRelay, *, is_local: bool
) -> None:
    """The error does not name the relay's timeout if the publisher's own timeout has expired."""
    await append(store, 1)

    class Impatient(Recorder):
        async def publish(self, batch: Batch) -> None:
            raise TimeoutError("the broker took too long")

    publisher = Impatient()
    publisher.is_local = is_local
    relay = await make_relay(await make_topic(), publisher, publish_timeout=timedelta(hours=1))
    assert await relay.run_once() is PublishStep.FAILED
    (line,) = await service.list_progress(pool)
    assert line.last_error == "TimeoutError: the broker took too long"


class Rung(Recorder):
    """Fails while a notification arrives."""

    relay: Relay

    async def publish(self, batch: Batch) -> None:
        self.relay.ring()
        await super().publish(batch)


@pytest.mark.parametrize("kind,by_hand,tries", [(Recorder, False, 1), (Rung, False, 1), (Recorder, True, 2)])
async def test_appends_do_not_end_the_back_off(
    store: EventStore, pool: Pool, make_topic: MakeTopic, kind: type[Recorder], *, by_hand: bool, tries: int
) -> None:
    """Notifications during or after a failure do not end the back-off; a change by an operator does."""
    await append(store, 1)
    pair, failed = await make_topic(), asyncio.Event()
    await lead(pool, pair, "tests")
    options = replace(HURRY, first_pause=timedelta(hours=1), longest_pause=timedelta(hours=1))
    publisher = kind()
    publisher.is_down = True
    relay = Relay(
        pool, pair, publisher, instance="tests", options=options,
        signal=lambda name: failed.set() if name == "failed" else None,
    )  # fmt: skip
    if isinstance(publisher, Rung):
        publisher.relay = relay
    running = asyncio.create_task(relay.run())
    async with asyncio.timeout(60):
        await failed.wait()
        relay.ring(by_hand=by_hand)
        for _ in range(20):  # iterations of the event loop, in which it would start to scan
            await asyncio.sleep(0)
        relay.stop()
        await running
    assert len(publisher.batches) == tries


async def test_event_with_nested_tags_is_a_failure(
    store: EventStore, pool: Pool, make_topic: MakeTopic, make_relay: MakeRelay
) -> None:
    """An event stored with nested tags is an error at its position, and can be skipped."""
    first, poison = await append(store, 2)
    await pool.execute("UPDATE events SET tags = '{{a=1},{b=2}}' WHERE position = $1", poison)
    pair, recorder = await make_topic(), Recorder()
    relay = await make_relay(pair, recorder)
    assert [await relay.run_once() for _ in range(2)] == [PublishStep.MOVED, PublishStep.FAILED]
    (line,) = await service.list_progress(pool)
    assert line.failed_position == poison
    assert "cannot be read: its tags are a list of lists" in (line.last_error or "")
    assert (await service.skip(pool, pair, position=poison, actor="tests")).position == poison
    assert await relay.run_once() is PublishStep.IDLE
    assert recorder.positions == [first]


async def test_leader_with_recent_queries_is_alive(
    pool: Pool, make_topic: MakeTopic, opened: asyncpg.Connection
) -> None:
    """A leader with an old heartbeat but recent queries, as after waiting for a table lock, is not terminated."""
    pair = await make_topic()
    assert await outbox_store.try_lock(opened, **pair._asdict())
    await lead(pool, pair, "tests")
    await pool.execute("UPDATE outbox_topic_progress SET leader_heartbeat = now() - interval '1 day'")
    async with pool.acquire() as other:
        await outbox_store.break_stale_leads(other, silence=timedelta(hours=12))
        assert await opened.fetchval("SELECT 1") == 1
        assert not await outbox_store.try_lock(other, **pair._asdict())


async def test_a_prepared_transaction_that_stalls_is_named(tmp_path: Path) -> None:
    """The listing shows the name of a prepared transaction, which has no session."""
    extra = (("max_prepared_transactions", "1"), ("autovacuum", "off"))
    async with EmbeddedServer(tmp_path / "data", replace(FAST, extra=extra)) as server:
        await migrate(server.url, "postroom")
        async with await open_pool(server.url, "postroom", size=2) as pool:
            await save_topic(pool, Topic(name="all"), publishers=["log"], from_now=False, actor="tests")
            async with pool.acquire() as connection:
                await connection.execute("BEGIN")
                await EventSession(connection).append(Event.of("Slow"))
                await connection.execute("PREPARE TRANSACTION 'forgotten'")
            await EventStore(pool).append(Event.of("Quick"))
            (line,) = await service.list_progress(pool)
            assert line.stall is not None
            assert (line.stall.prepared, line.stall.pid) == ("forgotten", None)
            assert str(line.stall).startswith("forgotten for ")
            await pool.execute("ROLLBACK PREPARED 'forgotten'")
