"""The buffer keeps hits while the database is unavailable, within bounded memory."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from structlog.testing import capture_logs
from tests.support.tracking import ADA, AN_HOUR_S, FAST, Desk, Steps, open_desk

from postroom.db.pool import Pool
from postroom.db.room import open_room
from postroom.embedded.server import EmbeddedServer, ServerOptions
from postroom.settings import Settings
from postroom.tracking.buffer import EngagementBuffer
from postroom.tracking.metrics import HITS_DROPPED
from postroom.tracking.model import Agent, LinkSubject, TrackedRequest

PERSON = Agent("person", is_machine=False)
OPTIONS = ServerOptions(fsync=False)


def hit(number: int, *, address: str = "ada@example.org", ip: str | None = None) -> TrackedRequest:
    return TrackedRequest(LinkSubject(None, number, address), 1_900_000_000 + number, PERSON, None, ip, None)


async def delivery_ids(pool: Pool) -> list[int]:
    return [row["id"] for row in await pool.fetch("SELECT email_queue_id AS id FROM open_events ORDER BY id")]


def dropped(cause: str) -> float:
    return float(HITS_DROPPED.labels(cause)._value.get())


@asynccontextmanager
async def own_server(directory: Path) -> AsyncIterator[tuple[EmbeddedServer, Desk]]:
    """A service on a database server that the test may stop; it restarts on the same port."""
    with socket.socket() as kept:  # reserves the port while the server is stopped
        kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        kept.bind(("127.0.0.1", 0))
        port = kept.getsockname()[1]
        server = EmbeddedServer(directory, replace(OPTIONS, extra=(("port", str(port)),)))
        url = await server.start()
        try:
            async with open_room(Settings(database_url=url), migrating=True) as room, open_desk(room.pool) as desk:
                yield server, desk
        finally:
            await server.stop()


async def test_hits_survive_an_unavailable_database(tmp_path: Path) -> None:
    """Pixels and links still work, an unsubscribe fails, and no hit is lost or written twice."""
    async with own_server(tmp_path / "data") as (server, desk):
        await desk.open(ADA)
        await desk.written()
        await server.stop()
        for number in range(20):
            assert (await desk.open(LinkSubject(7, 100 + number, "bob@example.org"))).status == 200
            assert (await desk.click(ADA)).status == 302
        await desk.steps.next("postponed")
        answer = await desk.post(desk.signer.unsubscribe_url(ADA), data={"List-Unsubscribe": "One-Click"})
        assert (answer.status, answer.headers["retry-after"]) == (503, "30")
        assert b"You are unsubscribed" not in answer.body
        assert (await desk.get(desk.signer.unsubscribe_url(ADA))).status == 200  # the page needs no database
        assert (await desk.get(desk.signer.preferences_url(ADA))).status == 503
        assert len(desk.buffer) == 40
        await server.start()
        await desk.written()
        assert await desk.figures() == {"opened": 21, "opened_unique": 21, "clicked": 20, "clicked_unique": 1}
        assert (await desk.post(desk.signer.unsubscribe_url(ADA))).status == 200
        assert await desk.value("SELECT count(*) FROM suppressions") == 1


async def test_full_buffer_drops_the_oldest_hits(pool: Pool) -> None:
    """Each hit beyond the limit drops the oldest one, which is counted and logged."""
    buffer = EngagementBuffer(pool, options=replace(FAST, capacity=10))
    before = dropped("full")
    with capture_logs() as logs:
        for number in range(25):
            buffer.add(hit(number))
    assert (len(buffer), dropped("full") - before) == (10, 15)
    assert [entry["event"] for entry in logs] == ["hits_dropped"]
    await buffer.run_once()
    assert await delivery_ids(pool) == list(range(15, 25))


async def test_failed_batch_returns_to_the_front(pool: Pool) -> None:
    """After a failure the order is kept, and newer hits take precedence in a full buffer."""
    buffer = EngagementBuffer(pool, options=replace(FAST, capacity=6, batch_limit=4))
    for number in range(4):
        buffer.add(hit(number))
    async with pool.acquire() as connection, connection.transaction():
        await connection.execute("LOCK TABLE open_events")
        writing = asyncio.create_task(buffer.run_once())
        while not await pool.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted"):
            pass
        for number in range(4, 8):
            buffer.add(hit(number))
        writing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await writing
    assert len(buffer) == 6
    await buffer.run_once()
    await buffer.run_once()
    assert await delivery_ids(pool) == [2, 3, 4, 5, 6, 7]


async def test_invalid_hit_is_dropped_alone(pool: Pool) -> None:
    """A hit that violates a constraint is dropped, counted, and logged without the address."""
    buffer = EngagementBuffer(pool, options=FAST)
    before = dropped("refused")
    for number in range(9):
        buffer.add(hit(number, ip="no address" if number == 5 else None))
    with capture_logs() as logs:
        await buffer.run_once()
    assert sorted(await delivery_ids(pool)) == [0, 1, 2, 3, 4, 6, 7, 8]
    assert dropped("refused") - before == 1
    assert [(entry["event"], entry["delivery_id"]) for entry in logs] == [("hit_refused", 5)]
    assert "ada" not in repr(logs)


async def test_stop_writes_the_rest(pool: Pool) -> None:
    """All hits before the stop are in the database after it, whatever the collection interval."""
    buffer = EngagementBuffer(pool, options=replace(FAST, linger_s=AN_HOUR_S, batch_limit=7))
    running = asyncio.create_task(buffer.run())
    for number in range(20):
        buffer.add(hit(number))
    buffer.stop()
    await running
    assert await delivery_ids(pool) == list(range(20))


async def test_stop_without_a_database_logs_lost_hits(tmp_path: Path) -> None:
    """After the final retries, the log has the number of lost hits."""
    server = EmbeddedServer(tmp_path / "data", OPTIONS)
    url = await server.start()
    async with open_room(Settings(database_url=url), migrating=True) as room:
        await server.stop()
        steps = Steps()
        buffer = EngagementBuffer(room.pool, options=replace(FAST, stop_grace_s=0.2), signal=steps)
        running = asyncio.create_task(buffer.run())
        buffer.add(hit(1))
        await steps.next("postponed")
        with capture_logs() as logs:
            buffer.stop()
            await running
    assert logs[-1] == {"event": "hits_lost_at_stop", "hits": 1, "log_level": "error"}


async def test_full_batch_is_written_at_once(pool: Pool) -> None:
    """A full batch does not wait for the collection interval."""
    steps = Steps()
    buffer = EngagementBuffer(pool, options=replace(FAST, linger_s=AN_HOUR_S, batch_limit=5), signal=steps)
    running = asyncio.create_task(buffer.run())
    for number in range(5):
        buffer.add(hit(number))
    await steps.next("written")
    assert len(await delivery_ids(pool)) == 5
    buffer.stop()
    await running


async def test_concurrent_writers_count_a_delivery_once(pool: Pool) -> None:
    """Two processes that write opens of the same deliveries agree on the first."""
    first, second = EngagementBuffer(pool, options=FAST), EngagementBuffer(pool, options=FAST)
    for number in range(200):
        first.add(hit(number))
        second.add(hit(199 - number)._replace(at=1_900_001_000.5 + number))
    await asyncio.gather(first.run_once(), second.run_once())
    rows = await pool.fetch("SELECT metric, sum(amount)::int AS amount FROM stat_deltas GROUP BY 1 ORDER BY 1")
    assert [tuple(row) for row in rows] == [("opened", 400), ("opened_unique", 200)]
