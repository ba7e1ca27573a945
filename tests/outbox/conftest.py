"""Fixtures of the outbox tests: an event store, topics, and relays and instances with short intervals."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from datetime import timedelta

import asyncpg
import pytest
from tests.support.outbox import HURRY, lead
from tests.support.streams import be_patient_with_nats

from postroom.db.pool import Pool, connect
from postroom.db.room import Room
from postroom.events import EventStore
from postroom.outbox.model import Subscription, Topic
from postroom.outbox.publisher import Publisher, Publishers
from postroom.outbox.relay import Relay, RelayOptions
from postroom.outbox.topics import save_topic
from postroom.outbox.worker import Outbox, OutboxOptions

MakeTopic = Callable[..., Awaitable[Subscription]]
MakeRelay = Callable[..., Awaitable[Relay]]
RunOutbox = Callable[..., contextlib.AbstractAsyncContextManager[Outbox]]


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use long connection timeouts: a slow server must not count as unavailable."""
    be_patient_with_nats(monkeypatch)


@pytest.fixture
def store(pool: Pool) -> EventStore:
    return EventStore(pool)


@pytest.fixture
def make_topic(pool: Pool) -> MakeTopic:
    """Create a topic with one publisher that starts at the beginning."""

    async def make(name: str = "all", publisher: str = "recorder", **about: tuple[str, ...]) -> Subscription:
        topic = Topic(name=name, **about)  # type: ignore[arg-type]
        await save_topic(pool, topic, publishers=[publisher], from_now=False, actor="tests")
        return Subscription(name, publisher)

    return make


@pytest.fixture
def make_relay(pool: Pool) -> MakeRelay:
    """Create a relay that leads its pair, for tests that call `run_once` themselves."""

    async def make(pair: Subscription, publisher: Publisher, **options: object) -> Relay:
        await lead(pool, pair, "tests")
        chosen = replace(HURRY, **options)  # type: ignore[arg-type]
        return Relay(pool, pair, publisher, instance="tests", options=chosen)

    return make


@pytest.fixture
def run_outbox(room: Room) -> RunOutbox:
    """Run an instance for the duration of the block."""

    @contextlib.asynccontextmanager
    async def run(*publishers: Publisher, relay: RelayOptions = HURRY, **options: timedelta) -> AsyncIterator[Outbox]:
        stop = asyncio.Event()
        hurried = {"tick": timedelta(milliseconds=50), "silence": timedelta(hours=1), **options}
        chosen = OutboxOptions(relay=relay, **hurried)
        outbox = Outbox(room, Publishers.of(publishers), chosen)
        task = asyncio.create_task(outbox.loop(stop).run(stop))
        try:
            yield outbox
        finally:
            stop.set()
            await task

    return run


@pytest.fixture
async def opened(database_url: str) -> AsyncIterator[asyncpg.Connection]:
    """A separate connection to the room."""
    connection = await connect(database_url, "postroom")
    yield connection
    await connection.close()
