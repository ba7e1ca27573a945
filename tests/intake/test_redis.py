"""Commands from a real Valkey: several consumers, crashes, lost memory."""

import asyncio
import signal
import tempfile
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from structlog.testing import capture_logs
from tests.support.forked import run_module
from tests.support.intake import PAYLOAD, flat, keys_of, malformed_rows
from tests.support.loops import logged, looping
from tests.support.patience import PATIENCE_S
from tests.support.streams import StreamServer, start_valkey, valkey

from postroom.db.pool import Pool
from postroom.intake.worker import CommandConsumer

if TYPE_CHECKING:
    from postroom.intake.redis import RedisSource

AT_ONCE = timedelta(0)
MOMENT = timedelta(milliseconds=50)


@pytest.fixture(scope="module")
async def broker() -> AsyncIterator[StreamServer]:
    async with valkey() as running:
        yield running


@pytest.fixture
async def client(broker: StreamServer) -> AsyncIterator[Any]:
    import redis.asyncio

    async with redis.asyncio.Redis.from_url(broker.url, protocol=2, socket_timeout=PATIENCE_S) as opened:
        yield opened


@pytest.fixture
def stream() -> str:
    return f"commands:{uuid4().hex}"


def open_source(broker: StreamServer, stream: str, **options: Any) -> "RedisSource":
    from postroom.intake.redis import RedisOptions, RedisSource

    return RedisSource(broker.url, RedisOptions(stream=stream, **{"block": MOMENT, "claim_after": AT_ONCE, **options}))


async def consume_all(pool: Pool, source: "RedisSource") -> int:
    """Consume until there is nothing left; returns how many entries there were."""
    consumer = CommandConsumer(pool, source)
    total = 0
    while count := await consumer.run_once():
        total += count
    return total


async def publish(client: Any, stream: str, *keys: str) -> None:
    for key in keys:
        await client.xadd(stream, flat(idempotency_key=key))


async def test_commands_become_deliveries_and_are_acknowledged(
    client: Any, broker: StreamServer, stream: str, pool: Pool
) -> None:
    """Entries from before the first consumer are read too; afterwards no entry is pending or stored."""
    await publish(client, stream, "a", "b", "c")
    source = open_source(broker, stream)
    assert await consume_all(pool, source) == 3
    assert await keys_of(pool) == ["a", "b", "c"]
    assert (await client.xpending(stream, "postroom"))["pending"] == 0
    assert await client.xlen(stream) == 0
    await source.close()


async def test_poison_never_blocks_the_stream(client: Any, broker: StreamServer, stream: str, pool: Pool) -> None:
    """Between good commands, whatever is malformed is recorded with what came, and the stream goes on."""
    await publish(client, stream, "a")
    await client.xadd(stream, {"payload_json": b"\xff\xfe", "bogus": "1"})
    await client.xadd(stream, flat(payload_json="{"))
    await client.xadd(stream, flat({**PAYLOAD, "subject": "Other"}, idempotency_key="a"))
    await publish(client, stream, "b")
    source = open_source(broker, stream)
    await consume_all(pool, source)
    assert await keys_of(pool) == ["a", "b"]
    rows = await malformed_rows(pool)
    assert [row["reason"] for row in rows] == ["bad_field", "bad_payload", "idempotency_conflict"]
    assert b'"base64":"//4="' in rows[0]["raw"]
    assert rows[0]["entry"].startswith(f"redis {stream} ")
    await source.close()


async def test_several_consumers_share_the_stream(client: Any, broker: StreamServer, stream: str, pool: Pool) -> None:
    """Each command goes to one of them, and all arrive."""
    keys = [f"k{number}" for number in range(100)]
    await publish(client, stream, *keys)
    sources = [open_source(broker, stream, batch=7, claim_after=timedelta(minutes=1)) for _consumer in range(3)]
    counts = await asyncio.gather(*(consume_all(pool, source) for source in sources))
    assert (sum(counts), sorted(await keys_of(pool))) == (100, sorted(keys))
    for source in sources:
        await source.close()


@pytest.mark.parametrize("step", ["fetched", "committed"])
async def test_a_killed_consumer_loses_and_repeats_nothing(
    client: Any, broker: StreamServer, stream: str, pool: Pool, database_url: str, step: str
) -> None:
    """SIGKILL before the commit, or between commit and acknowledgement: another takes over, each happens once."""
    await publish(client, stream, "a", "b")
    await client.xadd(stream, {"bogus": "1"})
    arguments = ("redis", database_url, broker.url, stream, step)
    assert (await run_module("tests.support.intake_process", *arguments))[0] == -signal.SIGKILL
    assert (await client.xpending(stream, "postroom"))["pending"] == 3
    assert len(await keys_of(pool)) == (2 if step == "committed" else 0)
    source = open_source(broker, stream)
    assert await consume_all(pool, source) == 3
    assert await keys_of(pool) == ["a", "b"]
    assert len(await malformed_rows(pool)) == 1
    assert (await client.xpending(stream, "postroom"))["pending"] == 0
    await source.close()


async def test_entries_of_a_living_consumer_are_not_taken(
    client: Any, broker: StreamServer, stream: str, pool: Pool
) -> None:
    """Entries are taken over only after they have been idle for a while."""
    await publish(client, stream, "a")
    first, second = (open_source(broker, stream, claim_after=timedelta(minutes=1)) for _consumer in range(2))
    held = await first.fetch()
    assert len(held) == 1
    assert await second.fetch() == []
    await first.acknowledge(held)
    await first.close()
    await second.close()


