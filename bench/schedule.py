"""People due at their own time: how fast greetings are handed over, and what a look costs.

    python -m bench.schedule                      with up to ten million events in the future
    python -m bench.schedule --largest 1000000    with fewer: it takes a minute, not five
    python -m bench.schedule --quick              small numbers: does it run?

    rate     events per second from due to handed over, with the delivery accepted and next year's event planned
    tick     milliseconds of a look that finds nothing, and of one that finds a hundred, with few and with very many
             events in the future; the rooms stand side by side and are looked at in turn, so that a slow moment of the
             machine meets all of them; medians
    pace     with so many falling due each second: the share that one scheduler hands over within a second of its time

Targets: 2,000 events/s; a tick with the most events in the future costs at most a fifth more than with the fewest; 99 %
within a second at 500/s. Exits 1 if one is missed. A fresh PostgreSQL, fsync on.
"""

import argparse
import asyncio
import contextlib
import statistics
import sys
import time
from bisect import bisect_left
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import structlog
import uvloop

from bench.server import Arena, running_server
from bench.statements import read_statements
from postroom.db.migrate import migrate
from postroom.db.pool import Pool, open_pool
from postroom.runtime.loop import run_loops
from postroom.schedule.model import SchedulePolicy
from postroom.schedule.worker import Scheduler, SchedulerOptions

SQL = read_statements(Path(__file__).with_suffix(".sql"))
ROOM = "postroom"
POLICY = SchedulePolicy(webhook_url="https://hooks.example.org/greet")
OPTIONS = SchedulerOptions(policy=POLICY)
SIZES = (10_000, 1_000_000, 10_000_000)
PER_SECOND = 500

LEAST_RATE = 2_000
MOST_GROWTH = 1.2
LEAST_SHARE = 0.99


@dataclass
class Ticks:
    """The cost of a look at one room, in milliseconds."""

    future: int
    pool: Pool
    empty: list[float] = field(default_factory=list)
    full: list[float] = field(default_factory=list)

    async def look(self) -> None:
        """Once when nothing is due."""
        scheduler = Scheduler(self.pool, OPTIONS)
        started = time.perf_counter()
        await scheduler.run_once()
        await scheduler._time_to_next()  # noqa: SLF001 - the other half of a tick
        self.empty.append((time.perf_counter() - started) * 1000)

    async def hand_over(self) -> None:
        """Once when a hundred are due."""
        await self.pool.execute(SQL["fill_due"], 100, datetime.now(UTC) - timedelta(hours=1), timedelta())
        started = time.perf_counter()
        await Scheduler(self.pool, OPTIONS).run_once()
        self.full.append((time.perf_counter() - started) * 1000)


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


async def fill(pool: Pool, future: int) -> None:
    """So many people with an event in the future, in a room that is empty until then.

    One transaction that begins by emptying the tables, so that nothing of it has to be logged; the triggers rest, and
    ids ascend, so that every index grows at its end.
    """
    async with pool.acquire() as connection:
        async with connection.transaction():
            for statement in ("begin_fill", "empty"):
                await connection.execute(SQL[statement])
            for statement in ("fill_people", "fill_future"):
                await connection.execute(SQL[statement], future, timeout=1800)
        await connection.execute(SQL["rest"])
        await connection.execute(SQL["analyze"], timeout=600)
        await connection.execute(SQL["checkpoint"], timeout=600)


async def measure_ticks(arena: Arena, sizes: Sequence[int], rounds: int) -> list[Ticks]:
    """Rooms of these sizes, looked at in turn."""
    async with contextlib.AsyncExitStack() as stack:
        rooms = []
        for future in sizes:
            ticks = Ticks(future, await stack.enter_async_context(room(arena, f"ticks_{future}_{time.monotonic_ns()}")))
            started = time.perf_counter()
            await fill(ticks.pool, future)
            print(f"filled with {future:>10,} future events in {time.perf_counter() - started:.0f} s", flush=True)
            rooms.append(ticks)
        for _ in range(rounds):
            for ticks in rooms:
                await ticks.hand_over()
                for _ in range(3):
                    await ticks.look()
    return rooms


