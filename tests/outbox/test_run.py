"""From settings to a running outbox, and what Prometheus is told of it."""

import asyncio
from contextlib import suppress

import pytest
from prometheus_client import generate_latest
from tests.outbox.conftest import MakeTopic
from tests.support.outbox import Recorder, append, until

from postroom.db.room import Room
from postroom.events import EventStore
from postroom.outbox import Pair, make_publishers, run_outbox
from postroom.outbox.metrics import show_progress
from postroom.outbox.model import ProgressLine, Stall, Status
from postroom.outbox.run import outbox_options
from postroom.runtime.clock import utc_now
from postroom.runtime.metrics import REGISTRY
from postroom.settings import Settings, read_settings


async def test_publishers_are_those_that_can_be_reached() -> None:
    """Brokers only where one is configured."""
    assert make_publishers(Settings()).names == ["intake", "log", "webhook"]
    publishers = make_publishers(Settings(redis_url="redis://127.0.0.1:1", nats_url="nats://127.0.0.1:1"))
    assert publishers.names == ["intake", "log", "nats", "redis", "webhook"]
    await publishers.close()


def test_a_name_is_taken_once() -> None:
    """Two publishers of one name would share one progress."""
    publishers = make_publishers(Settings())
    with pytest.raises(ValueError, match="log"):
        publishers.register(Recorder("log"))


def test_settings_become_options() -> None:
    """The source is the room unless named; a batch is at most a thousand."""
    options = outbox_options(read_settings({"POSTROOM_OUTBOX_SOURCE": "shop-1", "POSTROOM_OUTBOX_BATCH": "1000"}))
    assert (options.relay.source, options.relay.batch) == ("shop-1", 1000)
    assert outbox_options(Settings(schema="other")).relay.source == "other"


async def test_an_outbox_runs_with_publishers_of_one_s_own(
    room: Room, store: EventStore, make_topic: MakeTopic
) -> None:
    """And closes them at its end."""
    recorder, stop = Recorder(), asyncio.Event()
    await make_topic()
    running = asyncio.create_task(run_outbox(room, stop=stop, more=[recorder]))
    positions = await append(store, 2)
    await until(lambda: recorder.positions == positions)
    stop.set()
    await running
    assert recorder.closed


async def test_an_outbox_that_is_cancelled_lets_go(room: Room, make_topic: MakeTopic) -> None:
    """Its locks go with its connection."""
    await make_topic()
    taken = asyncio.Event()
    running = asyncio.create_task(
        run_outbox(room, stop=asyncio.Event(), more=[Recorder()], signal=lambda step: _note(step, taken))
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


def _note(step: str, taken: asyncio.Event) -> None:
    if step == "lead_taken":
        taken.set()


def test_metrics_show_what_is_led_now() -> None:
    """Lag and leadership of our own pairs, the stall with its holder, and nothing of yesterday."""
    line = ProgressLine(
        topic="money",
        publisher="log",
        status=Status.ACTIVE,
        last_position=1,
        lag_events=7,
        lag_is_more=False,
        lag_seconds=2.5,
        last_published_at=None,
        error_count=0,
        last_error=None,
        failed_position=None,
        leader_instance="me",
        leader_since=None,
        leader_heartbeat=None,
        updated_at=utc_now(),
    )
    show_progress([line], [Pair("money", "log")], Stall(42, 3.5))
    told = generate_latest(REGISTRY).decode()
    assert 'postroom_outbox_lag_events{publisher="log",topic="money"} 7.0' in told
    assert 'postroom_outbox_lag_seconds{publisher="log",topic="money"} 2.5' in told
    assert 'postroom_outbox_leader{publisher="log",topic="money"} 1.0' in told
    assert 'postroom_outbox_stalled_seconds{pid="42"} 3.5' in told
    show_progress([line], [], None)
    told = generate_latest(REGISTRY).decode()
    assert "postroom_outbox_leader{" not in told
    assert 'pid="42"' not in told
