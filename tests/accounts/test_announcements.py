"""Notifications on `token_insert` for outside listeners, while collectors are idle and while they are busy."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from tests.conftest import SCHEMA
from tests.support.accounts import KEY, collector, run_once, settle, sign_up
from tests.support.patience import PATIENCE_S

from postroom.accounts.model import DueToken
from postroom.accounts.worker import CHANNEL, Collector, CollectorOptions, run_collector
from postroom.db.pool import Pool, Session, connect
from postroom.db.queries import Connection
from postroom.db.room import Room
from postroom.settings import Settings


class Outsider:
    """A listener that is not a collector."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._heard: asyncio.Queue[str] = asyncio.Queue()

    async def listen(self) -> None:
        await self._session.add_listener(CHANNEL, lambda *event: self._heard.put_nowait(str(event[3])))

    async def heard(self) -> int:
        """The number of notifications since the last call; its own notification marks the end."""
        await self._session.execute(f"NOTIFY {CHANNEL}, 'so far'")
        count = 0
        while await asyncio.wait_for(self._heard.get(), PATIENCE_S) != "so far":
            count += 1
        return count

    async def hears(self) -> None:
        await asyncio.wait_for(self._heard.get(), PATIENCE_S)


@pytest.fixture
async def outsider(database_url: str) -> AsyncIterator[Outsider]:
    session = await connect(database_url, SCHEMA)
    listening = Outsider(session)
    await listening.listen()
    yield listening
    await session.close()


@asynccontextmanager
async def collecting(room: Room, url: str) -> AsyncIterator[None]:
    """A real collector with its listener, as a process runs it."""
    stop = asyncio.Event()
    settings = Settings(database_url=url, secret_key=KEY, batch_limit=5)
    task = asyncio.create_task(run_collector(replace(room, settings=settings), stop=stop))
    try:
        yield
    finally:
        stop.set()
        await task


async def become_busy(pool: Pool) -> None:
    """Take a full batch, and mark the collector as busy for longer than any test lasts."""
    for name in ("one", "two", "three"):
        await sign_up(pool, name)
    assert await run_once(pool, collector(pool, batch_limit=3)) == 3
    await pool.execute("UPDATE busy_jobs SET until = until + interval '1 hour'")  # still -infinity if it was never busy


async def test_last_tokens_of_a_burst_are_notified(pool: Pool, outsider: Outsider) -> None:
    """Commits while a collector is busy do not notify; the drain that takes them does, even if not full."""
    await become_busy(pool)
    await outsider.heard()
    await sign_up(pool, "last")
    assert await outsider.heard() == 0
    await settle(pool)
    assert await collector(pool, batch_limit=3).drain() == 1
    assert await outsider.heard() == 1


async def test_consumed_token_is_notified_too(pool: Pool, outsider: Outsider) -> None:
    """A token that was consumed before collection is skipped, but listeners are notified of it."""
    await become_busy(pool)
    await sign_up(pool, "quick")
    await pool.execute("UPDATE tokens SET consumed_at = 1")
    await outsider.heard()
    assert await run_once(pool) == 0
    assert await outsider.heard() == 1


async def test_failed_batch_does_not_notify(pool: Pool, outsider: Outsider) -> None:
    """The notification is part of the transaction that advances the cursor."""

    async def refuse(_connection: Connection, _tokens: Sequence[DueToken]) -> None:
        raise ConnectionResetError

    await sign_up(pool, "ada")
    await outsider.heard()
    with pytest.raises(ConnectionResetError):
        await run_once(pool, Collector(pool, refuse, options=CollectorOptions()))
    assert await outsider.heard() == 0


async def test_poll_without_tokens_does_not_notify(pool: Pool, outsider: Outsider) -> None:
    """A cursor that does not advance does not notify."""
    await sign_up(pool, "ada")
    await run_once(pool)
    await outsider.heard()
    assert await run_once(pool) == 0
    assert await outsider.heard() == 0


async def test_listener_beside_a_collector_misses_no_token(room: Room, database_url: str, outsider: Outsider) -> None:
    """A listener that reads the table only at notifications reads every token."""
    seen: set[int] = set()
    async with collecting(room, database_url), asyncio.timeout(PATIENCE_S * 2):
        for number in range(60):
            await sign_up(room.pool, f"person-{number}")
        while len(seen) < 60:
            await outsider.hears()
            seen |= {row["id"] for row in await room.pool.fetch("SELECT id FROM tokens")}
    assert len(seen) == 60
