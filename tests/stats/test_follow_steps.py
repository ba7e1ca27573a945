"""The rollup follows the log of steps: nothing is skipped or counted twice, and the figures can be rebuilt."""

import asyncio
import os
import signal
import sys

import pytest
from tests.support.builders import (
    BUSY,
    DELIVERED,
    REFUSED,
    Recording,
    a_checked_mail,
    a_mail,
    a_worker,
    accepted,
    until,
)

from postroom.db.pool import Pool, connect
from postroom.delivery import service as deliveries
from postroom.delivery.model import Lane
from postroom.stats import service
from postroom.stats.model import Figures, Selection
from postroom.stats.worker import Rollup, RollupOptions

DIMENSION = (
    "SELECT metric, sum(amount)::int AS amount FROM stats_dimension_hours WHERE dimension = $1::text::stats_dimension"
    " GROUP BY metric HAVING sum(amount) <> 0"
)
HOURLY = "SELECT metric, sum(amount)::int AS amount FROM stats_hourly GROUP BY metric HAVING sum(amount) <> 0"


async def figures(pool: Pool) -> Figures:
    return await service.total(pool, Selection())


async def rolled_up(pool: Pool) -> dict[str, int]:
    """The rolled up amounts by metric, which are the same in every dimension: each mail has one tag."""
    found = {row["metric"]: row["amount"] for row in await pool.fetch(HOURLY)}
    for dimension in ("total", "campaign", "sender", "template", "tag"):
        rows = await pool.fetch(DIMENSION, dimension)
        assert (dimension, {row["metric"]: row["amount"] for row in rows}) == (dimension, found)
    return found


async def settle(pool: Pool) -> None:
    """Roll up everything; an open transaction of another test, in any database, may hold the rollup back."""
    rollup = Rollup(pool)
    behind = "SELECT EXISTS (SELECT FROM all_steps, stats_cursor AS c"
    behind += " WHERE (all_steps.transaction_id, all_steps.position) > (c.transaction_id, c.position))"
    async with asyncio.timeout(60):
        while await rollup.run_once() or await pool.fetchval(behind):
            pass


async def test_transactions_that_commit_out_of_order_are_all_counted(pool: Pool, database_url: str) -> None:
    """The rollup stops before the oldest open transaction; the tail is added by readers until it commits."""
    open_ones = [await connect(database_url, "postroom") for _ in range(3)]
    transactions = [connection.transaction() for connection in open_ones]
    for connection, transaction in zip(open_ones, transactions, strict=True):
        await transaction.start()
        await deliveries.accept(connection, a_checked_mail(tags={"kind": "test"}))
    await accepted(pool, a_mail(), a_mail())
    rollup, seen = Rollup(pool, RollupOptions(batch=1)), []
    for number in (2, 0, 1):
        await rollup.run_once()
        assert await rolled_up(pool) == {} or number != 2  # the first is open: nothing after it is rolled up
        seen.append((await figures(pool)).accepted)
        await transactions[number].commit()
    seen.append((await figures(pool)).accepted)
    await settle(pool)
    assert seen == [2, 3, 4, 5]
    assert await rolled_up(pool) == {"accepted": 5}
    assert (await figures(pool)).accepted == 5
    for connection in open_ones:
        await connection.close()


async def test_concurrent_writers_and_rollups_count_every_step_once(pool: Pool) -> None:
    """Figures never decrease while writers commit and three rollups run."""
    writing, seen = 8, []

    async def write() -> None:
        nonlocal writing
        for _ in range(10):
            await accepted(pool, a_mail(tags={"kind": "test"}))
        writing -= 1

    async def roll() -> None:
        rollup = Rollup(pool, RollupOptions(batch=7))
        while await rollup.run_once() or writing:
            pass

    async def read() -> None:
        while writing:
            seen.append((await figures(pool)).accepted)

    async with asyncio.timeout(120), asyncio.TaskGroup() as group:
        for job in (*[write] * writing, roll, roll, roll, read):
            group.create_task(job())
    await settle(pool)
    assert seen == sorted(seen)
    assert await rolled_up(pool) == {"accepted": 80}


