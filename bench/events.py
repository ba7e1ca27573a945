"""The event store beside its peers: appends, appends with a condition, appends that fight, reads.

    ./dev bench events                        100,000 events loaded, three rounds, beside eventsourcing and umadb
    ./dev bench events --load 1000000         a million
    ./dev bench events --only read            one figure, as often as --rounds says
    ./dev bench events --growth               what a conditional append costs at 10,000 and at 1,000,000 events
    ./dev bench events --quick                does it run?

    unconditional   one event, no condition; at 1, 4 and 16 clients
    conditional     one event if none with its tag exists
    contended       everybody decides by what was last appended under one tag, and appends if nothing came since; each
                    client has a store of its own, as processes have, and the peers try again at once
    decider         the same by the clients of one process, who share a `Decider` and take turns; peers as above
    batch           500 events in one append, in events a second; beside a bare INSERT of the same rows into tables of
                    the same definition (`same rows`), and into one table with a primary key alone (`one table`)
    read            100 events by tag

Promised: what MUSTS says, as ratios to the medians of a peer in the same run, and growth by less than a fifth. Exits 1
if a promise is missed.

Rounds are interleaved: each figure is taken from every store in turn, and the medians are shown with their ratio to
each peer. Peers run in an interpreter of their own (bench/event_peers.py); their clients are threads, ours are tasks.
"""

import argparse
import asyncio
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Protocol

import uvloop

from bench.event_peers import BATCH, DATA, LOAD_STEP, WALLET_EVENTS
from bench.server import Arena, running_server
from bench.statements import read_statements
from postroom.db.room import Room, open_room
from postroom.events import AppendCondition, Decider, Event, EventStore, Query
from postroom.settings import Settings

CLIENTS = (1, 4, 16)
UMADB_PORT = 50_871
FIGURES = (
    *((name, clients) for name in ("unconditional", "conditional", "contended", "decider") for clients in CLIENTS),
    ("batch", 1),
    *(("read", clients) for clients in CLIENTS[:2]),
)
MUSTS = (
    ("conditional", 16, "eventsourcing", 1.5),
    ("conditional", 16, "umadb", 1.0),
    ("contended", 16, "eventsourcing", 1.5),
    ("batch", 1, "same rows", 1 / 1.3),
    *(("read", clients, peer, 2.0) for clients in CLIENTS[:2] for peer in ("eventsourcing", "umadb")),
)
MOST_GROWTH = 1.2
SQL = read_statements(Path(__file__).with_suffix(".sql"))


class Subject(Protocol):
    """A store that loads and measures on demand."""

    async def load(self, events: int) -> None: ...
    async def measure(self, figure: str, clients: int, seconds: float) -> float | None: ...


# ── Postroom and the bare table ─────────────────────────────────────────────────────────────────────────────────────


async def rate(operation: Callable[[], Awaitable[int]], clients: int, seconds: float) -> float:
    """How many succeed in a second."""
    ends = time.perf_counter() + seconds

    async def client() -> int:
        done = 0
        while time.perf_counter() < ends:
            done += await operation()
        return done

    return sum(await asyncio.gather(*(client() for _ in range(clients)))) / seconds


