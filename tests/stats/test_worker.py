"""The rollup: figures are the same before, during and after a fold, with any number of processes."""

import asyncio
from datetime import timedelta

from tests.support.builders import NOON, until
from tests.support.loops import looping

from postroom.db.pool import Pool
from postroom.stats import service
from postroom.stats.model import Figures, Selection
from postroom.stats.worker import Rollup, RollupOptions

WRITE = """
    INSERT INTO stat_deltas (hour, campaign_id, sender_account_id, domain, metric, amount)
    SELECT $1::timestamptz + make_interval(hours => n % 3), nullif(n % 4, 0), nullif(n % 2, 0), 'd' || n % 5, metric, 1
    FROM generate_series(1, $2::integer) AS n, unnest(ARRAY['accepted', 'sent']) AS metric
"""


async def test_fold_moves_deltas_into_their_hours(pool: Pool) -> None:
    """Deltas of the same hour, campaign, sender, domain and metric become one row, and none remains."""
    await pool.execute(
        """
        INSERT INTO stat_deltas (hour, campaign_id, domain, metric, amount)
        VALUES ($1, 7, 'a.example', 'sent', 2), ($1, 7, 'a.example', 'sent', 3), ($1, NULL, '', 'accepted', 1)
        """,
        NOON,
    )
    assert await Rollup(pool).run_once() == 3
    rows = await pool.fetch("SELECT * FROM stats_hourly ORDER BY campaign_id")
    assert [tuple(row.values()) for row in rows] == [
        (NOON, 0, 0, 1, "", "accepted"),
        (NOON, 7, 0, 5, "a.example", "sent"),
    ]
    assert await Rollup(pool).run_once() == 0


async def test_fold_is_bounded(pool: Pool) -> None:
    """A transaction folds at most one batch."""
    await pool.execute(WRITE, NOON, 5)
    rollup = Rollup(pool, RollupOptions(batch=4))
    assert [await rollup.run_once() for _ in range(4)] == [4, 4, 2, 0]


async def test_second_fold_adds_to_the_hour(pool: Pool) -> None:
    """An hour stays one row when more deltas are folded."""
    for _ in range(3):
        await pool.execute(WRITE, NOON, 1)
        await Rollup(pool).run_once()
    assert await pool.fetchval("SELECT array_agg(amount) FROM stats_hourly") == [3, 3]


async def test_concurrent_fold_returns_zero(pool: Pool) -> None:
    """A second process does not wait for the lock, so folds cannot deadlock."""
    await pool.execute(WRITE, NOON, 5)
    async with pool.acquire() as connection, connection.transaction():
        assert await connection.fetchval("SELECT fold_stats(5)") == 5
        assert await Rollup(pool).run_once() == 0
    assert await Rollup(pool).run_once() == 5


async def test_rolled_back_fold_changes_nothing(pool: Pool) -> None:
    """A rollup that fails leaves every delta in place."""
    await pool.execute(WRITE, NOON, 5)
    async with pool.acquire() as connection:
        transaction = connection.transaction()
        await transaction.start()
        await connection.fetchval("SELECT fold_stats(100)")
        await transaction.rollback()
    assert await pool.fetchval("SELECT count(*) FROM stat_deltas") == 10
    assert await service.total(pool, Selection()) == Figures(accepted=5, sent=5)


class Rush:
    """Run writers, rollups and readers at once; readers continue until the others finish."""

    def __init__(self, pool: Pool, *, writers: int) -> None:
        self._pool, self._writing, self._folding = pool, writers, 3
        self.readings: list[list[int]] = []

    async def write(self) -> None:
        for _ in range(25):
            await self._pool.execute(WRITE, NOON, 10)
        self._writing -= 1

    async def fold(self) -> None:
        rollup = Rollup(self._pool, RollupOptions(batch=37))
        while (
            await rollup.run_once() or self._writing or await self._pool.fetchval("SELECT 1 FROM stat_deltas LIMIT 1")
        ):
            pass
        self._folding -= 1

    async def read(self) -> None:
        """Both metrics are written in one transaction, so a partial read would show a difference."""
        seen = []
        while self._folding:
            figures = await service.total(self._pool, Selection())
            assert figures.accepted == figures.sent
            seen.append(figures.sent)
        self.readings.append(seen)

    async def run(self) -> None:
        async with asyncio.timeout(60), asyncio.TaskGroup() as group:
            for job in (*[self.write] * self._writing, *[self.fold] * self._folding, *[self.read] * 3):
                group.create_task(job())


async def test_figures_are_constant_during_folds(pool: Pool) -> None:
    """Readers see the exact counts during many small folds by three processes."""
    await pool.execute(WRITE, NOON, 500)
    rush = Rush(pool, writers=0)
    await rush.run()
    assert {amount for seen in rush.readings for amount in seen} == {500}
    assert await pool.fetchval("SELECT count(*) FROM stat_deltas") == 0
    assert await service.total(pool, Selection()) == Figures(accepted=500, sent=500)


async def test_concurrent_writers_folds_and_readers_agree(pool: Pool) -> None:
    """Every reading has whole transactions, and figures never decrease."""
    rush = Rush(pool, writers=4)
    await rush.run()
    for seen in rush.readings:
        assert seen == sorted(seen)
        assert {amount % 10 for amount in seen} == {0}
    assert await pool.fetchval("SELECT sum(amount) FROM stats_hourly WHERE metric = 'sent'") == 1000


async def test_full_batch_is_followed_by_the_next_at_once(pool: Pool) -> None:
    """The loop waits only after a batch that was not full."""
    await pool.execute(WRITE, NOON, 10)
    rollup = Rollup(pool, RollupOptions(batch=8, interval=timedelta(hours=1)))
    async with looping(rollup.loop()):
        await until(pool, "NOT EXISTS (SELECT FROM stat_deltas)")
    assert await pool.fetchval("SELECT count(*) FROM stats_hourly") > 0