async def measure_pace(arena: Arena, seconds: int) -> tuple[float, float]:
    """The share handed over within a second of its time, and the 99th percentile of the delay, by one scheduler."""
    done: list[datetime] = []

    def heard(step: str) -> None:
        if step == "handed_over":
            done.append(datetime.now(UTC))

    async with room(arena, "pace") as pool:
        first = datetime.now(UTC) + timedelta(seconds=3)
        await pool.execute(SQL["fill_due"], PER_SECOND * seconds, first, timedelta(seconds=1 / PER_SECOND))
        await pool.execute(SQL["settle"])
        scheduler = Scheduler(pool, OPTIONS, signal=heard)
        stop = asyncio.Event()
        asyncio.get_running_loop().call_later(seconds + 5, stop.set)
        await run_loops(scheduler.loops(), stop=stop)
        rows = await pool.fetch(SQL["list_handovers"], first)
    # A delivery's time is the beginning of its transaction; it was handed over when that ended.
    delays = sorted((done[bisect_left(done, row["handed"])] - row["target"]).total_seconds() for row in rows)
    share = sum(delay <= 1 for delay in delays) / (PER_SECOND * seconds)
    return share, delays[int(len(delays) * 0.99)]


def judged(kept: bool) -> str:  # noqa: FBT001 - a word for a truth
    return "met" if kept else "missed"


def report_rates(rates: dict[int, float]) -> bool:
    for schedulers, rate in rates.items():
        print(f"claim to handover, {schedulers} scheduler(s): {rate:,.0f} events/s")
    kept = max(rates.values()) >= LEAST_RATE
    print(f"  ≥ {LEAST_RATE:,} events/s: {judged(kept)}")
    return kept


def report_ticks(rooms: Sequence[Ticks]) -> bool:
    fewest, most = rooms[0], rooms[-1]
    for ticks in rooms:
        empty, full = statistics.median(ticks.empty), statistics.median(ticks.full)
        print(f"tick with {ticks.future:>10,} future events: empty {empty:.2f} ms, a hundred due {full:.1f} ms")
    growths = [
        statistics.median(many) / statistics.median(few)
        for few, many in ((fewest.empty, most.empty), (fewest.full, most.full))
    ]
    kept = max(growths) <= MOST_GROWTH
    print(f"  growth ≤ {MOST_GROWTH}: empty {growths[0]:.2f}, a hundred due {growths[1]:.2f}: {judged(kept)}")
    return kept


def report_pace(share: float, slowest: float) -> bool:
    kept = share >= LEAST_SHARE
    print(f"at {PER_SECOND}/s: {share:.2%} within 1 s of their time, 99th percentile {slowest:.3f} s")
    print(f"  ≥ {LEAST_SHARE:.0%} within 1 s: {judged(kept)}")
    return kept


async def run(options: argparse.Namespace) -> bool:
    """Measure and print everything; True if every promise was kept."""
    quick: bool = options.quick
    sizes = [1_000, 10_000] if quick else [size for size in SIZES if size <= options.largest]
    async with running_server() as arena:
        rates = {each: await measure_rate(arena, 2_000 if quick else options.events, each) for each in (1, 2)}
        kept = [report_rates(rates)]
        kept.append(report_pace(*await measure_pace(arena, 3 if quick else 15)))
        kept.append(report_ticks(await measure_ticks(arena, sizes, rounds=10 if quick else 150)))
    return all(kept)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.schedule", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--events", type=int, default=20_000, help="due events for the rate (20000)")
    parser.add_argument("--largest", type=int, default=SIZES[-1], help="the most events in the future (10000000)")
    parser.add_argument("--quick", action="store_true", help="small numbers: does it run?")
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    return 0 if uvloop.run(run(parser.parse_args())) else 1


if __name__ == "__main__":
    sys.exit(main())
