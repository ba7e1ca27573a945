"""The archive: how fast attempts leave, in how much memory, and what the queue loses meanwhile.

    python -m bench.archive                     a million attempts; 40,000 mails a drain, three rounds of three
    python -m bench.archive --rows 100000       fewer
    python -m bench.archive --quick             does it run?

    archive       rows a second from the table to a proven file and the partition dropped: written, read back, compared
                  with the frozen table; and the largest memory of the process that does it, for a tenth of the rows
                  and for all of them: it must not grow with their number
    drain         mails a second into a no-op, with nothing else going on, with the archiver at work beside it, and with
                  retention: bodies and rows of finished mail deleted as a worker's own loop does it; by turns, each in
                  a database of its own

The target is a loss under 10 %. Run by itself the archiver takes what it can get; the share is what makes it a good
neighbour.
"""

import argparse
import asyncio
import json
import resource
import statistics
import subprocess
import time
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

from bench.cost import Meter
from bench.server import Arena, running_server
from bench.workers import Command, drain, environment_for, python_command, start, stop
from postroom.archive.model import ArchiveOptions
from postroom.archive.service import run_archive
from postroom.db.migrate import migrate
from postroom.db.pool import connect
from postroom.db.queries import load
from postroom.db.retention import Sweeper
from postroom.db.room import open_room
from postroom.delivery import service
from postroom.delivery.check import check_batch
from postroom.delivery.maintenance import RETENTION
from postroom.delivery.model import DeliveryRequest, Lane
from postroom.post.address import Address
from postroom.settings import Settings

QUERIES = load("bench", "archive.sql")
BATCH = 1000
KEPT_FOR_EVER = timedelta(days=365 * 100)


@dataclass(frozen=True)
class Sizes:
    """How much of everything."""

    rows: int = 1_000_000
    mails: int = 40_000
    rounds: int = 3

    @property
    def finished(self) -> int:
        """Old deliveries for retention: more than it deletes, at its share of the time, while the queue is drained."""
        return 2 * self.mails


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.archive", description="The archive, measured.")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--mails", type=int, default=40_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--as-archiver", nargs=3, metavar=("URL", "FOLDER", "SHARE"), help=argparse.SUPPRESS)
    parser.add_argument("--as-cleaner", metavar="URL", help=argparse.SUPPRESS)
    return parser.parse_args()


async def archive(url: str, folder: str, share: float) -> None:
    """The archiver's own process: work, then say how long it took and how large it grew."""
    usual = ArchiveOptions() if share == 1 else ArchiveOptions.in_background()
    options = replace(usual, url=folder, tables=("attempts",), keep=KEPT_FOR_EVER, share=share)
    async with open_room(Settings(database_url=url, pool_size=2)) as room:
        began = time.perf_counter()
        report = await run_archive(room, options, actor="bench")
        seconds = time.perf_counter() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"rows": report.rows, "seconds": seconds, "megabytes": peak}))


async def clean(url: str) -> None:
    """The cleaner's own process: retention, as a worker's loop does it."""
    async with open_room(Settings(database_url=url, pool_size=2)) as room:
        await Sweeper(room.pool, RETENTION, room.settings).run_once()


def archiver(url: str, folder: Path, share: float) -> Command:
    return python_command("bench.archive", "--as-archiver", url, str(folder), str(share))


async def fill_attempts(url: str, count: int) -> None:
    connection = await connect(url, "postroom")
    await QUERIES["make_month"].exec(connection)
    await QUERIES["add_attempts"].exec(connection, count=count)
    await connection.execute("VACUUM ANALYZE")
    await connection.close()


async def fill_finished(url: str, count: int) -> None:
    connection = await connect(url, "postroom")
    for name in ("add_finished", "add_finished_bodies"):
        await QUERIES[name].exec(connection, **({"count": count} if name == "add_finished" else {}))
    await connection.execute("VACUUM ANALYZE")
    await connection.close()


