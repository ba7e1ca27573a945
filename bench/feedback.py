"""`python -m bench.feedback`: what suppression costs, with a million entries or, if asked, ten.

The check of 10,000 addresses, one in a hundred of them suppressed. The acceptance of 10,000 mails with an empty list
and with the full one: the difference is what the list adds. The look for soft bounces after 10,000 successes. And the
rate at which bounces are recorded, 500 at a time, and a CSV is imported. A fresh PostgreSQL, fsync on.
"""

import argparse
import asyncio
import contextlib
import statistics
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path

import structlog
import uvloop

from bench.server import Arena, running_server
from bench.statements import read_statements
from postroom.db.migrate import migrate
from postroom.db.pool import Pool, open_pool
from postroom.delivery.check import check_batch
from postroom.delivery.model import DeliveryRequest
from postroom.delivery.service import accept_batch
from postroom.feedback.lists import ListReader, batches
from postroom.feedback.model import BounceClass, Feedback, FeedbackKind, report_identity
from postroom.feedback.record import record, record_acceptances
from postroom.feedback.service import import_batch
from postroom.post.address import Address

SQL = read_statements(Path(__file__).with_suffix(".sql"))
ROOM = "postroom"
MILLION = 1_000_000
BATCH = 10_000
ROUNDS = 7
STEP = 500


@contextlib.asynccontextmanager
async def room(arena: Arena, name: str) -> AsyncIterator[Pool]:
    """A migrated database of its own."""
    url = await arena.create_database(name)
    await migrate(url, ROOM)
    pool = await open_pool(url, ROOM, size=4)
    try:
        yield pool
    finally:
        await pool.close()


async def fill(pool: Pool, entries: int) -> None:
    await pool.execute(SQL["quiet"])
    for start in range(0, entries, MILLION):
        await pool.execute(SQL["fill"], start, min(start + MILLION, entries) - 1, timeout=3600)
        say(f"  {min(start + MILLION, entries):,} of {entries:,} entries")
    await pool.execute(SQL["settle"], timeout=3600)


def addresses(offset: int, entries: int) -> list[str]:
    """Ten thousand, of which one in a hundred is suppressed, spread over the whole list."""
    return [
        f"Person{(offset + n) * 7919 % entries}@example{(offset + n) * 7919 % entries % 1000}.org"
        if n % 100 == 0
        else f"new{offset + n}@example.org"
        for n in range(BATCH)
    ]


async def timed(rounds: int, work: Callable[[int], Awaitable[object]]) -> float:
    """The median of some rounds, in milliseconds."""
    taken = []
    for number in range(rounds):
        started = time.perf_counter()
        await work(number)
        taken.append((time.perf_counter() - started) * 1000)
    return statistics.median(taken)


async def measure_check(pool: Pool, entries: int) -> float:
    async def check(number: int) -> object:
        return await pool.fetchval(SQL["check"], addresses(number * BATCH, entries))

    return await timed(ROUNDS, check)


async def measure_accept(pool: Pool, entries: int, offset: int) -> float:
    async def accept(number: int) -> object:
        given = addresses((offset + number) * BATCH, entries)
        requests = [DeliveryRequest(to=(Address(each),), subject="Hello", text="Hello.") for each in given]
        async with pool.acquire() as connection:
            for start in range(0, BATCH, STEP):
                await accept_batch(connection, check_batch(requests[start : start + STEP]))
        return None

    return await timed(ROUNDS, accept)


async def measure_clear(pool: Pool) -> float:
    async def clear(number: int) -> object:
        given = [f"new{number * BATCH + n}@example.org" for n in range(BATCH)]
        async with pool.acquire() as connection:
            accepted = [(0, address) for address in given]
            return [
                await record_acceptances(connection, accepted[start : start + STEP]) for start in range(0, BATCH, STEP)
            ]

    return await timed(ROUNDS, clear)


def a_bounce(number: int) -> Feedback:
    return Feedback(
        kind=FeedbackKind.BOUNCE,
        classification=BounceClass.RECIPIENT_HARD if number % 2 else BounceClass.RECIPIENT_SOFT,
        address=f"bounced{number}@example.org",
        origin="smtp",
        report_id=report_identity("bench", number),
        is_verified=True,
        enhanced="5.1.1",
        code=550,
        text="no such user",
    )


async def measure_record(pool: Pool, bounces: int) -> float:
    """Bounces per second."""
    started = time.perf_counter()
    async with pool.acquire() as connection:
        for start in range(0, bounces, STEP):
            await record(connection, [a_bounce(start + n) for n in range(STEP)])
    return bounces / (time.perf_counter() - started)


async def measure_import(pool: Pool, lines: int) -> float:
    """Lines per second, from text to committed rows."""
    reader, started = ListReader(), time.perf_counter()
    for batch in batches(f"imported{n}@example.org\n" for n in range(lines)):
        await import_batch(pool, reader.read(batch), actor="bench")
    return lines / (time.perf_counter() - started)


async def measure(entries: int) -> None:
    async with running_server() as arena, room(arena, "feedback") as pool:
        say(f"PostgreSQL {await arena.version()}")
        empty = await measure_accept(pool, entries, 0)
        await fill(pool, entries)
        check = await measure_check(pool, entries)
        full = await measure_accept(pool, entries, 100)
        say(f"check of {BATCH:,} addresses against {entries:,} entries   {check:9.1f} ms")
        say(f"acceptance of {BATCH:,} mails, empty list              {empty:9.1f} ms")
        say(f"acceptance of {BATCH:,} mails, full list               {full:9.1f} ms   {full / empty - 1:+.1%}")
        say(f"look for soft bounces after {BATCH:,} successes        {await measure_clear(pool):9.1f} ms")
        await pool.execute(SQL["loud"])
        say(f"bounces recorded                                  {await measure_record(pool, 20 * STEP):9.0f} /s")
        say(f"lines imported                                    {await measure_import(pool, 10 * BATCH):9.0f} /s")


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--entries", type=int, default=MILLION, help="how many addresses are suppressed")
    chosen = parser.parse_args(arguments)
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(measure(chosen.entries))


if __name__ == "__main__":
    main()
