"""The event store beside its peers: appends, appends with a condition, appends that fight, reads.

    python -m bench.events                       100,000 events loaded, 2 seconds for each figure
    python -m bench.events --load 1000000        a million
    python -m bench.events --quick               does it run?
    python -m bench.events --peers <python>      beside eventsourcing and umadb, as far as that interpreter has them

    unconditional   one event, no condition; at 1, 4 and 16 clients
    conditional     one event if none with its tag exists
    contended       everybody reads the same tag and appends if nothing came since, again until it holds; we pause
                    between two tries as `decide` does, the peers try again at once
    batch           500 events in one append, in events a second; beside one bare INSERT of the same rows
    read            100 events by tag

Peers run in an interpreter of their own, this same file with `--as`; their clients are threads, ours are tasks.
"""

import argparse
import asyncio
import importlib
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import parse_qs, urlsplit

CLIENTS = (1, 4, 16)
WALLET_EVENTS = 100
LOAD_STEP = 1000
BATCH = 500
DATA = {"amount": 5, "currency": "EUR", "note": "for the window of the post room"}
UMADB_PORT = 50_871

Figures = dict[str, float]


class Store(Protocol):
    """What is measured. Each call is one operation of one client; async, or called from a thread."""

    def plain(self, tag: str) -> Any: ...
    def conditional(self, tag: str) -> Any: ...
    def contended(self, tag: str) -> Any: ...
    def batch(self, tags: list[str]) -> Any: ...
    def read(self, tag: str) -> Any: ...


def measures(store: Store, wallets: int) -> dict[str, Callable[[], Any]]:
    """Every operation by its name; tags of new wallets do not repeat."""
    return {
        "unconditional": lambda: store.plain(f"wallet={random.randrange(wallets)}"),
        "conditional": lambda: store.conditional(f"unique={random.getrandbits(64)}"),
        "contended": lambda: store.contended("wallet=hot"),
        "read": lambda: store.read(f"wallet={random.randrange(wallets)}"),
    }


def figures_wanted() -> list[tuple[str, int]]:
    return [
        *((name, clients) for name in ("unconditional", "conditional", "contended") for clients in CLIENTS),
        *(("read", clients) for clients in CLIENTS[:2]),
    ]


# ── Postroom ────────────────────────────────────────────────────────────────────────────────────────────────────────


class Postroom:
    """The store itself, or the combining writer in front of it."""

    def __init__(self, pool: Any, *, combining: bool) -> None:
        events = importlib.import_module("postroom.events")
        self._events, self._store = events, events.EventStore(pool)
        self._writer = events.CombiningWriter(pool) if combining else self._store

    def _event(self, tag: str) -> Any:
        return self._events.Event("Deposited", DATA, (tag,))

    def _query(self, tag: str) -> Any:
        return self._events.Query.of(tags=[tag])

    async def plain(self, tag: str) -> int:
        await self._writer.append(self._event(tag))
        return 1

    async def conditional(self, tag: str) -> int:
        await self._writer.append(self._event(tag), self._events.AppendCondition(self._query(tag)))
        return 1

    async def contended(self, tag: str) -> int:
        from postroom.events.retry import retried

        query = self._query(tag)

        async def once() -> None:
            seen = (await self._store.read(query, limit=1, backwards=True)).cursor
            await self._writer.append(self._event(tag), self._events.AppendCondition(query, seen))

        await retried(once, attempts=100)
        return 1

    async def batch(self, tags: list[str]) -> int:
        await self._store.append([self._event(tag) for tag in tags])
        return len(tags)

    async def read(self, tag: str) -> int:
        found = await self._store.read(self._query(tag), limit=WALLET_EVENTS)
        assert found.events
        return 1


async def rate(operation: Callable[[], Awaitable[int]], clients: int, seconds: float) -> float:
    """How many succeed in a second."""
    ends = time.perf_counter() + seconds

    async def client() -> int:
        done = 0
        while time.perf_counter() < ends:
            done += await operation()
        return done

    return sum(await asyncio.gather(*(client() for _ in range(clients)))) / seconds


async def bare_rate(pool: Any, sql: str, seconds: float) -> float:
    types, data = ["Deposited"] * BATCH, [json.dumps(DATA)] * BATCH

    async def insert() -> int:
        await pool.execute(sql, types, [f"wallet={random.randrange(1000)}" for _ in range(BATCH)], data)
        return BATCH

    return await rate(insert, 1, seconds)


