"""Progress restored from a backup: in another cluster every publisher continues exactly where it was."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import pytest
from tests.outbox.conftest import MakeRelay
from tests.support.embedded import FAST
from tests.support.outbox import HURRY, Recorder, append, until
from tests.support.sessions import burn_transactions

from postroom.backup import programs
from postroom.backup.service import make_backup, restore_backup
from postroom.db.room import Room, open_room
from postroom.embedded.server import EmbeddedServer
from postroom.events import EventStore
from postroom.outbox.model import Subscription, Topic
from postroom.outbox.publisher import Publishers
from postroom.outbox.topics import save_topic
from postroom.outbox.worker import Outbox, OutboxOptions
from postroom.settings import Settings

Carry = Callable[[Room, str, Path], Awaitable[None]]


@pytest.fixture(scope="module")
async def younger(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[EmbeddedServer]:
    """A cluster that has assigned far fewer transaction ids than the test server."""
    async with EmbeddedServer(tmp_path_factory.mktemp("younger") / "data", FAST) as server:
        yield server


@pytest.fixture
async def elsewhere(younger: EmbeddedServer) -> AsyncIterator[str]:
    """An empty database in the younger cluster."""
    admin = await asyncpg.connect(younger.url)
    await admin.execute("CREATE DATABASE elsewhere")
    yield urlunsplit(urlsplit(younger.url)._replace(path="/elsewhere"))
    await admin.execute("DROP DATABASE elsewhere WITH (FORCE)")
    await admin.close()


async def by_backup(room: Room, url: str, file: Path) -> None:
    await make_backup(room, file, actor="tests", verify=False)
    await restore_backup(url, file, actor="tests")


async def by_plain_dump(room: Room, url: str, file: Path) -> None:
    """Copy with pg_dump and psql instead of `postroom backup`."""
    await programs.dump(room.direct_url, room.name, file)
    session = await asyncpg.connect(url)
    await session.execute(f"CREATE SCHEMA {room.name}")
    await session.close()
    await programs.restore(url, room.name, file)


async def count_transactions(url: str) -> int:
    connection = await asyncpg.connect(url)
    counted: int = await connection.fetchval("SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint")
    await connection.close()
    return counted


@dataclass(frozen=True, slots=True)
class Left:
    """The state of the room when it was copied."""

    published: list[int]
    waiting: list[int]


async def half_published(room: Room, make_relay: MakeRelay) -> Left:
    """One publisher has half of the events; another starts now, after further transactions."""
    await burn_transactions(room.url)
    positions = await append(EventStore(room.pool), 6)
    await save_topic(room.pool, Topic(name="all"), publishers=["half"], from_now=False, actor="tests")
    before = Recorder("half")
    await (await make_relay(Subscription("all", "half"), before, batch=3)).run_once()
    await burn_transactions(room.url)
    await save_topic(room.pool, Topic(name="all"), publishers=["late"], from_now=True, actor="tests")
    return Left(before.positions, positions[3:])


@contextlib.asynccontextmanager
async def publishing(room: Room, *recorders: Recorder) -> AsyncIterator[None]:
    stop = asyncio.Event()
    options = OutboxOptions(relay=HURRY, tick=timedelta(milliseconds=50), silence=timedelta(hours=1))
    running = asyncio.create_task(Outbox(room, Publishers.of(recorders), options).loop(stop).run(stop))
    try:
        yield
    finally:
        stop.set()
        await running


@pytest.mark.parametrize("carry", [by_backup, by_plain_dump])
async def test_publishers_continue_in_another_cluster(
    carry: Carry, room: Room, make_relay: MakeRelay, elsewhere: str, tmp_path: Path
) -> None:
    """Pending events are published, published ones are not repeated, and all publishers get new events."""
    left = await half_published(room, make_relay)
    await carry(room, elsewhere, tmp_path / "room.backup")
    half, late = Recorder("half"), Recorder("late")
    async with open_room(Settings(database_url=elsewhere)) as back, publishing(back, half, late):
        await until(lambda: half.positions == left.waiting)
        new = await append(EventStore(back.pool), 2)
        await until(lambda: len(late.messages) >= 2 and len(half.messages) >= 5)
    assert left.published == list(range(left.waiting[0] - 3, left.waiting[0]))
    assert (half.positions, late.positions) == ([*left.waiting, *new], new)


@pytest.mark.parametrize("carry", [by_backup, by_plain_dump])
async def test_events_older_than_the_restored_progress_are_published(
    carry: Carry, room: Room, make_relay: MakeRelay, elsewhere: str, tmp_path: Path
) -> None:
    """Events are published even if the cluster's ids are above all events but below the saved progress."""
    left = await half_published(room, make_relay)
    last = await room.pool.fetchval("SELECT max(transaction_id)::text::bigint FROM events")
    await burn_transactions(elsewhere, count=last - await count_transactions(elsewhere) + 100)
    await carry(room, elsewhere, tmp_path / "room.backup")
    half, late = Recorder("half"), Recorder("late")
    async with open_room(Settings(database_url=elsewhere)) as back:
        new = await append(EventStore(back.pool), 2)
        assert await count_transactions(elsewhere) < await count_transactions(room.url) - 1000
        async with publishing(back, half, late):
            await until(lambda: len(late.messages) >= 2 and len(half.messages) >= 5)
    assert (half.positions, late.positions) == ([*left.waiting, *new], new)
