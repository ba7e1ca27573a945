"""Sign-ups that mail: what the trigger costs, and how soon ten thousand people have their mail accepted.

    python -m bench.accounts             three rounds
    python -m bench.accounts --quick     one short round: does it run?

    1 client      plain INSERT, one by one, with the triggers and without them; each commit notifies
    10 clients    the same over ten connections, while a collector is busy: no commit has to notify
    10, idle      the same while no collector is busy: each commit notifies, and notifying commits go one by one
    at once       one INSERT of many accounts
    mailed        from that INSERT to the last of their mails in the delivery queue, by one collector that was asleep

Targets: the triggers at most double the cost of a sign-up, from one client and from ten while the collector is busy;
10,000 are accepted within 5 seconds. Exits 1 if missed.
"""

import argparse
import asyncio
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import uvloop

from bench.server import running_server
from bench.statements import read_statements
from postroom.accounts.worker import run_collector
from postroom.db.room import Room, open_room
from postroom.settings import Settings

SQL = read_statements(Path(__file__).with_suffix(".sql"))
MOST_COST = 2.0
MOST_SECONDS = 5.0
PROMISED = ("1 client", "10 clients")

Measure = Callable[[], Awaitable[float]]


class SignUps:
    """One room, and people who never stop signing up."""

    def __init__(self, room: Room, *, many: int, seconds: float) -> None:
        self._room, self._many, self._seconds = room, many, seconds
        self._serial = 0

    def measures(self) -> dict[str, Measure]:
        return {
            "1 client": partial(self.one_by_one, 1),
            "10 clients": partial(self.busily, partial(self.one_by_one, 10)),
            "10, idle": partial(self.one_by_one, 10),
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

    async def busily(self, measure: Measure) -> float:
        await self._room.pool.execute(SQL["be_busy"])
        try:
            return await measure()
        finally:
            await self._room.pool.execute(SQL["be_idle"])

    async def mailed(self) -> float:
        """Seconds from the statement to the last mail accepted."""
        stop = asyncio.Event()
        collecting = asyncio.create_task(run_collector(self._room, stop=stop))
        await asyncio.sleep(1)
        started = time.perf_counter()
        await self.at_once()
        await self._all_accepted()
        took = time.perf_counter() - started
        stop.set()
        await collecting
        return took

    async def _all_accepted(self) -> None:
        while True:
            if await self._room.pool.fetchval(SQL["count_accepted"]) >= self._many:
                return
            await asyncio.sleep(0.02)

    async def clear(self) -> None:
        await self._room.pool.execute(SQL["clear"])


async def measure_all(*, rounds: int, many: int, seconds: float) -> dict[str, float]:
    """Medians of interleaved rounds."""
    samples: dict[str, list[float]] = {}
    async with running_server() as arena:
        settings = Settings(database_url=await arena.create_database("accounts"), secret_key=bytes(32))
        async with open_room(settings, migrating=True) as room:
            people = SignUps(room, many=many, seconds=seconds)
            for _ in range(rounds):
                for name, measure in people.measures().items():
                    samples.setdefault(f"{name}, bare", []).append(await people.bare(measure))
                    samples.setdefault(name, []).append(await measure())
                    await people.clear()
                samples.setdefault("mailed", []).append(await people.mailed())
                await people.clear()
    return {name: statistics.median(values) for name, values in samples.items()}


def report(found: dict[str, float], many: int) -> bool:
    """Print what was found; True if every promise was kept."""
    kept = found["mailed"] <= MOST_SECONDS
    for name in (*PROMISED, "10, idle", "at once"):
        cost = found[f"{name}, bare"] / found[name]
        kept = kept and (cost <= MOST_COST or name not in PROMISED)
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