async def fill_queue(url: str, count: int) -> None:
    async with open_room(Settings(database_url=url, pool_size=2)) as room, room.pool.acquire() as connection:
        for start in range(0, count, BATCH):
            mails = [
                DeliveryRequest(to=(Address(f"p{n}@example.org"),), subject="Hello", text="Hello.", lane=Lane.BULK)
                for n in range(start, min(start + BATCH, count))
            ]
            await service.accept_batch(connection, check_batch(mails))


async def measure_archive(arena: Arena, rows: int) -> dict[str, float]:
    url = await arena.create_database(f"archive_{rows}")
    await migrate(url, "postroom")
    await fill_attempts(url, rows)
    command = archiver(url, arena.scratch / f"archive-{rows}", 1.0)
    done = await asyncio.to_thread(
        subprocess.run, command.arguments, env=environment_for(command), capture_output=True, check=True, text=True
    )
    said: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return said


async def measure_drain(meter: Meter, url: str, mails: int, *, neighbour: Command | None) -> float:
    """Mails a second; with a neighbour, from the moment it begins to work, and it must be at work to the end."""
    settings = {"POSTROOM_DATABASE_URL": url, "POSTROOM_TRANSPORT": "noop"}
    workers = [python_command("postroom.cli", "work", "--until-empty", environment=settings)]
    with ExitStack() as stack:

        async def fill(count: int) -> None:
            if neighbour is not None:  # first, so that its start is not charged to the drain
                stack.callback(stop, [beside := start(neighbour)])
                processes.append(beside)
            await fill_queue(url, count)

        processes: list[subprocess.Popen[bytes]] = []
        drained = await drain(meter, workers, fill, mails)
        if any(process.poll() is not None for process in processes):
            print("          the neighbour was done before the drain was: give it more to do")
    return mails / drained.spent.seconds


async def measure_neighbours(arena: Arena, sizes: Sizes) -> dict[str, float]:
    """Medians of draining alone and beside each neighbour, by turns in databases of their own."""
    share = ArchiveOptions.in_background().share
    rates: dict[str, list[float]] = {"alone": [], "archiver": [], "retention": []}
    for number in range(sizes.rounds):
        for name, found in rates.items():
            url = await arena.create_database(f"drain_{number}_{name}")
            await migrate(url, "postroom")
            await fill_attempts(url, sizes.rows)
            await fill_finished(url, sizes.finished)
            neighbours = {
                "archiver": archiver(url, arena.scratch / f"beside-{time.monotonic_ns()}", share),
                "retention": python_command("bench.archive", "--as-cleaner", url),
            }
            found.append(await measure_drain(arena.meter, url, sizes.mails, neighbour=neighbours.get(name)))
    return {name: statistics.median(found) for name, found in rates.items()}


async def bench(sizes: Sizes) -> None:
    async with running_server() as arena:
        for rows in (sizes.rows // 10, sizes.rows):
            found = await measure_archive(arena, rows)
            print(
                f"archive   {found['rows'] / found['seconds']:>10,.0f} rows/s   {found['rows']:,} rows "
                f"in {found['seconds']:.1f} s, peak {found['megabytes']:.0f} MB"
            )
        rates = await measure_neighbours(arena, sizes)
        alone = rates.pop("alone")
        print(f"drain     {alone:>10,.0f} /s alone")
        for name, beside in rates.items():
            print(f"          {beside:>10,.0f} /s beside the {name}: {1 - beside / alone:+.1%} lost")


def main() -> None:
    options = parse()
    if options.as_archiver:
        url, folder, share = options.as_archiver
        asyncio.run(archive(url, folder, float(share)))
        return
    if options.as_cleaner:
        asyncio.run(clean(options.as_cleaner))
        return
    sizes = Sizes(20_000, 2_000, 1) if options.quick else Sizes(options.rows, options.mails, options.rounds)
    asyncio.run(bench(sizes))


if __name__ == "__main__":
    main()
