"""Instances: leadership, assignment of pairs, and takeover from dead instances."""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from datetime import timedelta
from itertools import accumulate
from pathlib import Path
from time import monotonic

import pytest
from tests.outbox.conftest import MakeTopic, RunOutbox
from tests.support.outbox import HURRY, Recorder, append, until
from tests.support.soak import TIMES

from postroom.db.pool import Pool, connect, open_pool
from postroom.db.room import Room
from postroom.events import Event, EventStore
from postroom.outbox import service
from postroom.outbox.leadership import Leadership
from postroom.outbox.model import ProgressLine, Subscription
from postroom.outbox.publisher import Batch

REPOSITORY = Path(__file__).parents[2]
SOAK_S, KILL_EVERY_S = (60, 3) if TIMES > 1 else (0, 0)


@contextlib.asynccontextmanager
async def outbox_process(url: str, path: Path, *, batch: int = 20) -> AsyncIterator[asyncio.subprocess.Process]:
    """An instance in a separate process, ready; killed after the block in any case."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.support.outbox_process",
        url,
        str(path),
        str(batch),
        cwd=REPOSITORY,
        stdout=asyncio.subprocess.PIPE,
        env={"PYTHONPATH": f"{REPOSITORY / 'src'}:{REPOSITORY}"},
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(60):
            assert await process.stdout.readline() == b"ready\n"
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def test_events_reach_a_subscriber(store: EventStore, make_topic: MakeTopic, run_outbox: RunOutbox) -> None:
    """An append reaches the publisher through a notification."""
    recorder = Recorder()
    await make_topic()
    async with run_outbox(recorder):
        positions = await append(store, 10)
        await until(lambda: len(recorder.positions) >= len(positions))
    assert recorder.positions == positions


async def test_a_sleeping_leader_is_woken_by_an_append(
    store: EventStore, pool: Pool, make_topic: MakeTopic, run_outbox: RunOutbox
) -> None:
    """With a poll interval of an hour, only the notification of each append can wake the leader."""
    recorder = Recorder()
    await make_topic()
    async with run_outbox(recorder, relay=replace(HURRY, poll=timedelta(hours=1), idle=timedelta(hours=1))):
        for count in range(1, 6):

            async def is_asleep() -> bool:
                return bool(await pool.fetchval("SELECT EXISTS (SELECT FROM event_followers WHERE is_asleep)"))

            await until(is_asleep)
            await store.append(Event.of("Deposited"))
            await until(lambda count=count: len(recorder.messages) >= count)  # type: ignore[misc]
    assert len(recorder.messages) == 5


async def test_pairs_are_divided_evenly_and_handed_over(
    store: EventStore, make_topic: MakeTopic, run_outbox: RunOutbox
) -> None:
    """A new instance gets half of the pairs; when it leaves they are taken over. Each pair has one leader at a time."""
    pairs = {await make_topic(f"topic{number}") for number in range(4)}
    first, second = Recorder(), Recorder()
    async with run_outbox(first) as one:
        await until(lambda: one.led == pairs)
        async with run_outbox(second) as two:
            await until(lambda: len(one.led) == len(two.led) == 2)
            assert one.led | two.led == pairs
            positions = await append(store, 5)
            await until(lambda: len(first.messages) + len(second.messages) == 20)
        await until(lambda: one.led == pairs)
    assert sorted(first.positions + second.positions) == sorted(positions * 4)


async def test_an_instance_leads_only_what_it_can_publish(make_topic: MakeTopic, run_outbox: RunOutbox) -> None:
    """A pair without an instance for its publisher waits; other pairs are published."""
    mine = await make_topic()
    await make_topic("other", "nobody")
    async with run_outbox(Recorder()) as one:
        await until(lambda: bool(one.led))
        assert one.led == {mine}


async def test_row_has_the_leader_and_its_heartbeat(pool: Pool, make_topic: MakeTopic, run_outbox: RunOutbox) -> None:
    """The heartbeat is updated while the instance leads; afterwards the row has no leader."""
    await make_topic()
    async with run_outbox(Recorder()) as one:
        await until(lambda: bool(one.led))
        (first,) = await service.list_progress(pool)
        assert first.leader_instance is not None
        assert first.leader_heartbeat is not None
        before = first.leader_heartbeat

        async def is_refreshed() -> bool:
            (line,) = await service.list_progress(pool)
            return line.leader_heartbeat is not None and line.leader_heartbeat > before

        await until(is_refreshed)
    (line,) = await service.list_progress(pool)
    assert (line.leader_instance, line.leader_since, line.leader_heartbeat) == (None, None, None)


async def test_a_cut_connection_is_survived(
    store: EventStore, room: Room, make_topic: MakeTopic, run_outbox: RunOutbox
) -> None:
    """When the server drops every connection, the instance reconnects and continues."""
    recorder = Recorder()
    await make_topic()
    async with run_outbox(recorder):
        positions = await append(store, 3)
        await until(lambda: recorder.positions == positions)
        admin = await connect(room.url, room.name)
        await admin.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        await admin.close()
        fresh = await open_pool(room.url, room.name, size=2)
        positions += await append(EventStore(fresh), 3)
        await fresh.close()
        await until(lambda: len(set(recorder.positions)) >= len(positions))
    assert list(dict.fromkeys(recorder.positions)) == positions


async def test_lock_holder_without_heartbeat_is_terminated(
    store: EventStore, room: Room, make_topic: MakeTopic, run_outbox: RunOutbox
) -> None:
    """A lock holder with an open connection and an old heartbeat is terminated by other instances."""
    pair = await make_topic()
    recorder = Recorder()
    connector = room.listener.connector
    async with Leadership(connector, room.name, publishers=["recorder"], on_wake=lambda *, by_hand: None) as dead:
        assert (await dead.take(pair))[0]
        positions = await append(store, 1)
        async with run_outbox(recorder, silence=timedelta(seconds=1)) as one:
            await until(lambda: one.led == {pair} and set(recorder.positions) == set(positions))
        await until(dead.lost.is_set)


async def test_failed_publisher_is_resumed_by_an_operator(
    store: EventStore, pool: Pool, make_topic: MakeTopic, run_outbox: RunOutbox
) -> None:
    """Consecutive errors lead to FAILED; `resume` takes effect at once."""
    pair, recorder = await make_topic(), Recorder()
    recorder.is_down = True

    async def has_failed() -> bool:
        (line,) = await service.list_progress(pool)
        return line.status == "FAILED"

    async with run_outbox(recorder):
        positions = await append(store, 2)
        await until(has_failed)
        recorder.is_down = False
        await service.resume(pool, pair, actor="tests")
        await until(lambda: len(recorder.positions) >= len(positions))
    assert recorder.positions == positions


async def test_crash_of_a_relay_is_a_failure_with_back_off(
    store: EventStore, pool: Pool, make_topic: MakeTopic, run_outbox: RunOutbox
) -> None:
    """A crash of a relay counts as a failure, with back-off, and finally FAILED."""
    tries = 0

    class Deadly(Recorder):
        async def publish(self, batch: Batch) -> None:
            nonlocal tries
            tries += 1
            task = asyncio.current_task()
            assert task is not None
            task.cancel()  # the relay's own task, from inside the publisher
            await asyncio.Event().wait()

    pair, healthy = await make_topic(publisher="deadly"), Recorder()
    await make_topic("other")
    await append(store, 1)
    async with run_outbox(Deadly("deadly"), healthy):
        await until(lambda: len(healthy.messages) == 1)

        async def is_failed() -> bool:
            return (await _line(pool, pair)).status == "FAILED"

        await until(is_failed)
    line = await _line(pool, pair)
    assert (tries, line.error_count, line.last_error) == (3, 3, "CancelledError")


async def _line(pool: Pool, pair: Subscription) -> ProgressLine:
    return next(line for line in await service.list_progress(pool) if (line.topic, line.publisher) == pair)


async def test_a_minimal_publisher(store: EventStore, make_topic: MakeTopic, run_outbox: RunOutbox) -> None:
    """A name and two methods are enough for a publisher."""
    told: list[str] = []

    class Printer:
        name = "printer"
        is_local = False

        async def publish(self, batch: object) -> None:
            told.extend(f"{message.id} {message.type}" for message in batch.messages)  # type: ignore[attr-defined]

        async def close(self) -> None: ...

    await make_topic(publisher="printer")
    async with run_outbox(Printer()):
        (position,) = await append(store, 1, "Opened")
        await until(lambda: bool(told))
    assert told == [f"postroom:0:{position} Opened"]


async def _leader_pid(pool: Pool) -> int:
    """The process id of the leader; waits while one instance hands over to another."""
    led: list[str] = []

    async def is_led() -> bool:
        (line,) = await service.list_progress(pool)
        led.extend([line.leader_instance] if line.leader_instance is not None else [])
        return bool(led)

    await until(is_led)
    return int(led[0].split(":")[1])


async def _write(store: EventStore, writer: int, stop: asyncio.Event) -> int:
    """Append in transactions of different lengths until `stop` is set; returns the number of events."""
    count = 0
    while not stop.is_set():
        async with store._pool.acquire() as connection, connection.transaction():
            for _ in range(1 + (count + writer) % 3):
                await store.append(Event.of("Moved", {"by": writer}), connection=connection)
                count += 1
                await asyncio.sleep(0.001 * (writer % 4))
    return count


@dataclass(slots=True)
class Fleet:
    """Instances in separate processes that write to one file; their leader is killed repeatedly."""

    pool: Pool
    url: str
    path: Path
    stack: AsyncExitStack
    by_pid: dict[int, asyncio.subprocess.Process] = field(default_factory=dict)
    kills: int = 0
    killed_at: float = field(default_factory=monotonic)
    size: int = 0  # size of the file when the last leader was killed

    async def reinforce(self, count: int = 1) -> None:
        starting = [self.stack.enter_async_context(outbox_process(self.url, self.path)) for _ in range(count)]
        self.by_pid |= {process.pid: process for process in await asyncio.gather(*starting)}

    async def publishes(self, *, for_s: float = 0) -> None:
        """Wait until something was published since the last kill, and then this long."""
        size, due = self.size, self.killed_at + for_s
        await until(lambda: self.path.stat().st_size > size + 2000 and monotonic() >= due)

    async def kill_leader(self) -> None:
        """Kill the leader after it has published, so that each kill affects a process with lines in the file."""
        victim = 0

        async def is_at_work() -> bool:
            nonlocal victim
            victim = await _leader_pid(self.pool)
            return self.path.read_text().splitlines()[-1].endswith(f" {victim}")

        await until(is_at_work)
        self.by_pid[victim].kill()
        await self.by_pid[victim].wait()
        self.kills, self.killed_at, self.size = self.kills + 1, monotonic(), self.path.stat().st_size
        await self.reinforce()


@dataclass(frozen=True, slots=True)
class Tally:
    """The written events, and the messages of a subscriber in order: id, position and process of each."""

    seconds: float
    kills: int
    written: int
    expected: Sequence[int]
    seen: Sequence[Sequence[str]]

    @property
    def firsts(self) -> list[int]:
        return list(dict.fromkeys(int(position) for _id, position, _pid in self.seen))

    @property
    def lost(self) -> int:
        return self.written - len(set(self.firsts) & set(self.expected))

    @property
    def disorder(self) -> int:
        """The number of first arrivals that came after a later event."""
        rank = {position: number for number, position in enumerate(self.expected)}
        ranks = [rank[position] for position in self.firsts]
        return sum(number < highest for number, highest in zip(ranks, accumulate(ranks, max), strict=True))

    def __str__(self) -> str:
        again = len(self.seen) - len(self.firsts)
        return (
            f"{self.seconds:.1f} s, 8 writers, {self.kills} leaders killed, {self.written} events written, "
            f"{len(self.firsts)} published, {again} of them again, {self.lost} lost, {self.disorder} out of order"
        )


async def test_nothing_is_lost_or_reordered_when_leaders_are_killed(
    store: EventStore, pool: Pool, database_url: str, make_topic: MakeTopic, tmp_path: Path
) -> None:
    """With eight writers, three processes and SIGKILLs, every event arrives, in order and with a constant id."""
    await make_topic(publisher="file")
    path, stop = tmp_path / "seen", asyncio.Event()
    path.touch()

    async def is_published() -> bool:
        (line,) = await service.list_progress(pool)
        return line.lag_events == 0

    async with AsyncExitStack() as stack:
        fleet = Fleet(pool, database_url, path, stack)
        await fleet.reinforce(3)
        started = monotonic()
        writers = [asyncio.create_task(_write(store, number, stop)) for number in range(8)]
        while fleet.kills < 2 or monotonic() - started < SOAK_S:
            await fleet.publishes(for_s=KILL_EVERY_S)
            await fleet.kill_leader()
        await fleet.publishes()
        stop.set()
        written, seconds = sum(await asyncio.gather(*writers)), monotonic() - started
        await until(is_published)
    rows = await pool.fetch("SELECT position FROM events ORDER BY transaction_id, position")
    seen = [line.split() for line in path.read_text().splitlines()]
    tally = Tally(seconds, fleet.kills, written, [row[0] for row in rows], seen)
    if TIMES > 1:
        print(f"\n{tally}")  # noqa: T201 - the result of a soak run
    assert (len(tally.expected), tally.lost, tally.disorder) == (written, 0, 0)
    assert all(message_id == f"postroom:0:{position}" for message_id, position, _pid in seen)
    assert len({pid for _id, _position, pid in seen}) > tally.kills


async def test_takeover_does_not_wait_for_the_heartbeat_limit(
    store: EventStore, pool: Pool, database_url: str, make_topic: MakeTopic, tmp_path: Path
) -> None:
    """A lock ends with its session: the next instance leads at once, although the heartbeat limit is an hour."""
    await make_topic(publisher="file")
    path = tmp_path / "seen"
    path.touch()
    async with AsyncExitStack() as stack:
        one = await stack.enter_async_context(outbox_process(database_url, path))
        other = await stack.enter_async_context(outbox_process(database_url, path))
        await append(store, 1)
        await until(lambda: len(path.read_text().splitlines()) == 1)
        victim = await _leader_pid(pool)
        await append(store, 1)
        next(process for process in (one, other) if process.pid == victim).kill()
        await store.append(Event.of("Last"))
        await until(lambda: len({line.split()[0] for line in path.read_text().splitlines()}) == 3)
        assert await _leader_pid(pool) != victim


@pytest.mark.parametrize("count", [1])
async def test_stopped_instance_finishes_its_batch(
    store: EventStore, pool: Pool, make_topic: MakeTopic, run_outbox: RunOutbox, count: int
) -> None:
    """After a stop, the progress includes every published message."""
    recorder = Recorder()
    pair = await make_topic()
    async with run_outbox(recorder):
        await append(store, 50)
        await until(lambda: len(recorder.messages) >= count)
    (line,) = await service.list_progress(pool)
    assert line.last_position == recorder.positions[-1]
    assert Subscription(line.topic, line.publisher) == pair
