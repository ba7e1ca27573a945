"""One relay, one pair: content, order and repetition of messages, and failures."""

import asyncio
import contextlib
from dataclasses import replace
from typing import Any

import asyncpg
import pytest
from tests.outbox.conftest import MakeRelay, MakeTopic, RunOutbox
from tests.support.outbox import HURRY, Recorder, append, lead, settled, until

from postroom.db.pool import Pool
from postroom.events import Event, EventSession, EventStore
from postroom.outbox import service
from postroom.outbox.errors import PublishFailed
from postroom.outbox.model import PublisherStatus
from postroom.outbox.publisher import Batch
from postroom.outbox.relay import PublishStep


async def test_a_topic_without_conditions_gets_everything_in_order(
    store: EventStore, make_topic: MakeTopic, make_relay: MakeRelay
) -> None:
    """A topic without conditions publishes every event in batches, in the order of the store."""
    positions = await append(store, 5)
    recorder = Recorder()
    relay = await make_relay(await make_topic(), recorder, batch=2)
    assert [await relay.run_once() for _ in range(4)] == [
        PublishStep.MOVED,
        PublishStep.MOVED,
        PublishStep.MOVED,
        PublishStep.IDLE,
    ]
    assert (recorder.positions, recorder.batches) == (positions, [2, 2, 1])


async def test_conditions_are_combined_by_and(store: EventStore, make_topic: MakeTopic, make_relay: MakeRelay) -> None:
    """Type, all required keys, one of the any-of keys and the exact tags must all hold."""
    wanted = {"wallet": 1, "owner": "ada", "region": "eu"}
    (match,) = await append(store, 1, "Opened", **wanted)
    await append(store, 1, "Closed", **wanted)
    await append(store, 1, "Opened", wallet=1, region="eu")
    await append(store, 1, "Opened", wallet=1, owner="ada")
    await append(store, 1, "Opened", wallet=2, owner="ada", region="eu")
    recorder = Recorder()
    pair = await make_topic(
        types=("Opened", "Other"), required_keys=("wallet", "owner"), any_keys=("country", "region"),
        exact_tags=("wallet=1",),
    )  # fmt: skip
    relay = await make_relay(pair, recorder)
    while await relay.run_once() is PublishStep.MOVED:
        pass
    assert recorder.positions == [match]


async def test_progress_moves_past_unmatched_events(
    store: EventStore, pool: Pool, make_topic: MakeTopic, make_relay: MakeRelay
) -> None:
    """Events that do not match are scanned once."""
    await append(store, 30, "Noise")
    (wanted,) = await append(store, 1, "Signal")
    *_, last = await append(store, 3, "Noise")
    recorder = Recorder()
    pair = await make_topic(types=("Signal",))
    relay = await make_relay(pair, recorder, batch=3)
    while await relay.run_once() is PublishStep.MOVED:
        pass
    assert recorder.positions == [wanted]
    (line,) = await service.list_progress(pool)
    assert (line.last_position, line.lag_events, line.lag_seconds) == (last, 0, 0)


async def test_message_ids_are_stable(store: EventStore, make_topic: MakeTopic, make_relay: MakeRelay) -> None:
    """The id consists of source, epoch and position, so a repeated message has the same id."""
    (position,) = await append(store, 1)
    first, second = Recorder(), Recorder("second")
    await (await make_relay(await make_topic(), first)).run_once()
    await (await make_relay(await make_topic(publisher="second"), second)).run_once()
    assert [m.id for m in first.messages] == [m.id for m in second.messages] == [f"postroom:0:{position}"]


