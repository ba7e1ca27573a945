"""Commands from a real NATS JetStream: one server, and a cluster that loses a node."""

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from tests.support.forked import run_module
from tests.support.intake import PAYLOAD, keys_of, malformed_rows, raw
from tests.support.intake_process import ACK_WAIT
from tests.support.loops import looping
from tests.support.patience import PATIENCE_S
from tests.support.streams import StreamServer, nats_cluster, nats_server

from postroom.db.pool import Pool
from postroom.intake.worker import CommandConsumer

if TYPE_CHECKING:
    from postroom.intake.nats import NatsSource


@pytest.fixture(scope="module")
async def broker() -> AsyncIterator[StreamServer]:
    async with nats_server() as running:
        yield running


@pytest.fixture
def subject() -> str:
    return f"commands.{uuid4().hex}"


def open_source(url: str, subject: str, **options: Any) -> "NatsSource":
    from postroom.intake.nats import NatsOptions, NatsSource

    given = {"block": timedelta(milliseconds=300), **options}
    return NatsSource(url, NatsOptions(subject=subject, stream=subject.replace(".", "_"), **given))


async def publish(url: str, subject: str, *raws: bytes) -> None:
    import nats

    connection = await nats.connect(url)
    stream = connection.jetstream(timeout=PATIENCE_S)
    for data in raws:
        await stream.publish(subject, data)
    await connection.close()


async def consume(pool: Pool, source: "NatsSource") -> None:
    """Consume until everything is acknowledged."""
    consumer = CommandConsumer(pool, source)
    async with asyncio.timeout(PATIENCE_S):
        while await pending(source) != (0, 0):
            await consumer.run_once()


async def pending(source: "NatsSource") -> tuple[int, int]:
    """The number of undelivered and of unacknowledged messages of the consumer."""
    info = await source._subscription.consumer_info()
    return info.num_pending, info.num_ack_pending


@pytest.mark.usefixtures("patient")
async def test_commands_become_deliveries_and_poison_does_not_block(
    broker: StreamServer, subject: str, pool: Pool
) -> None:
    """A missing stream is created; good commands are accepted, the others recorded, all acknowledged."""
    source = open_source(broker.url, subject)
    assert await source.fetch() == []
    bad = raw({**PAYLOAD, "subject": "Other"}, idempotency_key="a")
    await publish(broker.url, subject, raw(idempotency_key="a"), b"junk", bad, raw(idempotency_key="b"))
    await consume(pool, source)
    assert await keys_of(pool) == ["a", "b"]
    rows = await malformed_rows(pool)
    assert [(row["raw"], row["reason"]) for row in rows] == [
        (b"junk", "not_a_command"),
        (bad, "idempotency_conflict"),
    ]
    await source.close()


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("step", ["fetched", "committed"])
async def test_a_killed_consumer_loses_and_repeats_nothing(
    broker: StreamServer, subject: str, pool: Pool, database_url: str, step: str
) -> None:
    """SIGKILL before the commit or between commit and acknowledgement: handed out again, each command happens once."""
    source = open_source(broker.url, subject, ack_wait=ACK_WAIT)
    await source.fetch()
    await publish(broker.url, subject, raw(idempotency_key="a"), raw(idempotency_key="b"), b"junk")
    arguments = ("nats", database_url, broker.url, subject, step)
    assert (await run_module("tests.support.intake_process", *arguments))[0] == -signal.SIGKILL
    assert len(await keys_of(pool)) in ((1, 2) if step == "committed" else (0,))
    await consume(pool, source)
    assert await keys_of(pool) == ["a", "b"]
    assert len(await malformed_rows(pool)) == 1
    await source.close()


@pytest.mark.usefixtures("patient")
async def test_a_failed_batch_is_handed_out_again(broker: StreamServer, subject: str, pool: Pool) -> None:
    """If the database could not commit, the commands are given back at once."""
    source = open_source(broker.url, subject)
    await source.fetch()
    await publish(broker.url, subject, raw())
    async with pool.acquire() as connection:
        await connection.execute("ALTER FUNCTION wake_workers(text[]) RENAME TO wake_nobody")
        with pytest.raises(Exception, match="wake_workers"):
            await consume(pool, source)
        await connection.execute("ALTER FUNCTION wake_nobody(text[]) RENAME TO wake_workers")
    await consume(pool, source)
    assert await keys_of(pool) == ["k1"]
    await source.close()


async def _publish_stubbornly(urls: Sequence[str], subject: str, keys: Sequence[str], half: asyncio.Event) -> None:
    """A producer that repeats a command until the stream has confirmed it."""
    import nats
    import nats.errors
    import nats.js.errors

    async def quiet(_error: Exception) -> None:
        """Reconnecting is what this test is about."""

    connection = await nats.connect(
        list(urls), max_reconnect_attempts=-1, reconnect_time_wait=0.1, connect_timeout=1, error_cb=quiet
    )
    stream = connection.jetstream(timeout=1)
    for number, key in enumerate(keys):
        if number == len(keys) // 2:
            half.set()
        while True:
            try:
                await stream.publish(subject, raw(idempotency_key=key))
                break
            except (nats.errors.Error, nats.js.errors.Error, OSError):
                continue
    await connection.close()


async def leader_of(source: "NatsSource", subject: str) -> int:
    """The number of the node that leads the stream; retried while there is no answer or no leader."""
    import nats.errors

    async with asyncio.timeout(PATIENCE_S):
        while True:
            with contextlib.suppress(nats.errors.Error, TimeoutError):
                info = await source._connection.jetstream().stream_info(subject.replace(".", "_"))
                if info.cluster.leader:
                    return int(info.cluster.leader.removeprefix("node"))


async def test_a_cluster_that_loses_a_node_loses_no_command(pool: Pool, subject: str) -> None:
    """The stream's leader is killed while commands flow; every command happens, each once."""
    keys = [f"k{number}" for number in range(200)]
    half, acknowledged = asyncio.Event(), asyncio.Event()
    async with nats_cluster() as servers:
        urls = [node.url for node in servers]
        source = open_source(",".join(urls), subject, replicas=3)
        async with asyncio.timeout(PATIENCE_S):
            while source._subscription is None:  # the nodes first have to find each other and choose a leader
                try:
                    await source.fetch()
                except Exception:  # noqa: BLE001 - not yet
                    continue
        consumer = CommandConsumer(
            pool, source, signal=lambda step: acknowledged.set() if step == "acknowledged" else None
        )
        async with looping(consumer.loop()):
            publishing = asyncio.create_task(_publish_stubbornly(urls, subject, keys, half))
            await half.wait()
            await servers[await leader_of(source, subject)].kill()
            async with asyncio.timeout(3 * PATIENCE_S):
                await publishing
                while len(await keys_of(pool)) < len(keys):
                    await acknowledged.wait()
                    acknowledged.clear()
        await source.close()
    assert sorted(await keys_of(pool)) == sorted(keys)
    assert await malformed_rows(pool) == []