async def test_a_failed_batch_is_read_again(client: Any, broker: StreamServer, stream: str, pool: Pool) -> None:
    """If the database could not commit, nothing is acknowledged and the same entries come next."""
    await publish(client, stream, "a")
    source = open_source(broker, stream, claim_after=timedelta(minutes=1))
    consumer = CommandConsumer(pool, source)
    async with pool.acquire() as connection:
        await connection.execute("ALTER FUNCTION wake_workers(text[]) RENAME TO wake_nobody")
        with pytest.raises(Exception, match="wake_workers"):
            await consumer.run_once()
        await connection.execute("ALTER FUNCTION wake_nobody(text[]) RENAME TO wake_workers")
    assert await consumer.run_once() == 1
    assert await keys_of(pool) == ["a"]
    await source.close()


async def test_lost_memory_cannot_duplicate(client: Any, broker: StreamServer, stream: str, pool: Pool) -> None:
    """Stream and group vanish; the producer publishes everything again; each command is still one delivery."""
    source = open_source(broker, stream)
    await publish(client, stream, "a", "b")
    await consume_all(pool, source)
    await client.delete(stream)
    assert await source.fetch() == []
    await publish(client, stream, "a", "b", "c")
    assert await consume_all(pool, source) == 3
    assert await keys_of(pool) == ["a", "b", "c"]
    await source.close()


async def test_another_group_still_finds_what_we_handled(
    client: Any, broker: StreamServer, stream: str, pool: Pool
) -> None:
    """Acknowledged entries are deleted only while no other group reads the stream."""
    await publish(client, stream, "a")
    await client.xgroup_create(stream, "audit", id="0")
    source = open_source(broker, stream)
    await consume_all(pool, source)
    assert await client.xlen(stream) == 1
    await source.close()


async def test_a_group_that_came_meanwhile_loses_nothing(
    client: Any, broker: StreamServer, stream: str, pool: Pool
) -> None:
    """Made between our reading and our acknowledging, it still finds every entry."""
    await publish(client, stream, "a", "b")
    source = open_source(broker, stream, claim_after=timedelta(minutes=1))
    held = await source.fetch()
    await client.xgroup_create(stream, "audit", id="0")
    await source.acknowledge(held)
    assert await client.xlen(stream) == 2
    assert (await client.xpending(stream, "postroom"))["pending"] == 0
    await source.close()


async def test_a_stream_that_vanished_is_acknowledged_all_the_same(
    client: Any, broker: StreamServer, stream: str, pool: Pool
) -> None:
    """Committed entries count as done even if the server lost them."""
    await publish(client, stream, "a")
    source = open_source(broker, stream)
    held = await source.fetch()
    await client.delete(stream)
    await source.acknowledge(held)
    await source.close()
    assert not await client.exists(stream)


async def test_an_entry_deleted_by_hand_is_let_go(client: Any, broker: StreamServer, stream: str, pool: Pool) -> None:
    """An entry deleted while pending for a dead consumer does not stay pending."""
    await publish(client, stream, "a", "b")
    dead = open_source(broker, stream)
    held = await dead.fetch()
    await client.xdel(stream, held[0].place.rpartition(" ")[2])
    await dead._client.aclose()
    source = open_source(broker, stream)
    await consume_all(pool, source)
    assert await keys_of(pool) == ["b"]
    assert (await client.xpending(stream, "postroom"))["pending"] == 0
    await source.close()


async def test_consumers_that_left_are_forgotten(client: Any, broker: StreamServer, stream: str, pool: Pool) -> None:
    """One that closes strikes itself off, unless it holds something; one that died is struck off by others."""
    await publish(client, stream, "a")
    holder, died, leaver = (open_source(broker, stream, claim_after=timedelta(minutes=1)) for _consumer in range(3))
    await holder.fetch()
    for source in (died, leaver):
        await source.fetch()
    await holder.close()
    await leaver.close()
    await died._client.aclose()
    assert len(await client.xinfo_consumers(stream, "postroom")) == 2
    sweeper = open_source(broker, stream, claim_after=timedelta(minutes=1), forget_after=AT_ONCE)
    await sweeper.fetch()
    names = {consumer["name"].decode() for consumer in await client.xinfo_consumers(stream, "postroom")}
    assert holder._options.consumer in names
    assert died._options.consumer not in names
    await sweeper.close()


async def test_a_server_that_is_away_is_waited_for(pool: Pool, stream: str) -> None:
    """The loop goes on when the stream dies, and takes up what is published once it is back, its memory gone."""
    import redis.asyncio

    acknowledged = asyncio.Event()

    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        first = await start_valkey(directory)
        source = open_source(first, stream)
        consumer = CommandConsumer(
            pool, source, signal=lambda step: acknowledged.set() if step == "acknowledged" else None
        )
        with capture_logs() as logs:
            async with looping(consumer.loop()):
                async with redis.asyncio.Redis.from_url(first.url, socket_timeout=PATIENCE_S) as client:
                    await publish(client, stream, "a")
                await asyncio.wait_for(acknowledged.wait(), PATIENCE_S)
                acknowledged.clear()
                await first.kill()
                await logged("loop_interrupted", logs)
                second = await start_valkey(directory)
                async with redis.asyncio.Redis.from_url(second.url, socket_timeout=PATIENCE_S) as client:
                    await publish(client, stream, "a", "b")
                while await keys_of(pool) != ["a", "b"]:
                    await asyncio.wait_for(acknowledged.wait(), PATIENCE_S)
                    acknowledged.clear()
        await source.close()
        await second.kill()
        assert not any(entry["event"] == "loop_failed" for entry in logs)
