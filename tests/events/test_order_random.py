"""Random transactions on the same deliveries: every reader sees each step once, and those of a delivery in their order.

One transaction at a time runs a statement, so that a seed gives the same history each time. A statement that would wait
for another of these transactions rolls its own back.
"""

from collections.abc import Awaitable, Callable
from random import Random

import asyncpg
import pytest
from tests.events.conftest import Opener
from tests.events.test_order_per_delivery import FOLLOWED, TOPIC, cancel, erase, fail_unwritable, redrive, settle
from tests.support.builders import BUSY, DELIVERED, Hands, Recording, a_mail, a_worker, accepted
from tests.support.outbox import settled
from tests.support.retention import swept

import postroom
from postroom.db.pool import Pool
from postroom.delivery.maintenance import RETENTION
from postroom.delivery.model import DeliveryId, Lane
from postroom.events import Cursor, EventStore, Query
from postroom.stats.worker import Rollup

RARE = Query.of("DeliveryCancelled", "DeliveryRedriven", "DeliveryDeadLettered")
STEPS = """
    SELECT delivery_id, step_fact_type(step) AS type, position
    FROM all_steps
    ORDER BY all_steps.transaction_id, position
"""
COUNTED = "SELECT metric, sum(amount)::int FROM stats_hourly GROUP BY 1 HAVING sum(amount) <> 0 ORDER BY 1"
"""Metrics that a correction brought back to nothing have a row with zero, or none after a rebuild."""


class History:
    """Transactions of applications, a worker, retention and statistics, in random order."""

    def __init__(self, pool: Pool, connections: list[asyncpg.Connection], random: Random) -> None:
        self._pool, self._connections, self._random = pool, connections, random
        self._open: dict[asyncpg.Connection, asyncpg.transaction.Transaction] = {}
        self._ids: list[DeliveryId] = []
        self._hands = Hands()
        transport = Recording(lambda _envelope: random.choice([BUSY, BUSY, BUSY, DELIVERED]))
        self._worker = a_worker(pool, transport, clock=self._hands)

    async def go_on(self) -> None:
        """Do one thing."""
        connection = self._random.choice([*self._connections, None, None])
        if connection is None:
            await self._random.choice(
                [self._accept, self._accept, self._work, self._work, self._sweep, self._roll_up]
            )()
        elif connection not in self._open:
            self._open[connection] = connection.transaction()
            await self._open[connection].start()
            await connection.execute("SELECT pg_current_xact_id()")
        elif self._random.random() < 0.3:
            await self._end(connection, self._random.random() < 0.8)
        else:
            await self._write(connection)

    async def end(self) -> None:
        """End the transactions that are open."""
        for connection in [*self._open]:
            await self._end(connection, is_committed=True)

    async def _end(self, connection: asyncpg.Connection, is_committed: bool) -> None:  # noqa: FBT001
        transaction = self._open.pop(connection)
        await (transaction.commit() if is_committed else transaction.rollback())

    async def _write(self, connection: asyncpg.Connection) -> None:
        writer = self._random.choice([cancel, cancel, cancel, redrive, fail_unwritable, settle, erase, None])
        try:
            if writer is None or not self._ids:
                sent = await postroom.send(connection, to="bob@example.org", subject="Hello", text="Hello", lane="auth")
                self._ids.append(sent)  # other transactions find nothing until the commit
            else:
                await writer(connection, self._random.choice(self._ids[-4:]))
        except asyncpg.LockNotAvailableError:
            await self._end(connection, is_committed=False)

    async def _accept(self) -> None:
        self._ids += await accepted(self._pool, a_mail(lane=Lane.AUTH), now=self._hands())

    async def _work(self) -> None:
        self._hands.forward(minutes=10)
        await self._worker.run_once(Lane.AUTH)

    async def _roll_up(self) -> None:
        await Rollup(self._pool).run_once()

    async def _sweep(self) -> None:
        await swept(self._pool, RETENTION, clock=Hands(self._hands().replace(year=2035)))


class Reader:
    """The positions that one kind of reader has returned."""

    def __init__(self, advance: Callable[[Cursor | None, int], Awaitable[tuple[Cursor | None, list[int]]]]) -> None:
        self._advance = advance
        self._cursor: Cursor | None = None
        self.seen: list[int] = []

    async def go_on(self, limit: int) -> bool:
        self._cursor, found = await self._advance(self._cursor, limit)
        self.seen += found
        return bool(found)


def every_reader(pool: Pool) -> dict[str, Reader]:
    store = EventStore(pool)

    async def read(query: Query, after: Cursor | None, limit: int) -> tuple[Cursor, list[int]]:
        reading = await store.read(query, after=after, limit=limit)
        return reading.cursor, [event.position for event in reading.events]

    async def follow(query: Query, after: Cursor | None, limit: int) -> tuple[Cursor, list[int]]:
        reading = await store.follow(query, after=after, limit=limit)
        return reading.cursor, [event.position for event in reading.events]

    async def publish(_after: Cursor | None, _limit: int) -> tuple[None, list[int]]:
        return None, [row["position"] for row in await pool.fetch(FOLLOWED.replace("SELECT type", "SELECT position"))]

    return {
        "read": Reader(lambda after, limit: read(Query.all(), after, limit)),
        "read rare types": Reader(lambda after, limit: read(RARE, after, limit)),
        "follow": Reader(lambda after, limit: follow(Query.all(), after, limit)),
        "follow rare types": Reader(lambda after, limit: follow(RARE, after, limit)),
        "publish": Reader(publish),
    }


@pytest.fixture
async def connections(opened: Opener) -> list[asyncpg.Connection]:
    found = [await opened() for _ in range(4)]
    for connection in found:
        await connection.execute("SET lock_timeout = '1ms'")
    return found


@pytest.mark.parametrize("seed", range(3))
async def test_every_reader_sees_each_step_once_and_in_order(
    pool: Pool, connections: list[asyncpg.Connection], seed: int
) -> None:
    """Transactions commit and roll back in any order, and readers read at any time."""
    await pool.execute(TOPIC)
    random = Random(seed)
    history, readers = History(pool, connections, random), every_reader(pool)
    for _ in range(300):
        await history.go_on()
        await random.choice([*readers.values()]).go_on(random.choice([1, 2, 500]))
    await history.end()
    await settled(pool)
    steps = await pool.fetch(STEPS)
    for name, reader in readers.items():
        while await reader.go_on(500):
            pass
        wanted = [step for step in steps if "rare" not in name or step["type"] in RARE.items[0].types]
        assert sorted(reader.seen) == sorted(step["position"] for step in wanted), name
        place = {position: index for index, position in enumerate(reader.seen)}
        # The row of a delivery is locked while a step is written, so positions tell in which order its steps were made.
        for delivery_id in {step["delivery_id"] for step in wanted}:
            made = sorted(step["position"] for step in wanted if step["delivery_id"] == delivery_id)
            assert made == sorted(made, key=place.__getitem__), name
    while await Rollup(pool).run_once():
        pass
    counted = await pool.fetch(COUNTED)
    await pool.execute("SELECT rebuild_stats()")
    assert await pool.fetch(COUNTED) == counted
