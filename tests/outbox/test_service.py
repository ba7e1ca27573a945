"""Operations: pause, resume, reset, skip, and changes of topics."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import msgspec
import pytest
from tests.outbox.conftest import MakeRelay, MakeTopic, RunOutbox
from tests.support.outbox import Recorder, append, settled, until
from tests.support.sessions import until_blocked

from postroom.db.pool import Pool
from postroom.errors import BadInput
from postroom.events import Event, EventSession, EventStore
from postroom.outbox import service, topics
from postroom.outbox.errors import NotNext, ProgressNotFound, TopicNotFound
from postroom.outbox.model import ProgressReset, PublisherStatus, Subscription, Topic
from postroom.outbox.relay import PublishStep
from postroom.outbox.worker import RETENTION


async def audited(pool: Pool, action: str) -> list[dict[str, Any]]:
    rows = await pool.fetch("SELECT actor, subject, before::text, after::text FROM audit_log WHERE action = $1", action)
    decode = msgspec.json.decode
    return [{**row, "before": decode(row["before"] or "null"), "after": decode(row["after"] or "null")} for row in rows]


async def test_pause_and_resume(store: EventStore, pool: Pool, make_topic: MakeTopic, make_relay: MakeRelay) -> None:
    """A paused publisher publishes nothing; after resuming it continues at its position."""
    pair, recorder = await make_topic(), Recorder()
    relay = await make_relay(pair, recorder)
    await service.pause(pool, pair, actor="cli:ada")
    positions = await append(store, 2)
    assert await relay.run_once() is PublishStep.HELD
    await service.resume(pool, pair, actor="cli:ada")
    assert await relay.run_once() is PublishStep.MOVED
    assert recorder.positions == positions
    assert [entry["after"] for entry in await audited(pool, "outbox.pause")] == [{"status": "PAUSED"}]
    assert [entry["subject"] for entry in await audited(pool, "outbox.resume")] == ["outbox:all/recorder"]


async def test_reset_says_whether_it_rewinds(
    store: EventStore, pool: Pool, make_topic: MakeTopic, make_relay: MakeRelay
) -> None:
    """A reset to an earlier position publishes the following events again; one forward skips events."""
    pair, recorder = await make_topic(), Recorder()
    positions = await append(store, 4)
    relay = await make_relay(pair, recorder)
    await relay.run_once()
    moved = await service.reset(pool, pair, position=positions[1], actor="tests")
    assert moved == ProgressReset(positions[3], positions[1], rewinds=True)
    await relay.run_once()
    assert recorder.positions == [*positions, *positions[2:]]
    assert (await service.reset(pool, pair, position=0, actor="tests")).rewinds
    assert not (await service.reset(pool, pair, position=positions[3], actor="tests")).rewinds
    assert await relay.run_once() is PublishStep.IDLE
    assert [entry["after"]["rewinds"] for entry in await audited(pool, "outbox.reset")] == [True, True, False]


async def test_reset_sees_the_progress_of_a_batch_that_commits_meanwhile(
    store: EventStore, pool: Pool, make_topic: MakeTopic, make_relay: MakeRelay
) -> None:
    """The answer is about the position that the reset replaced, not an earlier one."""
    pair = await make_topic()
    positions = await append(store, 4)
    await (await make_relay(pair, Recorder())).run_once()
    await service.reset(pool, pair, position=0, actor="tests")
    async with pool.acquire() as leader, leader.transaction():
        await leader.execute(
            "UPDATE outbox_topic_progress SET (last_transaction_id, last_position) ="
            " (SELECT transaction_id, position FROM events WHERE position = $1)",
            positions[3],
        )
        moving = asyncio.create_task(service.reset(pool, pair, position=positions[1], actor="tests"))
        await until_blocked(pool)
    assert await moving == ProgressReset(positions[3], positions[1], rewinds=True)


async def test_reset_since_a_time_repeats_the_events_since(
    store: EventStore, pool: Pool, make_topic: MakeTopic, make_relay: MakeRelay
) -> None:
    """The preview counts what a reset would repeat or lose, and changes nothing."""
    pair, recorder = await make_topic(types=("Deposited",)), Recorder()
    hours = [datetime(2026, 3, 1, hour, tzinfo=UTC) for hour in range(4)]
    positions = []
    for hour in hours:
        positions.append((await store.append(Event.of("Deposited"), occurred_at=hour)).position)
        await store.append(Event.of("Other"), occurred_at=hour)
    await settled(pool)
    relay = await make_relay(pair, recorder)
    await relay.run_once()
    back = await service.preview_reset(pool, pair, since=hours[1])
    assert (back.rewinds, back.events, back.is_more) == (True, 3, False)
    await service.reset(pool, pair, since=hours[1], actor="tests")
    forward = await service.preview_reset(pool, pair, position=positions[2])
    assert (forward.rewinds, forward.events, forward.to_position) == (False, 2, positions[2])
    await relay.run_once()
    assert recorder.positions == [*positions, *positions[1:]]
    for wrong in ({"since": hours[0].replace(year=2030)}, {"position": 10**9}, {}, {"position": 1, "since": hours[0]}):
        with pytest.raises(BadInput):
            await service.preview_reset(pool, pair, **wrong)


async def test_lag_is_recorded_once_a_minute_and_deleted_after_a_day(
    store: EventStore, pool: Pool, make_topic: MakeTopic, run_outbox: RunOutbox
) -> None:
    """Every instance measures; the first one of a minute records, and the plot has the largest lag of each step."""
    pair = await make_topic()
    await service.pause(pool, pair, actor="tests")
    await append(store, 3)
    async with run_outbox(Recorder()):

        async def is_recorded() -> bool:
            return bool(await pool.fetchval("SELECT count(*) FROM outbox_lag"))

        await until(is_recorded)
    begin = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(hours=1)
    await pool.execute("INSERT INTO outbox_lag VALUES ($1, 'all', 'recorder', 7, 42)", begin)
    samples = await service.list_lag(pool, begin=begin, step=timedelta(minutes=15))
    assert {(sample.pair, sample.events) for sample in samples} == {(pair, 42), (pair, 3)}
    assert await service.list_lag(pool, begin=begin, step=timedelta(minutes=15), pair=Subscription("all", "x")) == []
    [retention] = RETENTION
    now = begin + timedelta(days=1, seconds=1)
    async with pool.acquire() as connection:
        kept: Any = retention.kept
        assert await retention.delete(connection, retention=kept, batch_limit=10, now=now) == 1


async def test_reset_beyond_the_end_is_refused(store: EventStore, pool: Pool, make_topic: MakeTopic) -> None:
    """A position beyond the last event is rejected: it would skip future events."""
    pair = await make_topic()
    (position,) = await append(store, 1)
    with pytest.raises(BadInput, match="position"):
        await service.reset(pool, pair, position=position + 1, actor="tests")


async def test_a_poison_event_can_be_skipped(
    store: EventStore, pool: Pool, make_topic: MakeTopic, make_relay: MakeRelay
) -> None:
    """Only the next event can be skipped, by its position; the publisher continues and the audit log has the error."""
    positions = await append(store, 3)
    pair, recorder = await make_topic(), Recorder(poison=positions[1])
    relay = await make_relay(pair, recorder)
    while await relay.run_once() is not PublishStep.HELD:
        pass
    with pytest.raises(NotNext) as refused:
        await service.skip(pool, pair, position=positions[2], actor="tests")
    assert refused.value.next_position == positions[1]
    skipped = await service.skip(pool, pair, position=positions[1], actor="cli:ada")
    assert (skipped.position, skipped.type) == (positions[1], "Deposited")
    while await relay.run_once() is PublishStep.MOVED:
        pass
    assert recorder.positions == [positions[0], positions[2]]
    (entry,) = await audited(pool, "outbox.skip")
    assert (entry["actor"], entry["before"]["error"], entry["after"]["position"]) == (
        "cli:ada", "the receiver refused the batch", positions[1],
    )  # fmt: skip


async def test_skip_and_reset_stop_at_an_open_transaction(
    store: EventStore, pool: Pool, make_topic: MakeTopic, make_relay: MakeRelay, opened: asyncpg.Connection
) -> None:
    """Skip and reset reject unsettled events and name the open transaction: an older event could be lost."""
    pair, recorder = await make_topic(), Recorder()
    transaction = opened.transaction()
    await transaction.start()
    older = (await EventSession(opened).append(Event.of("Slow"))).position
    younger = (await store.append(Event.of("Quick"))).position
    holder = f"pid {opened.get_server_pid()} for"
    with pytest.raises(NotNext, match=holder) as refused:
        await service.skip(pool, pair, position=younger, actor="tests")
    assert refused.value.next_position is None
    with pytest.raises(BadInput, match=holder):
        await service.reset(pool, pair, position=younger, actor="tests")
    await transaction.commit()
    await settled(pool)
    relay = await make_relay(pair, recorder)
    while await relay.run_once() is PublishStep.MOVED:
        pass
    assert recorder.positions == [older, younger]
    assert (await service.reset(pool, pair, position=older, actor="tests")).rewinds
    assert (await service.skip(pool, pair, position=younger, actor="tests")).type == "Quick"


async def test_unknown_publishers_are_not_found(pool: Pool, make_topic: MakeTopic) -> None:
    """Operations on an unknown topic or publisher raise an error."""
    await make_topic()
    for step in (service.pause, service.resume):
        with pytest.raises(ProgressNotFound):
            await step(pool, Subscription("all", "nobody"), actor="tests")
    with pytest.raises(TopicNotFound):
        await topics.delete_topic(pool, "nothing", actor="tests")


async def test_new_publishers_begin_now_by_default(store: EventStore, pool: Pool, make_relay: MakeRelay) -> None:
    """By default a publisher starts after the committed events; with `from_now=False` it gets all of them."""
    before = await append(store, 2)
    await topics.save_topic(pool, Topic(name="t"), publishers=["late"], actor="tests")
    await topics.save_topic(pool, Topic(name="t"), publishers=["early", "late"], from_now=False, actor="tests")
    lines = {line.publisher: line for line in await service.list_progress(pool)}
    assert [lines[name].last_position for name in ("early", "late")] == [0, before[-1]]
    after = await append(store, 2)
    late, early = Recorder("late"), Recorder("early")
    await (await make_relay(Subscription("t", "late"), late)).run_once()
    await (await make_relay(Subscription("t", "early"), early)).run_once()
    assert (late.positions, early.positions) == (after, before + after)


async def test_a_topic_that_changes_keeps_its_progress(
    store: EventStore, pool: Pool, make_topic: MakeTopic, make_relay: MakeRelay
) -> None:
    """New conditions apply to the events published from then on."""
    pair, recorder = await make_topic(types=("A",)), Recorder()
    relay = await make_relay(pair, recorder)
    await append(store, 1, "B")
    (first,) = await append(store, 1, "A")
    while await relay.run_once() is PublishStep.MOVED:
        pass
    saved = await topics.save_topic(pool, Topic(name="all", types=("B",)), actor="tests")
    assert (saved.types, saved.publishers) == (("B",), ("recorder",))
    (second,) = await append(store, 1, "B")
    await relay.run_once()
    assert recorder.positions == [first, second]


async def test_deleting_a_topic_ends_its_publishers(pool: Pool, make_topic: MakeTopic, make_relay: MakeRelay) -> None:
    """The relay of a deleted topic stops."""
    pair = await make_topic()
    relay = await make_relay(pair, Recorder())
    await topics.delete_topic(pool, "all", actor="tests")
    assert await relay.run_once() is PublishStep.LOST
    assert await service.list_progress(pool) == []


@pytest.mark.parametrize("whole_topic", [True, False])
async def test_removed_publisher_is_no_longer_notified(
    pool: Pool,
    make_topic: MakeTopic,
    run_outbox: RunOutbox,
    whole_topic: bool,  # noqa: FBT001 - a case
) -> None:
    """Removing a publisher deletes its follower row, so that appends do not notify it."""
    pair = await make_topic()

    async def has_sleepers() -> bool:
        return bool(await pool.fetchval("SELECT EXISTS (SELECT FROM event_followers WHERE is_asleep)"))

    async with run_outbox(Recorder()) as outbox:
        await until(has_sleepers)
        if whole_topic:
            await topics.delete_topic(pool, pair.topic, actor="tests")
        else:
            await topics.remove_publisher(pool, pair, actor="tests")
        await until(lambda: not outbox.led)
    assert await pool.fetchval("SELECT count(*) FROM event_followers") == 0


async def test_listing_counts_the_lag(store: EventStore, pool: Pool, make_topic: MakeTopic) -> None:
    """The lag counts only events of the topic; its seconds are the age of the oldest."""
    await make_topic(types=("A",))
    await append(store, 3, "A")
    await append(store, 5, "B")
    await pool.execute("UPDATE events SET occurred_at = now() - interval '90 seconds' WHERE position = 1")
    (line,) = await service.list_progress(pool)
    assert (line.lag_events, line.lag_is_more, line.status) == (3, False, PublisherStatus.ACTIVE)
    assert 90 <= line.lag_seconds < 120


async def trouble(pool: Pool) -> tuple[int, str | None, int | None]:
    (line,) = await service.list_progress(pool)
    return line.error_count, line.last_error, line.failed_position


async def test_paused_publisher_keeps_its_error(
    store: EventStore, pool: Pool, make_topic: MakeTopic, make_relay: MakeRelay
) -> None:
    """Pausing, and a reset while paused, keep the error; resuming, and a reset while active, clear it."""
    (position,) = await append(store, 1)
    pair, recorder = await make_topic(), Recorder(poison=position)
    relay = await make_relay(pair, recorder)
    assert await relay.run_once() is PublishStep.FAILED
    told = (1, "the receiver refused the batch", position)
    await service.pause(pool, pair, actor="tests")
    await service.reset(pool, pair, position=0, actor="tests")
    assert await trouble(pool) == told
    await service.resume(pool, pair, actor="tests")
    assert await trouble(pool) == (0, None, None)
    assert await relay.run_once() is PublishStep.FAILED
    await service.reset(pool, pair, position=0, actor="tests")
    assert await trouble(pool) == (0, None, None)
    assert await relay.run_once() is PublishStep.FAILED
    await service.pause(pool, pair, actor="tests")
    await service.skip(pool, pair, position=position, actor="tests")
    assert await trouble(pool) == (0, None, None)


async def test_listing_has_the_place_of_the_last_event(
    store: EventStore, pool: Pool, make_topic: MakeTopic, make_relay: MakeRelay
) -> None:
    """Transaction id and position of a listing line are the place of the last event, as an append returns it."""
    relay = await make_relay(await make_topic(), Recorder())
    appended = await store.append(Event.of("X"))
    await settled(pool)
    await relay.run_once()
    (line,) = await service.list_progress(pool)
    assert (line.last_transaction_id, line.last_position) == appended.place