async def test_nothing_is_published_beyond_an_open_transaction(
    store: EventStore, pool: Pool, make_topic: MakeTopic, make_relay: MakeRelay, opened: asyncpg.Connection
) -> None:
    """A later event waits for an older open transaction; the listing names that transaction."""
    recorder = Recorder()
    relay = await make_relay(await make_topic(), recorder)
    transaction = opened.transaction()
    await transaction.start()
    older = await EventSession(opened).append(Event.of("Slow"))
    younger = (await store.append(Event.of("Quick"))).position
    assert await relay.run_once() is PublishStep.IDLE

    async def is_named() -> bool:  # other tests share the server, and may briefly hold the oldest transaction
        (line,) = await service.list_progress(pool)
        return line.lag_events == 1 and line.stall is not None and line.stall.pid == opened.get_server_pid()

    await until(is_named)
    await transaction.commit()
    await settled(pool)
    assert await relay.run_once() is PublishStep.MOVED
    assert recorder.positions == [older.position, younger]
    assert [line.stall for line in await service.list_progress(pool)] == [None]


async def test_invalid_event_is_isolated_and_others_are_published(
    store: EventStore, pool: Pool, make_topic: MakeTopic, make_relay: MakeRelay
) -> None:
    """A failed batch is retried one by one; at the invalid event the publisher fails and names its position."""
    positions = await append(store, 6)
    recorder = Recorder(poison=positions[3])
    pair = await make_topic()
    relay = await make_relay(pair, recorder)
    steps = [await relay.run_once() for _ in range(8)]
    assert steps == [PublishStep.FAILED, *[PublishStep.MOVED] * 3, *[PublishStep.FAILED] * 3, PublishStep.HELD]
    (line,) = await service.list_progress(pool)
    assert (line.status, line.error_count, line.failed_position) == (PublisherStatus.FAILED, 3, positions[3])
    assert line.last_error == "the receiver refused the batch"
    assert recorder.positions == positions[:3]


async def test_partly_published_batch_continues_where_it_stopped(
    store: EventStore, make_topic: MakeTopic, make_relay: MakeRelay
) -> None:
    """Messages that the publisher reports as published are not published again."""
    positions = await append(store, 4)

    class Half(Recorder):
        async def publish(self, batch: Batch) -> None:
            if len(batch.messages) > 2:
                await super().publish(replace(batch, messages=batch.messages[:2]))
                raise PublishFailed("that was enough", published=2)
            await super().publish(batch)

    half = Half()
    relay = await make_relay(await make_topic(), half)
    assert [await relay.run_once() for _ in range(4)] == [
        PublishStep.FAILED,
        PublishStep.MOVED,
        PublishStep.MOVED,
        PublishStep.IDLE,
    ]
    assert half.positions == positions


async def test_an_exception_of_a_publisher_is_a_failure(
    store: EventStore, pool: Pool, make_topic: MakeTopic, make_relay: MakeRelay
) -> None:
    """The listing shows the exception of a publisher, and other publishers continue."""
    await append(store, 1)

    class Broken(Recorder):
        async def publish(self, batch: Batch) -> None:
            raise ZeroDivisionError("of all things")

    relay = await make_relay(await make_topic(), Broken())
    assert await relay.run_once() is PublishStep.FAILED
    (line,) = await service.list_progress(pool)
    assert line.last_error == "ZeroDivisionError: of all things"


POISON = {
    "a number beyond every float": "to_jsonb('1e5000'::numeric)",
    "deeper than a stack": "(repeat('[', 1500) || repeat(']', 1500))::jsonb",
}


@pytest.mark.parametrize("data", POISON.values(), ids=POISON)
async def test_unreadable_event_is_a_failure_at_its_position(
    store: EventStore, pool: Pool, make_topic: MakeTopic, make_relay: MakeRelay, data: str
) -> None:
    """Events before an unreadable one are published; then the publisher fails at its position, and skip passes it."""
    before = await append(store, 2)
    (poison,) = await append(store, 1)
    await pool.execute(f"UPDATE events SET data = {data} WHERE position = $1", poison)
    after = await append(store, 2)
    pair, recorder = await make_topic(), Recorder()
    relay = await make_relay(pair, recorder)
    assert [await relay.run_once() for _ in range(5)] == [
        PublishStep.MOVED,
        *[PublishStep.FAILED] * 3,
        PublishStep.HELD,
    ]
    (line,) = await service.list_progress(pool)
    assert (line.status, line.error_count, line.failed_position) == (PublisherStatus.FAILED, 3, poison)
    assert f"position {poison} cannot be read" in (line.last_error or "")
    await service.skip(pool, pair, position=poison, actor="tests")
    assert await relay.run_once() is PublishStep.MOVED
    assert recorder.positions == [*before, *after]


