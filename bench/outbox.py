"""The outbox: how many events a second one leader hands over, and how soon a sleeping one hears.

    python -m bench.outbox             100,000 events
    python -m bench.outbox --quick     does it run?

    relay       events that wait already, to a publisher that does nothing; at batches of 100 and of 1000
    sparse      the same, where one event in a hundred is of the topic: events looked at a second
    webhook     the same, to deliveries for one endpoint, committed with the progress
    latency     from the append to the publisher, asleep before each; median and 95th percentile, in milliseconds
    mail        from accepting a mail to its fact DeliveryAccepted at the publisher, worker and publisher asleep before
                each; median and 99th percentile
    later       the same for mail that is due in an hour

Target: 5,000 a second at a batch of 100, and a median latency below 100 ms. Exits 1 if missed.
"""

import argparse
import asyncio
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial

import uvloop

import postroom
from bench.server import running_server
from postroom.app import run_worker
from postroom.db.pool import Pool
from postroom.db.room import Room, open_room
from postroom.events import Event, EventStore
from postroom.outbox import service
from postroom.outbox.model import Subscription, Topic
from postroom.outbox.publisher import Batch, Publisher, Publishers
from postroom.outbox.relay import RelayOptions
from postroom.outbox.topics import save_topic
from postroom.outbox.webhooks import service as webhooks
from postroom.outbox.webhooks.publisher import WebhookPublisher
from postroom.outbox.worker import Outbox, OutboxOptions
from postroom.runtime.secrets import SecretBox
from postroom.settings import Settings

LEAST_RATE = 5_000
MOST_LATENCY_MS = 100
SPARSE = 100
LOAD_STEP = 1000
PAUSE_S = 0.2  # the facts of the last mail have been published, and all sleep again


class Noop:
    """Takes everything, and says when."""

    is_local = False

    def __init__(self, name: str = "noop") -> None:
        self.name, self.count = name, 0
        self.got = asyncio.Event()

    async def publish(self, batch: Batch) -> None:
        self.count += len(batch.messages)
        self.got.set()

    async def close(self) -> None:
        """Nothing is held."""


async def load(store: EventStore, many: int) -> None:
    for first in range(0, many, LOAD_STEP):
        numbers = range(first, first + LOAD_STEP)
        await store.append([Event.of("Rare" if n % SPARSE == 0 else "Common", {"n": n}, wallet=n) for n in numbers])


async def drained(pool: Pool, pair: Subscription) -> None:
    """Wait until a pair has nothing before it."""
    while True:
        lines = await service.list_progress(pool, topic=pair.topic)
        if all(line.lag_events == 0 for line in lines):
            return
        await asyncio.sleep(0.1)


async def relay_rate(room: Room, topic: Topic, publisher: Publisher, *, batch: int, many: int) -> float:
    """Events looked at a second, from the beginning of the store to its end."""
    pair = Subscription(topic.name, publisher.name)
    await save_topic(room.pool, topic, publishers=[publisher.name], from_now=False, actor="bench")
    await service.reset(room.pool, pair, position=0, actor="bench")
    stop = asyncio.Event()
    outbox = Outbox(room, Publishers.of([publisher]), OutboxOptions(relay=RelayOptions(batch=batch)))
    started = time.perf_counter()
    task = asyncio.create_task(outbox.loop(stop).run(stop))
    await drained(room.pool, pair)
    took = time.perf_counter() - started
    stop.set()
    await task
    return many / took


async def latencies(room: Room, topic: Topic, act: Callable[[], Awaitable[object]], times: int) -> list[float]:
    """Milliseconds from before an act to the publisher, in order."""
    noop, stop = Noop(topic.name), asyncio.Event()
    asleep = asyncio.Event()
    await save_topic(room.pool, topic, publishers=[topic.name], from_now=True, actor="bench")
    options = OutboxOptions(relay=RelayOptions(poll=timedelta(seconds=30)))

    def heard(step: str) -> None:
        if step == "asleep":
            asleep.set()

    task = asyncio.create_task(Outbox(room, Publishers.of([noop]), options, signal=heard).loop(stop).run(stop))
    found = []
    for _ in range(times):
        await asleep.wait()
        await asyncio.sleep(PAUSE_S)
        asleep.clear()
        noop.got.clear()
        started = time.perf_counter()
        await act()
        await noop.got.wait()
        found.append((time.perf_counter() - started) * 1000)
    stop.set()
    await task
    return sorted(found)


async def mail_latencies(room: Room, times: int) -> dict[str, list[float]]:
    """Milliseconds from accepting a mail to its fact, for mail that is due at once and mail that is due later."""
    topic, found = Topic(name="mail", types=("DeliveryAccepted",)), {}
    stop = asyncio.Event()
    working = asyncio.create_task(run_worker(room, stop=stop))
    for name, delay in (("mail", None), ("later", timedelta(hours=1))):

        async def send(delay: timedelta | None = delay) -> None:
            due_at = None if delay is None else datetime.now(UTC) + delay
            async with room.pool.acquire() as connection:
                await postroom.send(connection, to="a@example.org", subject="Hi", text="Hi", send_at=due_at)

        found[name] = await latencies(room, replace(topic, name=name), send, times)
    stop.set()
    await working
    return found


def quantile(found: list[float], share: float) -> float:
    return found[min(int(len(found) * share), len(found) - 1)]


async def measure(many: int, times: int) -> dict[str, float]:
    found: dict[str, float] = {}
    async with running_server() as arena:
        settings = Settings(database_url=await arena.create_database("outbox"), secret_key=bytes(32), transport="noop")
        async with open_room(settings, migrating=True) as room:
            store = EventStore(room.pool)
            await load(store, many)
            every, rare = Topic(name="every"), Topic(name="rare", types=("Rare",))
            found["relay 100"] = await relay_rate(room, every, Noop(), batch=100, many=many)
            found["relay 1000"] = await relay_rate(room, every, Noop(), batch=1000, many=many)
            found["sparse 100"] = await relay_rate(room, rare, Noop(), batch=100, many=many)
            pings = await latencies(room, Topic(name="latency"), partial(store.append, Event.of("Ping")), times)
            found["latency p50 ms"] = statistics.median(pings)
            found["latency p95 ms"] = quantile(pings, 0.95)
            for name, spread in (await mail_latencies(room, 5 * times)).items():
                found[f"{name} p50 ms"] = statistics.median(spread)
                found[f"{name} p99 ms"] = quantile(spread, 0.99)
            hooks = Topic(name="hooks", types=("Common",))
            await save_topic(room.pool, hooks, actor="bench")
            box = SecretBox(settings.sealing_keys)
            await webhooks.register(room.pool, box, url="https://example.org/", topics=["hooks"], actor="bench")
            found["webhook 100"] = await relay_rate(room, hooks, WebhookPublisher(), batch=100, many=many)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.outbox", description="How fast the outbox hands over.")
    parser.add_argument("--quick", action="store_true", help="small and short: does it run?")
    quick = parser.parse_args().quick
    found = uvloop.run(measure(2_000 if quick else 100_000, 5 if quick else 40))
    for name, value in found.items():
        print(f"{name:<16}{value:>12,.1f}" if "ms" in name else f"{name:<16}{value:>12,.0f}/s")
    kept = found["relay 100"] >= LEAST_RATE and found["latency p50 ms"] < MOST_LATENCY_MS
    return 0 if kept or quick else 1


if __name__ == "__main__":
    sys.exit(main())