class Postroom:
    """The store as an application uses it."""

    def __init__(self, room: Room) -> None:
        self._pool, self._store, self._wallets = room.pool, EventStore(room.pool), 1
        self._together = _decider(self._store)
        self._apart = [_decider(EventStore(room.pool)) for _client in range(max(CLIENTS))]
        self._loaded = 0

    async def load(self, events: int) -> None:
        for first in range(self._loaded, events, LOAD_STEP):
            await self._store.append([_event(f"wallet={n // WALLET_EVENTS}") for n in range(first, first + LOAD_STEP)])
        self._loaded, self._wallets = events, events // WALLET_EVENTS
        await self._pool.execute(SQL["tidy"])

    async def measure(self, figure: str, clients: int, seconds: float) -> float:
        return await rate(getattr(self, f"_{figure}"), clients, seconds)

    def _some_wallet(self) -> str:
        return f"wallet={random.randrange(self._wallets)}"

    async def _unconditional(self) -> int:
        await self._store.append(_event(self._some_wallet()))
        return 1

    async def _conditional(self) -> int:
        tag = f"unique={random.getrandbits(64)}"
        await self._store.append(_event(tag), AppendCondition(Query.of(tags=[tag])))
        return 1

    async def _common(self) -> int:
        """Conditional on a tag that very many events carry: nothing of it since we looked."""
        query = Query.of(tags=["kind=common"])
        seen = (await self._store.head()).cursor
        await self._store.append(_event(f"unique={random.getrandbits(64)}"), AppendCondition(query, seen))
        return 1

    async def _contended(self) -> int:
        decider = self._apart.pop()  # one per client: no two clients share a decider
        await decider.decide(lambda _count: _event("wallet=hot"), attempts=100)
        self._apart.append(decider)
        return 1

    async def _decider(self) -> int:
        await self._together.decide(lambda _count: _event("wallet=hot"), attempts=100)
        return 1

    async def _batch(self) -> int:
        await self._store.append([_event(self._some_wallet()) for _ in range(BATCH)])
        return BATCH

    async def _read(self) -> int:
        found = await self._store.read(Query.of(tags=[self._some_wallet()]), limit=WALLET_EVENTS)
        assert found.events
        return 1


class Bare:
    """The same rows by a plain INSERT, without any promise."""

    def __init__(self, room: Room, statement: str) -> None:
        self._pool, self._statement = room.pool, statement

    async def load(self, events: int) -> None:
        """It needs none."""

    async def measure(self, figure: str, clients: int, seconds: float) -> float | None:
        return await rate(self._insert, clients, seconds) if figure == "batch" else None

    async def _insert(self) -> int:
        events = [_event(f"wallet={random.randrange(1000)}") for _ in range(BATCH)]
        columns = (
            [event.type for event in events],
            [event.tags[0] for event in events],
            [json.dumps(event.data) for event in events],
        )
        await self._pool.execute(self._statement, *columns)
        return BATCH


def _decider(store: EventStore) -> Decider[int]:
    return store.decider(Query.of(tags=["wallet=hot"]), 0, {"Deposited": lambda count, _event: count + 1})


def _event(tag: str) -> Event:
    return Event("Deposited", DATA, (tag,))


# ── peers, in an interpreter of their own ───────────────────────────────────────────────────────────────────────────


