"""What listeners outside hear on `token_insert`, while collectors rest and while they are busy."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

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
    """A listener that is no collector."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._heard: asyncio.Queue[str] = asyncio.Queue()

    async def listen(self) -> None:
        await self._session.add_listener(CHANNEL, lambda *event: self._heard.put_nowait(str(event[3])))

    async def heard(self) -> int:
        """How many notifications have come since the last time; it asks for one of its own and stops there."""
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
    """A real collector, as a process runs it."""
    stop = asyncio.Event()
    settings = Settings(database_url=url, secret_key=KEY, batch_limit=5)
    task = asyncio.create_task(run_collector(Room(settings, room.url, room.direct_url, room.pool), stop=stop))
    try:
        yield
    finally:
        stop.set()
        await task


async def become_busy(pool: Pool) -> None:
    """A full batch has been taken, and a collector counts as busy for longer than any test lasts."""
    for name in ("one", "two", "three"):
        await sign_up(pool, name)
    assert await run_once(pool, collector(pool, batch_limit=3)) == 3
    await pool.execute("UPDATE busy_jobs SET until = until + interval '1 hour'")  # never busy, that is -infinity still


async def test_the_end_of_a_burst_is_announced(pool: Pool, outsider: Outsider) -> None:
    """Commits while a collector is busy are silent; the drain that takes them notifies, though it is not full."""
    await become_busy(pool)
    await outsider.heard()
    await sign_up(pool, "last")
    assert await outsider.heard() == 0
    await settle(pool)
    assert await collector(pool, batch_limit=3).drain() == 1
    assert await outsider.heard() == 1


async def test_a_token_nobody_mails_is_announced_too(pool: Pool, outsider: Outsider) -> None:
    """One that was consumed before the collector came is passed by, and was new all the same."""
    await become_busy(pool)
    await sign_up(pool, "quick")
    await pool.execute("UPDATE tokens SET consumed_at = 1")
    await outsider.heard()
    assert await run_once(pool) == 0
    assert await outsider.heard() == 1


async def test_a_batch_that_fails_announces_nothing(pool: Pool, outsider: Outsider) -> None:
    """The notification belongs to the transaction that passes the tokens."""

    async def refuse(_connection: Connection, _tokens: Sequence[DueToken]) -> None:
        raise ConnectionResetError

    await sign_up(pool, "ada")
    await outsider.heard()
    with pytest.raises(ConnectionResetError):
        await run_once(pool, Collector(pool, refuse, options=CollectorOptions()))
    assert await outsider.heard() == 0


async def test_looking_in_vain_announces_nothing(pool: Pool, outsider: Outsider) -> None:
    """A cursor that does not move has nothing to tell."""
    await sign_up(pool, "ada")
    await run_once(pool)
    await outsider.heard()
    assert await run_once(pool) == 0
    assert await outsider.heard() == 0


async def test_nobody_who_listens_beside_a_running_collector_misses_a_token(
    room: Room, database_url: str, outsider: Outsider
) -> None:
    """Whoever reads the table at each notification, and at no other time, has read every token in the end."""
    seen: set[int] = set()
    async with collecting(room, database_url), asyncio.timeout(PATIENCE_S * 2):
        for number in range(60):
            await sign_up(room.pool, f"person-{number}")
        while len(seen) < 60:
            await outsider.hears()
            seen |= {row["id"] for row in await room.pool.fetch("SELECT id FROM tokens")}
    assert len(seen) == 60
