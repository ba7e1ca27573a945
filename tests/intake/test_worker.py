"""The loop of a consumer: patience, and an end without loss."""

import asyncio
from collections.abc import Sequence

import asyncpg
import pytest
from structlog.testing import capture_logs
from tests.support.builders import Steps
from tests.support.intake import entries, keys_of, raw
from tests.support.loops import logged, looping
from tests.support.streams import nats_server

from postroom.db.pool import Pool
from postroom.errors import SettingInvalid
from postroom.intake.model import StreamEntry
from postroom.intake.source import open_sources
from postroom.intake.worker import CommandConsumer, open_consumers
from postroom.settings import read_settings


class ListSource:
    """A stream in a list: what is not acknowledged is handed out again. `failures` counts how often it is away."""

    interruptions = ()

    def __init__(self, *batches: Sequence[StreamEntry], failures: int = 0) -> None:
        self.waiting = list(batches)
        self.failures = failures
        self.acknowledged: list[StreamEntry] = []
        self.given_back: list[StreamEntry] = []
        self.is_closed = False

    async def fetch(self) -> Sequence[StreamEntry]:
        await asyncio.sleep(0)
        if self.failures:
            self.failures -= 1
            raise ConnectionError
        return self.waiting.pop(0) if self.waiting else []

    async def acknowledge(self, entries: Sequence[StreamEntry]) -> None:
        self.acknowledged += entries

    async def give_back(self, entries: Sequence[StreamEntry]) -> None:
        self.given_back += entries
        self.waiting.insert(0, entries)

    async def close(self) -> None:
        self.is_closed = True


def test_sources_come_from_the_settings() -> None:
    """No stream is read unless its URL is set; then each has one."""
    assert open_sources(read_settings({})) == []
    pytest.importorskip("redis", reason="redis is not installed: opening its source is NOT tested")
    pytest.importorskip("nats", reason="nats-py is not installed: opening its source is NOT tested")
    urls = {"POSTROOM_REDIS_URL": "redis://127.0.0.1:1", "POSTROOM_NATS_URL": "nats://127.0.0.1:1,nats://127.0.0.1:2"}
    assert [type(source).__name__ for source in open_sources(read_settings(urls))] == ["RedisSource", "NatsSource"]
    with pytest.raises(SettingInvalid, match="POSTROOM_REDIS_URL"):
        read_settings({"POSTROOM_REDIS_URL": "http://127.0.0.1"})


@pytest.mark.usefixtures("patient")
async def test_created_nats_stream_has_the_configured_replicas() -> None:
    """A server that is alone refuses three copies of a stream, and so shows that they were asked for."""
    async with nats_server() as broker:
        urls = {"POSTROOM_NATS_URL": broker.url}
        [alone] = open_sources(read_settings(urls))
        [copied] = open_sources(read_settings({**urls, "POSTROOM_NATS_REPLICAS": "3"}))
        with pytest.raises(Exception, match="replicas > 1 not supported"):
            await copied.fetch()
        assert await alone.fetch() == []
        await alone.close()
        await copied.close()


async def test_missing_nats_server_interrupts_the_loop(pool: Pool) -> None:
    """The first connect has a timeout; the loop retries, and stops when asked."""
    pytest.importorskip("nats", reason="nats-py is not installed: an absent NATS server is NOT tested")
    [source] = open_sources(read_settings({"POSTROOM_NATS_URL": "nats://127.0.0.1:1"}))
    with capture_logs() as logs:
        async with open_consumers(pool, [source]) as loops, looping(*loops):
            await logged("loop_interrupted", logs)
    assert not any(entry["event"] == "loop_failed" for entry in logs)


async def test_entries_are_acknowledged_after_the_commit(pool: Pool) -> None:
    """Fetch, commit, acknowledge: at the moment of the commit nothing is acknowledged yet."""
    source = ListSource(entries(raw()))
    seen: list[tuple[str, int]] = []
    consumer = CommandConsumer(pool, source, signal=lambda step: seen.append((step, len(source.acknowledged))))
    assert await consumer.run_once() == 1
    assert seen == [("fetched", 0), ("committed", 0), ("acknowledged", 1)]
    assert await consumer.run_once() == 0


async def test_the_loop_outlives_a_stream_that_is_away(pool: Pool) -> None:
    """It retries until everything is consumed; a stop closes the source."""
    source = ListSource(entries(raw(idempotency_key="a")), entries(raw(idempotency_key="b")), failures=3)
    steps = Steps()
    async with open_consumers(pool, [source], signal=steps) as loops, looping(*loops):
        await steps.reached("acknowledged", times=2)
    assert await keys_of(pool) == ["a", "b"]
    assert source.is_closed


async def test_a_database_that_is_away_gives_the_entries_back(pool: Pool) -> None:
    """Nothing is acknowledged that was not committed."""
    source = ListSource(entries(raw()))
    await pool.close()
    with pytest.raises(asyncpg.InterfaceError):
        await CommandConsumer(pool, source).run_once()
    assert source.acknowledged == []
    assert [entry.raw for entry in source.given_back] == [raw()]