async def measure_postroom(options: argparse.Namespace, peers: dict[str, Figures]) -> dict[str, Figures]:
    from bench.server import running_server
    from bench.statements import read_statements
    from postroom.db.room import open_room
    from postroom.settings import Settings

    sql = read_statements(Path(__file__).with_suffix(".sql"))
    found: dict[str, Figures] = {}
    async with running_server() as arena:
        settings = Settings(database_url=await arena.create_database("events"), pool_size=20)
        async with open_room(settings, migrating=True) as room:
            store = Postroom(room.pool, combining=False)
            for first in range(0, options.load, LOAD_STEP):
                await store.batch([f"wallet={n // WALLET_EVENTS}" for n in range(first, first + LOAD_STEP)])
            await room.pool.execute(sql["tidy"])
            wallets = options.load // WALLET_EVENTS
            for name, combining in (("postroom", False), ("postroom combining", True)):
                subject = Postroom(room.pool, combining=combining)
                operations = measures(subject, wallets)
                found[name] = {
                    f"{figure} {clients}": await rate(operations[figure], clients, options.seconds)
                    for figure, clients in figures_wanted()
                }
            batch = [f"wallet={n % wallets}" for n in range(BATCH)]
            found["postroom"]["batch 1"] = await rate(lambda: store.batch(batch), 1, options.seconds)
            await room.pool.execute(sql["make_bare"])
            found["bare INSERT"] = {"batch 1": await bare_rate(room.pool, sql["insert_bare"], options.seconds)}
        for peer in ("eventsourcing", "umadb") if options.peers else ():
            peers[peer] = run_peer(peer, options, await arena.create_database(peer))
    return found


# ── Peers, in an interpreter of their own ───────────────────────────────────────────────────────────────────────────


class EventSourcing:
    """eventsourcing's recorder for PostgreSQL."""

    def __init__(self, url: str) -> None:
        self._api = importlib.import_module("eventsourcing.dcb.api")
        parts = urlsplit(url)
        environment = {
            "PERSISTENCE_MODULE": "eventsourcing.dcb.postgres_tt",
            "POSTGRES_DBNAME": parts.path.lstrip("/"),
            "POSTGRES_HOST": parts.hostname or parse_qs(parts.query).get("host", [""])[0],
            "POSTGRES_PORT": str(parts.port or parse_qs(parts.query).get("port", ["5432"])[0]),
            "POSTGRES_USER": parts.username or "postgres",
            "POSTGRES_PASSWORD": parts.password or "",
            "POSTGRES_POOL_SIZE": "16",
        }
        persistence = importlib.import_module("eventsourcing.dcb.persistence")
        factory = persistence.DCBInfrastructureFactory.construct(environment)
        self._recorder = factory.dcb_recorder()
        self._failed = importlib.import_module("eventsourcing.persistence").IntegrityError

    def _event(self, tag: str) -> Any:
        return self._api.DCBEvent(type="Deposited", data=json.dumps(DATA).encode(), tags=[tag])

    def _query(self, tag: str) -> Any:
        return self._api.DCBQuery(items=[self._api.DCBQueryItem(tags=[tag])])

    def plain(self, tag: str) -> int:
        self._recorder.append([self._event(tag)])
        return 1

    def conditional(self, tag: str) -> int:
        self._recorder.append([self._event(tag)], self._api.DCBAppendCondition(self._query(tag)))
        return 1

    def contended(self, tag: str) -> int:
        query = self._query(tag)
        response = self._recorder.read(query, after=self._hot)
        positions = [one.position for one in response]
        seen = positions[-1] if positions else self._hot
        self._hot = max(self._hot or 0, seen or 0) or None
        try:
            self._recorder.append([self._event(tag)], self._api.DCBAppendCondition(query, after=seen))
        except self._failed:
            return 0
        return 1

    _hot: int | None = None

    def batch(self, tags: list[str]) -> int:
        self._recorder.append([self._event(tag) for tag in tags])
        return len(tags)

    def read(self, tag: str) -> int:
        assert list(self._recorder.read(self._query(tag), limit=WALLET_EVENTS))
        return 1


