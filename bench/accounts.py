"""Sign-ups that mail: what the trigger costs, and how soon ten thousand people have their mail accepted.

    python -m bench.accounts             three rounds
    python -m bench.accounts --quick     one short round: does it run?

A collector, `postroom tokens collect`, runs beside them in a process of its own, asleep when each measure begins.

    1 client      plain INSERT, one by one, with the triggers and without them; the collector prints what it takes
    10 clients    the same over ten connections
    at once       one INSERT of many accounts
    10, mailing   10 clients, and the collector mails what it takes: on a small machine that has its price
    mailed        from the INSERT of many to the last of their mails in the delivery queue
    uncollected   10 clients without a collector: each commit notifies, and notifying commits go one by one

Targets: the triggers at most double the cost of a sign-up. With many in one statement, where the disk sets no limit, a
token with its foreign key and its unique secret costs more than its account: at most three times. With the mailing at
most three times, too; 10,000 are accepted within 5 seconds. Exits 1 if missed. The last row is shown and not promised:
a room without a collector sends no mail.
"""

import argparse
import asyncio
import contextlib
import os
import statistics
import sys
import time
from asyncio.subprocess import DEVNULL
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path

import uvloop

from bench.server import running_server
from bench.statements import read_statements
from postroom.db.room import Room, open_room
from postroom.settings import Settings

SQL = read_statements(Path(__file__).with_suffix(".sql"))
MOST_COST = {"1 client": 2.0, "10 clients": 2.0, "at once": 3.0, "10, mailing": 3.0}
MOST_SECONDS = 5.0
UNCOLLECTED = "uncollected"
KEY = bytes(32)

Measure = Callable[[], Awaitable[float]]


class SignUps:
    """One room, and people who never stop signing up."""

    def __init__(self, room: Room, *, many: int, seconds: float) -> None:
        self._room, self._many, self._seconds = room, many, seconds
        self._serial = 0

    def measures(self) -> dict[str, Measure]:
        return {
            "1 client": partial(self.one_by_one, 1),
            "10 clients": partial(self.one_by_one, 10),
            "at once": self.at_once,
        }

    async def one_by_one(self, clients: int) -> float:
        """Accounts a second."""
        ends = time.perf_counter() + self._seconds
        return sum(await asyncio.gather(*(self._client(ends) for _ in range(clients)))) / self._seconds

    async def _client(self, ends: float) -> int:
        done = 0
        async with self._room.pool.acquire() as connection:
            while time.perf_counter() < ends:
                self._serial += 1
                name = f"person-{self._serial}"
                await connection.execute(SQL["sign_up"], f"{name}@example.org", name)
                done += 1
        return done

    async def at_once(self) -> float:
        """Accounts a second, in one statement."""
        self._serial += 1
        started = time.perf_counter()
        await self._room.pool.execute(SQL["sign_up_many"], f"crowd-{self._serial}-", self._many)
        return self._many / (time.perf_counter() - started)

    async def bare(self, measure: Measure) -> float:
        """The same without triggers."""
        await self._room.pool.execute(SQL["disable_triggers"])
        try:
            return await measure()
        finally:
            await self._room.pool.execute(SQL["enable_triggers"])

    async def collected(self) -> None:
        """Wait until a collector runs."""
        await self.at_once()
        await self._until_none("count_waiting")

    async def mailed(self) -> float:
        """Seconds from the statement to the last mail accepted."""
        started = time.perf_counter()
        await self.at_once()
        await self._all_accepted()
        return time.perf_counter() - started

    async def _all_accepted(self) -> None:
        while True:
            if await self._room.pool.fetchval(SQL["count_accepted"]) >= self._many:
                return
            await asyncio.sleep(0.02)

    async def compare(self, measure: Measure) -> tuple[float, float]:
        """Without triggers and with them, each in an empty room."""
        await self.clear()
        bare = await self.bare(measure)
        await self.clear()
        return bare, await measure()

    async def clear(self) -> None:
        """An empty room, and a collector that is idle."""
        await self._until_none("count_busy")
        await self._room.pool.execute(SQL["clear"])

    async def _until_none(self, statement: str) -> None:
        while True:
            if await self._room.pool.fetchval(SQL[statement]) == 0:
                return
            await asyncio.sleep(0.1)


@contextlib.asynccontextmanager
async def collecting(url: str, *options: str) -> AsyncIterator[None]:
    """A collector in a process of its own, as an installation has it."""
    environment = {**os.environ, "POSTROOM_DATABASE_URL": url, "POSTROOM_SECRET_KEY": KEY.hex()}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "postroom.cli", "tokens", "collect", *options, env=environment, stdout=DEVNULL
    )
    try:
        yield
    finally:
        process.terminate()
        await process.wait()


async def measure_all(*, rounds: int, many: int, seconds: float) -> dict[str, float]:
    """Medians of interleaved rounds."""
    samples: dict[str, list[float]] = {}

    async def compare(name: str, measure: Measure) -> None:
        bare, cost = await people.compare(measure)
        samples.setdefault(f"{name}, bare", []).append(bare)
        samples.setdefault(name, []).append(cost)

    async with running_server() as arena:
        url = await arena.create_database("accounts")
        async with open_room(Settings(database_url=url, secret_key=KEY), migrating=True) as room:
            people = SignUps(room, many=many, seconds=seconds)
            async with collecting(url, "--format", "csv"):
                await people.collected()
                for _ in range(rounds):
                    for name, measure in people.measures().items():
                        await compare(name, measure)
            async with collecting(url):
                await people.collected()
                for _ in range(rounds):
                    await compare("10, mailing", partial(people.one_by_one, 10))
                    await people.clear()
                    samples.setdefault("mailed", []).append(await people.mailed())
            for _ in range(rounds):
                await compare(UNCOLLECTED, partial(people.one_by_one, 10))
    return {name: statistics.median(values) for name, values in samples.items()}


def report(found: dict[str, float], many: int) -> bool:
    """Print what was found; True if every promise was kept."""
    kept = found["mailed"] <= MOST_SECONDS
    for name in (*MOST_COST, UNCOLLECTED):
        cost = found[f"{name}, bare"] / found[name]
        kept = kept and cost <= MOST_COST.get(name, cost)
        print(f"{name:<12}{found[name]:>10,.0f}/s   bare {found[f'{name}, bare']:>10,.0f}/s   cost {cost:.2f}×")
    print(f"{'mailed':<12}{found['mailed']:>10.2f} s   for {many:,} sign-ups in one statement")
    return kept


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.accounts", description="Sign-ups that mail.")
    parser.add_argument("--quick", action="store_true", help="one short round: does it run?")
    quick = parser.parse_args().quick
    many = 500 if quick else 10_000
    found = uvloop.run(measure_all(rounds=1 if quick else 3, many=many, seconds=0.5 if quick else 3.0))
    return 0 if report(found, many) else 1


if __name__ == "__main__":
    sys.exit(main())
