"""`python -m bench.schedule`: how fast due events become deliveries, and what a look costs when nothing is due.

Three numbers. The rate from claim to handover, with the delivery accepted and next year's event planned. The cost of a
tick with ten thousand, a million and, if asked, ten million events in the future. And, at five hundred events falling
due each second, the share that is handed over within a second of its time. A fresh PostgreSQL, fsync on.
"""

import argparse
import asyncio
import contextlib
import statistics
import sys
import time
from bisect import bisect_left
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import structlog
import uvloop

from bench.server import Arena, running_server
from bench.statements import read_statements
from postroom.db.migrate import migrate
from postroom.db.pool import Pool, open_pool
from postroom.schedule.model import Policy
from postroom.schedule.worker import Scheduler, SchedulerOptions

SQL = read_statements(Path(__file__).with_suffix(".sql"))
ROOM = "postroom"
POLICY = Policy(webhook_url="https://hooks.example.org/greet")
OPTIONS = SchedulerOptions(policy=POLICY)
TICKS = 300


@contextlib.asynccontextmanager
async def room(arena: Arena, name: str) -> AsyncIterator[Pool]:
    """A migrated database of its own."""
    url = await arena.create_database(name)
    await migrate(url, ROOM)
    pool = await open_pool(url, ROOM, size=10)
    try:
        yield pool
    finally:
        await pool.close()


async def measure_rate(arena: Arena, events: int, schedulers: int) -> float:
    """Events per second from due to handed over, all due in the same second."""
    async with room(arena, f"rate_{schedulers}") as pool:
        await pool.execute(SQL["fill_due"], events, datetime.now(UTC) - timedelta(hours=1), timedelta())
        await pool.execute(SQL["settle"])
        started = time.perf_counter()
        handed = await asyncio.gather(*(Scheduler(pool, OPTIONS).run_once() for _ in range(schedulers)))
        elapsed = time.perf_counter() - started
    assert sum(handed) == events
    return events / elapsed


async def measure_ticks(arena: Arena, future: int) -> tuple[float, float]:
    """Milliseconds of a look that finds nothing, and of one that finds a hundred, with so many in the future."""
    async with room(arena, f"ticks_{future}") as pool:
        await pool.execute(SQL["fill_future"], future)
        await pool.execute(SQL["settle"])
        scheduler = Scheduler(pool, OPTIONS)
        empty, full = [], []
        for _ in range(TICKS):
            started = time.perf_counter()
            await scheduler.run_once()
            await scheduler._time_to_next()  # noqa: SLF001 - the other half of a tick
            empty.append(time.perf_counter() - started)
        for _ in range(TICKS // 10):
            await pool.execute(SQL["fill_due"], 100, datetime.now(UTC) - timedelta(hours=1), timedelta())
            started = time.perf_counter()
            await scheduler.run_once()
            full.append(time.perf_counter() - started)
    return statistics.median(empty) * 1000, statistics.median(full) * 1000


async def measure_pace(arena: Arena, per_second: int, seconds: int) -> tuple[float, float]:
    """The share handed over within a second of its time, and the 99th percentile of the delay, by one scheduler."""
    done: list[datetime] = []

    def heard(step: str) -> None:
        if step == "handed_over":
            done.append(datetime.now(UTC))

    async with room(arena, "pace") as pool:
        first = datetime.now(UTC) + timedelta(seconds=3)
        await pool.execute(SQL["fill_due"], per_second * seconds, first, timedelta(seconds=1 / per_second))
        await pool.execute(SQL["settle"])
        scheduler = Scheduler(pool, OPTIONS, signal=heard)
        running = asyncio.create_task(scheduler.run())
        await asyncio.sleep(seconds + 5)
        scheduler.stop()
        await running
        rows = await pool.fetch(SQL["list_handovers"], first)
    # A delivery's time is the beginning of its transaction; it was handed over when that ended.
    delays = sorted((done[bisect_left(done, row["handed"])] - row["target"]).total_seconds() for row in rows)
    share = sum(delay <= 1 for delay in delays) / (per_second * seconds)
    return share, delays[int(len(delays) * 0.99)]


async def run(options: argparse.Namespace) -> None:
    futures = [10_000, 1_000_000] if not options.quick else [1_000, 10_000]
    if options.ten_million:
        futures.append(10_000_000)
    async with running_server() as arena:
        for schedulers in (1, 2):
            rate = await measure_rate(arena, options.events, schedulers)
            print(f"claim to handover, {schedulers} scheduler(s): {rate:,.0f} events/s")
        for future in futures:
            empty, full = await measure_ticks(arena, future)
            print(f"tick with {future:>10,} future events: empty {empty:.2f} ms, a hundred due {full:.1f} ms")
        share, slowest = await measure_pace(arena, 500, 3 if options.quick else 15)
        print(f"at 500/s: {share:.2%} within 1 s of their time, 99th percentile {slowest:.3f} s")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.schedule", description=__doc__)
    parser.add_argument("--events", type=int, default=20_000, help="due events for the rate (20000)")
    parser.add_argument("--quick", action="store_true", help="small numbers: does it run?")
    parser.add_argument("--ten-million", action="store_true", help="also with ten million events in the future")
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    uvloop.run(run(parser.parse_args()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
