"""Create an outbox from settings, and its Prometheus metrics."""

import asyncio
from contextlib import suppress
from datetime import timedelta
from typing import Any

import asyncpg
import nats
import pytest
import redis.asyncio
from tests.outbox.conftest import MakeTopic, RunOutbox
from tests.support.outbox import HURRY, Recorder, append, until
from tests.support.streams import nats_server, valkey

from postroom.db.pool import Pool
from postroom.db.room import Room
from postroom.errors import ConfigurationError
from postroom.events import Event, EventSession, EventStore, Query
from postroom.outbox import run, service, topics
from postroom.outbox.cloudevents import cloud_event
from postroom.outbox.model import PublisherStatus, Subscription
from postroom.outbox.publisher import make_batch
from postroom.outbox.run import make_publishers, outbox_options
from postroom.runtime.metrics import REGISTRY
from postroom.settings import Settings, read_settings


async def test_brokers_are_publishers_only_if_configured() -> None:
    """Publishers of brokers exist only where the broker is configured."""
    assert make_publishers(Settings()).names == ["intake", "log", "webhook"]
    publishers = make_publishers(Settings(redis_url="redis://127.0.0.1:1", nats_url="nats://127.0.0.1:1"))
    assert publishers.names == ["intake", "log", "nats", "redis", "webhook"]
    await publishers.close()


@pytest.mark.parametrize("format_", ["postroom", "cloudevents"])
async def test_brokers_get_the_format_that_is_set(format_: str, store: EventStore) -> None:
    """One setting chooses the format for Redis and NATS; the public URL is part of the source."""
    async with valkey() as redis_server, nats_server() as nats_:
        environment = {
            "POSTROOM_REDIS_URL": redis_server.url,
            "POSTROOM_NATS_URL": nats_.url,
            "POSTROOM_OUTBOX_FORMAT": format_,
            "POSTROOM_PUBLIC_URL": "https://mail.example.org/",
        }
        publishers = make_publishers(read_settings(environment))
        await append(store, 1, wallet=1)
        batch = make_batch("all", (await store.read(Query.all())).events, source="shop")
        for name in ("redis", "nats"):
            await publishers[name].publish(batch)
        await publishers.close()
        bodies = [await _read_redis(redis_server.url), await _read_nats(nats_.url)]
    (message,) = batch.messages
    expected = cloud_event(message, base_url="https://mail.example.org") if format_ == "cloudevents" else message.json
    assert bodies == [expected, expected]
    assert (b'"source":"https://mail.example.org/shop"' in bodies[0]) is (format_ == "cloudevents")


async def _read_redis(url: str) -> bytes:
    async with redis.asyncio.Redis.from_url(url, protocol=2) as client:
        entries: Any = await client.xrange("postroom:events:all")
    ((_id, fields),) = entries
    return bytes(fields[b"body"])


async def _read_nats(url: str) -> bytes:
    connection = await nats.connect(url)
    try:
        return (await connection.jetstream().get_msg("postroom_events", 1)).data or b""
    finally:
        await connection.close()


def test_an_unknown_format_is_refused() -> None:
    """The error names the variable."""
    with pytest.raises(ConfigurationError, match="POSTROOM_OUTBOX_FORMAT"):
        read_settings({"POSTROOM_OUTBOX_FORMAT": "xml"})


def test_publisher_names_are_unique() -> None:
    """A second publisher with the same name is rejected, because both would share one progress."""
    publishers = make_publishers(Settings())
    with pytest.raises(ValueError, match="log"):
        publishers.register(Recorder("log"))


def test_settings_become_options() -> None:
    """The source is the room's name by default; a batch has at most a thousand events."""
    options = outbox_options(read_settings({"POSTROOM_OUTBOX_SOURCE": "shop-1", "POSTROOM_OUTBOX_BATCH": "1000"}))
    assert (options.relay.source, options.relay.batch) == ("shop-1", 1000)
    assert outbox_options(Settings(schema="other")).relay.source == "other"


async def test_outbox_runs_with_custom_publishers(room: Room, store: EventStore, make_topic: MakeTopic) -> None:
    """Own publishers are run and closed at the end."""
    recorder, stop = Recorder(), asyncio.Event()
    await make_topic()
    running = asyncio.create_task(run.run_outbox(room, stop=stop, more=[recorder]))
    positions = await append(store, 2)
    await until(lambda: recorder.positions == positions)
    stop.set()
    await running
    assert recorder.closed


async def test_cancelled_outbox_releases_its_locks(room: Room, make_topic: MakeTopic) -> None:
    """Cancelling closes the connection, which releases its locks."""
    await make_topic()
    taken = asyncio.Event()
    running = asyncio.create_task(
        run.run_outbox(room, stop=asyncio.Event(), more=[Recorder()], signal=lambda step: _note(step, taken))
    )
    await taken.wait()
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running

    async def is_free() -> bool:
        return not await room.pool.fetchval(
            "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"
            " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
        )

    await until(is_free)
    assert running.cancelled()


def _note(step: str, taken: asyncio.Event) -> None:
    if step == "lead_taken":
        taken.set()


def told(name: str, pair: Subscription, **labels: str) -> float | None:
    """The value of a metric of a pair."""
    return REGISTRY.get_sample_value(f"postroom_outbox_{name}", {**pair._asdict(), **labels})


async def test_metrics_cover_every_pair(
    store: EventStore, pool: Pool, make_topic: MakeTopic, run_outbox: RunOutbox
) -> None:
    """Metrics show all pairs with or without a leader, their lag and status, and no deleted pairs."""
    good, bad = await make_topic("counted"), await make_topic("failing", "broken")
    paused, orphan = await make_topic("resting"), await make_topic("orphaned", "nobody")
    await service.pause(pool, paused, actor="tests")
    await append(store, 3)
    broken = Recorder("broken")
    broken.is_down = True
    async with run_outbox(Recorder(), broken, observe=timedelta(milliseconds=20)):
        await until(lambda: told("status", bad, status="FAILED") == 1 and told("lag_events", good) == 0)
        assert (told("published_total", good), told("errors_total", bad)) == (3, HURRY.max_errors)
        assert (told("leader", good), told("leader", orphan)) == (1, 0)
        assert [told("lag_events", pair) for pair in (bad, paused, orphan)] == [3, 3, 3]
        assert all((told("lag_seconds", pair) or 0) > 0 for pair in (bad, paused, orphan))
        assert [told("status", paused, status=status) for status in PublisherStatus] == [0, 1, 0]
        assert [told("status", orphan, status=status) for status in PublisherStatus] == [1, 0, 0]
        await topics.delete_topic(pool, orphan.topic, actor="tests")
        await until(lambda: told("lag_events", orphan) is None and told("status", orphan, status="ACTIVE") is None)


async def test_metrics_show_the_stalling_transaction(
    store: EventStore, make_topic: MakeTopic, run_outbox: RunOutbox, opened: asyncpg.Connection
) -> None:
    """A metric shows the open transaction that holds back events, with its pid, until it ends."""
    pair = await make_topic("held")
    holder = {"pid": str(opened.get_server_pid())}

    def held_s() -> float | None:
        return REGISTRY.get_sample_value("postroom_outbox_stalled_seconds", holder)

    async with run_outbox(Recorder(), observe=timedelta(milliseconds=20)):
        async with opened.transaction():
            await EventSession(opened).append(Event.of("Slow"))
            await store.append(Event.of("Quick"))
            await until(lambda: (held_s() or 0) > 0 and told("lag_events", pair) == 1)
        await until(lambda: held_s() is None and told("lag_events", pair) == 0)
    assert held_s() is None