class Umadb:
    """umadb's client; a connection for each thread."""

    def __init__(self, url: str) -> None:
        self._umadb = importlib.import_module("umadb")
        self._url, self._local = url, threading.local()
        self._hot: int | None = None

    @property
    def _client(self) -> Any:
        if not hasattr(self._local, "client"):
            self._local.client = self._umadb.Client(self._url)
        return self._local.client

    def _event(self, tag: str) -> Any:
        return self._umadb.Event("Deposited", json.dumps(DATA).encode(), [tag])

    def _query(self, tag: str) -> Any:
        return self._umadb.Query([self._umadb.QueryItem([], [tag])])

    def plain(self, tag: str) -> int:
        self._client.append([self._event(tag)])
        return 1

    def conditional(self, tag: str) -> int:
        self._client.append([self._event(tag)], self._umadb.AppendCondition(self._query(tag)))
        return 1

    def contended(self, tag: str) -> int:
        query = self._query(tag)
        last = list(self._client.read(query, backwards=True, limit=1))
        after = last[0].position if last else None
        try:
            self._client.append([self._event(tag)], self._umadb.AppendCondition(query, after))
        except self._umadb.IntegrityError:
            return 0
        return 1

    def batch(self, tags: list[str]) -> int:
        self._client.append([self._event(tag) for tag in tags])
        return len(tags)

    def read(self, tag: str) -> int:
        assert list(self._client.read(self._query(tag), limit=WALLET_EVENTS))
        return 1


def thread_rate(operation: Callable[[], int], clients: int, seconds: float) -> float:
    ends = time.perf_counter() + seconds

    def client(_number: int) -> int:
        done = 0
        while time.perf_counter() < ends:
            done += operation()
        return done

    with ThreadPoolExecutor(clients) as threads:
        return sum(threads.map(client, range(clients))) / seconds


def be_peer(options: argparse.Namespace) -> Figures:
    """Load and measure; runs in the peers' interpreter."""
    store: Store = EventSourcing(options.url) if options.as_peer == "eventsourcing" else Umadb(options.url)
    for first in range(0, options.load, LOAD_STEP):
        store.batch([f"wallet={n // WALLET_EVENTS}" for n in range(first, first + LOAD_STEP)])
    wallets = options.load // WALLET_EVENTS
    operations = measures(store, wallets)
    found = {
        f"{figure} {clients}": thread_rate(operations[figure], clients, options.seconds)
        for figure, clients in figures_wanted()
    }
    batch = [f"wallet={n % wallets}" for n in range(BATCH)]
    found["batch 1"] = thread_rate(lambda: store.batch(batch), 1, options.seconds)
    return found


def run_peer(name: str, options: argparse.Namespace, url: str) -> Figures:
    with tempfile.TemporaryDirectory() as directory:
        server = None
        if name == "umadb":
            url = f"http://127.0.0.1:{UMADB_PORT}"
            program = Path(options.peers).parent / "umadb"
            listening = ["--listen", f"127.0.0.1:{UMADB_PORT}", "--db-path", f"{directory}/uma.db"]
            server = subprocess.Popen([str(program), *listening], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            time.sleep(1)
        command = [options.peers, __file__, "--as", name, "--url", url]
        command += ["--load", str(options.load), "--seconds", str(options.seconds)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, env=dict(os.environ))
        finally:
            if server is not None:
                server.terminate()
                server.wait()
    if done.returncode != 0:
        print(f"{name}: {done.stderr.strip().splitlines()[-1:]}", file=sys.stderr)
        return {}
    figures: Figures = json.loads(done.stdout)
    return figures


def report(found: dict[str, Figures]) -> None:
    rows = list(dict.fromkeys(row for figures in found.values() for row in figures))
    print(f"{'per second':<18}" + "".join(f"{name:>20}" for name in found))
    for row in rows:
        cells = (f"{figures[row]:,.0f}" if row in figures else "–" for figures in found.values())
        print(f"{row:<18}" + "".join(f"{cell:>20}" for cell in cells))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.events", description="The event store beside its peers.")
    parser.add_argument("--load", type=int, default=100_000, help="events there are before anything is measured")
    parser.add_argument("--seconds", type=float, default=2.0, help="how long each figure is measured")
    parser.add_argument("--quick", action="store_true", help="small and short: does it run?")
    parser.add_argument("--peers", help="an interpreter that has eventsourcing and umadb")
    parser.add_argument("--as", dest="as_peer", help=argparse.SUPPRESS)
    parser.add_argument("--url", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.quick:
        options.load, options.seconds = 2_000, 0.2
    if options.as_peer:
        print(json.dumps(be_peer(options)))
        return 0
    peers: dict[str, Figures] = {}
    found = asyncio.run(measure_postroom(options, peers))
    report({**found, **peers})
    return 0


if __name__ == "__main__":
    sys.exit(main())
