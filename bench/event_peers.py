"""The event store's peers, run in an interpreter of their own: `python event_peers.py <name> <url>`.

A peer loads events and then measures on demand: a line `load <events>` or `<figure> <clients> <seconds>` on
standard input is answered by one line with a number. Clients are threads. Nothing here may import Postroom.
"""

import importlib
import json
import random
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import parse_qs, urlsplit

WALLET_EVENTS = 100
LOAD_STEP = 1000
BATCH = 500
DATA = {"amount": 5, "currency": "EUR", "note": "for the window of the post room"}


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


PEERS: dict[str, Callable[[str], Any]] = {"eventsourcing": EventSourcing, "umadb": Umadb}


def thread_rate(operation: Callable[[], int], clients: int, seconds: float) -> float:
    ends = time.perf_counter() + seconds

    def client(_number: int) -> int:
        done = 0
        while time.perf_counter() < ends:
            done += operation()
        return done

    with ThreadPoolExecutor(clients) as threads:
        return sum(threads.map(client, range(clients))) / seconds


def figures(store: Any, wallets: int) -> dict[str, Callable[[], int]]:
    """Every operation by its name; tags of new wallets do not repeat."""
    return {
        "unconditional": lambda: store.plain(f"wallet={random.randrange(wallets)}"),
        "conditional": lambda: store.conditional(f"unique={random.getrandbits(64)}"),
        "contended": lambda: store.contended("wallet=hot"),
        "decider": lambda: store.contended("wallet=hot"),
        "batch": lambda: store.batch([f"wallet={random.randrange(wallets)}" for _ in range(BATCH)]),
        "read": lambda: store.read(f"wallet={random.randrange(wallets)}"),
    }


def main() -> None:
    store = PEERS[sys.argv[1]](sys.argv[2])
    loaded = 0
    for line in sys.stdin:
        figure, *numbers = line.split()
        if figure == "load":
            for first in range(loaded, int(numbers[0]), LOAD_STEP):
                store.batch([f"wallet={n // WALLET_EVENTS}" for n in range(first, first + LOAD_STEP)])
            loaded, answer = int(numbers[0]), 0.0
        else:
            answer = thread_rate(figures(store, loaded // WALLET_EVENTS)[figure], int(numbers[0]), float(numbers[1]))
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