KILLED = """
import asyncio, sys
from postroom.db.pool import connect

async def main():
    connection = await connect(sys.argv[1], "postroom")
    await connection.execute("SET application_name = 'rollup_to_kill'")
    async with connection.transaction():
        await connection.fetchval("SELECT fold_stats(100)")
        await connection.execute("SELECT pg_advisory_lock(4242)")  # the test holds it

asyncio.run(main())
"""


async def test_a_process_killed_in_the_middle_counts_nothing_twice(pool: Pool, database_url: str) -> None:
    """Its transaction is rolled back with its cursor: the next rollup counts the same steps."""
    await accepted(pool, a_mail(), a_mail())
    holder = await connect(database_url, "postroom")
    await holder.execute("SELECT pg_advisory_lock(4242)")
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", KILLED, database_url)
    waits = (
        "EXISTS (SELECT FROM pg_stat_activity WHERE application_name = 'rollup_to_kill' AND wait_event = 'advisory')"
    )
    await until(pool, waits)
    os.kill(process.pid, signal.SIGKILL)
    await process.wait()
    await holder.close()
    await until(pool, "NOT EXISTS (SELECT FROM pg_stat_activity WHERE application_name = 'rollup_to_kill')")
    assert await figures(pool) == Figures(accepted=2)
    await settle(pool)
    assert await rolled_up(pool) == {"accepted": 2}
    assert await figures(pool) == Figures(accepted=2)


@pytest.mark.parametrize("is_rolled_up", [False, True])
async def test_rebuilt_figures_equal_the_former(pool: Pool, *, is_rolled_up: bool) -> None:
    """All steps are counted again; counts that are no steps stay as they are."""
    await accepted(pool, *(a_mail() for _ in range(3)))
    await a_worker(pool, Recording(BUSY, DELIVERED, REFUSED)).run_once(Lane.TRANSACTIONAL)
    await pool.execute("INSERT INTO stat_deltas (hour, metric, amount) VALUES (now(), 'opened', 7)")
    before = await service.measure(pool, Selection(), groups=[])
    if is_rolled_up:
        await settle(pool)
    assert await service.rebuild(pool, actor="tests") == 6
    assert await service.measure(pool, Selection(), groups=[]) == before
    await settle(pool)
    assert await service.measure(pool, Selection(), groups=[]) == before


async def test_rebuilding_corrects_lost_counts(pool: Pool) -> None:
    """Hours that were damaged are written again from the steps."""
    await accepted(pool, a_mail(), a_mail())
    await settle(pool)
    await pool.execute("UPDATE stats_hourly SET amount = 99")
    assert await service.rebuild(pool, actor="tests") == 2
    assert await figures(pool) == Figures(accepted=2)


async def test_rebuilding_keeps_months_whose_steps_were_archived(pool: Pool) -> None:
    """A month of which a part is in the archive cannot be counted again."""
    await accepted(pool, a_mail(), a_mail())
    await settle(pool)
    await pool.execute(
        "INSERT INTO archived_partitions (state, is_attached, part, from_time, to_time, table_name, source_name, path)"
        " SELECT 'collecting', false, 1, month, month + interval '1 month', 'delivery_steps', 'elsewhere', 'nowhere'"
        " FROM date_trunc('month', now(), 'UTC') AS month"
    )
    await pool.execute("DELETE FROM deliveries WHERE id = 1")
    await service.rebuild(pool, actor="tests")
    assert await figures(pool) == Figures(accepted=2)


async def test_reading_the_tail_does_not_scan_the_steps(pool: Pool) -> None:
    """Figures read the steps after the cursor by their order, however many are before it."""
    await accepted(pool, a_mail())
    await settle(pool)
    async with pool.acquire() as connection, connection.transaction():
        scans = (
            "SELECT coalesce(sum(seq_scan), 0)::int FROM pg_stat_xact_user_tables"
            " WHERE relname LIKE 'delivery_steps%' OR relname = 'deliveries'"
        )
        before = await connection.fetchval(scans)
        await connection.fetch("SELECT * FROM read_counts()")
        assert await connection.fetchval(scans) == before