@pytest.mark.parametrize("published", [7, -1, "2", None])
async def test_impossible_published_count_is_a_failure(
    store: EventStore, pool: Pool, make_topic: MakeTopic, make_relay: MakeRelay, published: Any
) -> None:
    """An impossible count of published messages is an error of the publisher, and the progress does not move."""
    await append(store, 2)

    class Miscounting(Recorder):
        async def publish(self, batch: Batch) -> None:
            raise PublishFailed("no", published=published)

    relay = await make_relay(await make_topic(), Miscounting())
    assert await relay.run_once() is PublishStep.FAILED
    (line,) = await service.list_progress(pool)
    assert (line.last_position, line.error_count) == (0, 1)
    assert line.last_error == f"no (the publisher reported {published} of 2 messages published)"


async def test_published_count_of_a_local_publisher_is_ignored(
    store: EventStore, pool: Pool, make_topic: MakeTopic, make_relay: MakeRelay
) -> None:
    """A local batch is one transaction: it is retried completely, whatever count the publisher reports."""
    await append(store, 2)

    class Local(Recorder):
        is_local = True

        async def publish(self, batch: Batch) -> None:
            raise PublishFailed("no", published=1)

    relay = await make_relay(await make_topic(), Local())
    assert await relay.run_once() is PublishStep.FAILED
    (line,) = await service.list_progress(pool)
    assert (line.last_position, line.failed_position) == (0, None)


async def test_a_cancellation_within_a_publisher_is_a_failure(
    store: EventStore, pool: Pool, make_topic: MakeTopic, make_relay: MakeRelay
) -> None:
    """A cancellation inside the publisher's client library is a failure and does not end the relay."""
    await append(store, 1)

    class Cancelled(Recorder):
        async def publish(self, batch: Batch) -> None:
            raise asyncio.CancelledError

    relay = await make_relay(await make_topic(), Cancelled())
    assert await relay.run_once() is PublishStep.FAILED
    (line,) = await service.list_progress(pool)
    assert "CancelledError" in (line.last_error or "")


async def test_hanging_publisher_times_out(
    store: EventStore, pool: Pool, make_topic: MakeTopic, make_relay: MakeRelay
) -> None:
    """A publisher that does not return within the timeout has failed."""
    await append(store, 1)

    class Hanging(Recorder):
        async def publish(self, batch: Batch) -> None:
            await asyncio.Event().wait()

    relay = await make_relay(await make_topic(), Hanging(), publish_timeout=HURRY.first_pause)
    assert await relay.run_once() is PublishStep.FAILED
    (line,) = await service.list_progress(pool)
    assert line.last_error == "no answer within 0.005 s"


async def test_a_local_effect_is_rolled_back_with_its_progress(
    store: EventStore, pool: Pool, make_topic: MakeTopic, make_relay: MakeRelay
) -> None:
    """A local publisher commits its effect and the progress together, or neither."""
    positions = await append(store, 2)
    await pool.execute("CREATE TABLE seen (position bigint)")

    class Local(Recorder):
        is_local = True

        async def publish(self, batch: Batch) -> None:
            for message in batch.messages:
                await batch.transaction.execute("INSERT INTO seen VALUES ($1)", message.position)
            await super().publish(batch)

    local = Local()
    local.is_down = True
    relay = await make_relay(await make_topic(), local)
    assert await relay.run_once() is PublishStep.FAILED
    assert await pool.fetchval("SELECT count(*) FROM seen") == 0
    local.is_down = False
    while await relay.run_once() is PublishStep.MOVED:
        pass
    assert [row[0] for row in await pool.fetch("SELECT position FROM seen ORDER BY position")] == positions