class Peer:
    """A process that answers each line with a number."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    async def load(self, events: int) -> None:
        await asyncio.to_thread(self._ask, f"load {events}")

    async def measure(self, figure: str, clients: int, seconds: float) -> float:
        return await asyncio.to_thread(self._ask, f"{figure} {clients} {seconds}")

    def _ask(self, line: str) -> float:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        return float(json.loads(self._process.stdout.readline()))


@contextmanager
def running(command: list[str], **pipes: Any) -> "Iterator[subprocess.Popen[str]]":
    process = subprocess.Popen(command, text=True, env=dict(os.environ), **pipes)
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


@contextmanager
def umadb_server(python: str) -> Iterator[str]:
    with tempfile.TemporaryDirectory() as directory:
        listening = ["--listen", f"127.0.0.1:{UMADB_PORT}", "--db-path", f"{directory}/uma.db"]
        program = str(Path(python).parent / "umadb")
        with running([program, *listening], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL):
            time.sleep(1)
            yield f"http://127.0.0.1:{UMADB_PORT}"


@contextmanager
def peer(python: str, name: str, url: str) -> Iterator[Peer]:
    command = [python, str(Path(__file__).with_name("event_peers.py")), name, url]
    with running(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        yield Peer(process)


# ── the run ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@asynccontextmanager
async def postroom_room(arena: Arena) -> AsyncIterator[Room]:
    settings = Settings(database_url=await arena.create_database("events"), pool_size=20)
    async with open_room(settings, migrating=True) as room:
        yield room


@asynccontextmanager
async def open_stores(arena: Arena, python: str | None) -> AsyncIterator[dict[str, Subject]]:
    async with AsyncExitStack() as stack:
        room = await stack.enter_async_context(postroom_room(arena))
        await room.pool.execute(SQL["make_bare"])
        stores: dict[str, Subject] = {
            "postroom": Postroom(room),
            "same rows": Bare(room, SQL["insert_same"]),
            "one table": Bare(room, SQL["insert_bare"]),
        }
        if python:
            database = await arena.create_database("eventsourcing")
            stores["eventsourcing"] = stack.enter_context(peer(python, "eventsourcing", database))
            stores["umadb"] = stack.enter_context(peer(python, "umadb", stack.enter_context(umadb_server(python))))
        yield stores


async def compare(options: argparse.Namespace) -> int:
    samples: dict[tuple[str, int], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    async with running_server() as arena, open_stores(arena, options.peers) as stores:
        for store in stores.values():
            await store.load(options.load)
        for _round in range(options.rounds):
            for figure, clients in (row for row in FIGURES if options.only in (None, row[0])):
                for name, store in stores.items():
                    found = await store.measure(figure, clients, options.seconds)
                    if found is not None:
                        samples[figure, clients][name].append(found)
    medians = {
        row: {name: statistics.median(values) for name, values in found.items()} for row, found in samples.items()
    }
    report(medians, list(stores))
    return judge(medians)


def report(medians: dict[tuple[str, int], dict[str, float]], names: list[str]) -> None:
    print(f"{'per second':<18}" + "".join(f"{name:>16}" for name in names))
    for (figure, clients), found in medians.items():
        ours = found["postroom"]
        cells = [
            f"{found[name]:,.0f}" + ("" if name == "postroom" else f" ({ours / found[name]:.2f}x)")
            if name in found
            else "–"
            for name in names
        ]
        print(f"{figure:<14}{clients:>4}" + "".join(f"{cell:>16}" for cell in cells))


def judge(medians: dict[tuple[str, int], dict[str, float]]) -> int:
    """Say which promise was missed; 1 if any."""
    missed = [
        f"missed: {figure} at {clients} is {found['postroom'] / found[peer]:.2f}x {peer}, promised {ratio:.2f}x"
        for figure, clients, peer, ratio in MUSTS
        if peer in (found := medians.get((figure, clients), {})) and found["postroom"] < ratio * found[peer]
    ]
    print("\n".join(missed) or "every promise kept")
    return 1 if missed else 0


async def grow(options: argparse.Namespace) -> int:
    """A conditional append while the store grows, by a tag that no event has and by one that every event has."""
    sizes = (2_000, 4_000) if options.quick else (10_000, 100_000, 1_000_000)
    costs: dict[str, list[float]] = defaultdict(list)
    async with running_server() as arena, postroom_room(arena) as room:
        store = Postroom(room)
        for size in sizes:
            await store.load(size)
            await room.pool.execute(SQL["make_common"])
            for figure in ("conditional", "common"):
                rates = [await store.measure(figure, 1, options.seconds) for _round in range(options.rounds)]
                costs[figure].append(1000 / statistics.median(rates))
                print(f"{size:>10,} events   {figure:<12} {costs[figure][-1]:6.3f} ms an append")
    grown = [figure for figure, cost in costs.items() if cost[-1] > MOST_GROWTH * cost[0]]
    print("\n".join(f"missed: {figure} costs more as the store grows" for figure in grown) or "every promise kept")
    return 1 if grown else 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="./dev bench events", description="The event store beside its peers.")
    parser.add_argument("--load", type=int, default=100_000, help="events there are before anything is measured")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2.0, help="how long each figure is measured")
    parser.add_argument("--only", choices=sorted({figure for figure, _ in FIGURES}), help="one figure alone")
    parser.add_argument("--growth", action="store_true", help="the cost of a condition as the store grows")
    parser.add_argument("--quick", action="store_true", help="small and short: does it run?")
    parser.add_argument("--peers", default=sys.executable, help="an interpreter with eventsourcing and umadb, or ''")
    options = parser.parse_args()
    if options.quick:
        options.load, options.seconds, options.rounds = 2_000, 0.2, 1
    return uvloop.run(grow(options) if options.growth else compare(options))  # as the product runs


if __name__ == "__main__":
    sys.exit(main())