async def test_replaced_leader_changes_nothing(
    store: EventStore, pool: Pool, make_topic: MakeTopic, make_relay: MakeRelay
) -> None:
    """A relay stops when the row names another leader; its late progress is discarded."""
    pair = await make_topic()
    await append(store, 1)

    class Usurped(Recorder):
        async def publish(self, batch: Batch) -> None:
            await super().publish(batch)
            await lead(pool, pair, "another")

    relay = await make_relay(pair, Usurped())
    assert [await relay.run_once(), await relay.run_once()] == [PublishStep.MOVED, PublishStep.LOST]
    (line,) = await service.list_progress(pool)
    assert (line.last_position, line.leader_instance) == (0, "another")


async def test_reset_during_a_batch_is_kept(
    store: EventStore, pool: Pool, make_topic: MakeTopic, make_relay: MakeRelay
) -> None:
    """Progress moves by compare-and-set: a reset by an operator during a batch is kept."""
    positions = await append(store, 3)
    pair = await make_topic()

    class Moved(Recorder):
        async def publish(self, batch: Batch) -> None:
            await super().publish(batch)
            if len(self.batches) == 1:
                await service.reset(pool, pair, position=positions[1], actor="tests")

    moved = Moved()
    relay = await make_relay(pair, moved)
    while await relay.run_once() is PublishStep.MOVED:
        pass
    assert moved.positions == [*positions, positions[2]]


@pytest.mark.parametrize("appends", [1, 20])
async def test_sleeping_relay_is_notified(
    store: EventStore, pool: Pool, make_topic: MakeTopic, make_relay: MakeRelay, appends: int
) -> None:
    """A relay registers as asleep, so that appends notify it, and as awake afterwards."""
    recorder = Recorder()
    relay = await make_relay(await make_topic(), recorder)
    running = asyncio.create_task(relay.run())
    asleep = "SELECT count(*) FROM event_followers WHERE is_asleep"

    async def is_asleep() -> bool:
        return bool(await pool.fetchval(asleep))

    await until(is_asleep)
    positions = await append(store, appends)
    relay.ring()
    await until(lambda: recorder.positions == positions)
    relay.stop()
    await running
    assert await pool.fetchval(asleep) == 0


async def test_a_swallowed_database_error_is_a_failure(
    store: EventStore, pool: Pool, make_topic: MakeTopic, make_relay: MakeRelay
) -> None:
    """A local publisher that hides a database error has an aborted transaction: a failure, and no progress."""
    await append(store, 1)

    class Hiding(Recorder):
        is_local = True

        async def publish(self, batch: Batch) -> None:
            with contextlib.suppress(asyncpg.PostgresError):
                await batch.transaction.execute("SELECT 1 / 0")

    relay = await make_relay(await make_topic(), Hiding())
    assert await relay.run_once() is PublishStep.FAILED
    (line,) = await service.list_progress(pool)
    assert (line.last_position, line.error_count) == (0, 1)
    assert "InFailedSQLTransactionError" in (line.last_error or "")


async def test_restored_events_are_published_first(
    store: EventStore, pool: Pool, make_topic: MakeTopic, run_outbox: RunOutbox
) -> None:
    """Events of a cluster with higher transaction ids are published first, then those of the next epoch."""
    recorder = Recorder()
    await make_topic()
    old = await append(store, 2)
    for table in ("events", "event_tags"):
        await pool.execute(f"UPDATE {table} SET transaction_id = '1000000000'")
    async with run_outbox(recorder):
        new = (await EventStore(pool).append(Event.of("Fresh"))).position
        await until(lambda: len(recorder.messages) == 3)
    assert [message.id for message in recorder.messages] == [
        *(f"postroom:0:{position}" for position in old),
        f"postroom:1:{new}",
    ]
