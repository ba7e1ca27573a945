"""pgqueuer: its asyncpg driver, on uvloop, two worker processes in drain mode.

Enqueues without a deduplication key, its fastest way, over a connection per client; batches by passing lists, as its
manual advises. It stands twice in the table: `pgqueuer` drains with the batch size it ships with (10) and
`pgqueuer-500` with 500, the best of 250, 500 and 1,000. It keeps a log row per job, but neither recipients nor
attempts nor suppression.
"""

import json
from collections.abc import Mapping
from functools import partial

import asyncpg
from pgqueuer.db import AsyncpgDriver
from pgqueuer.queries import Queries

from bench import letters, load
from bench.harness import Measure, Readings
from bench.server import Arena
from bench.workers import drain, python_command

DEFAULT_BATCH = 10
WORKER = "bench.subjects.pgqueuer_worker"


def template_payload(number: int) -> bytes:
    job = {"to": letters.recipient(number), "template": letters.TEMPLATE_ID, "variables": letters.variables(number)}
    return json.dumps(job).encode()


def body_payload(number: int) -> bytes:
    return json.dumps({"to": letters.recipient(number), "text": letters.own_body(number)}).encode()


class PgQueuer:
    def __init__(self, batch_size: int = DEFAULT_BATCH) -> None:
        self._batch_size = batch_size
        self.name = "pgqueuer" if batch_size == DEFAULT_BATCH else f"pgqueuer-{batch_size}"
        self._numbers = load.Numbers()
        self._connections: list[asyncpg.Connection] = []

    async def open(self, arena: Arena) -> None:
        self._meter = arena.meter
        self._url = await arena.create_database(f"bench_{self.name}")
        self._connections = [await asyncpg.connect(self._url) for _ in range(10)]
        self._queues = [Queries(AsyncpgDriver(connection)) for connection in self._connections]
        await self._queues[0].install()

    async def close(self) -> None:
        for connection in self._connections:
            await connection.close()

    def measures(self) -> Mapping[str, Measure]:
        if self._batch_size != DEFAULT_BATCH:
            return {"drain": self._drain}
        return {
            "accept-open": self._enqueue_in_one_transaction,
            "enqueue-1": partial(self._enqueue_singles, row="enqueue-1", clients=1, act=self._enqueue_in_transaction),
            "enqueue-1-role": partial(
                self._enqueue_singles, row="enqueue-1-role", clients=1, act=self._enqueue_in_transaction
            ),
            "enqueue-10": partial(
                self._enqueue_singles, row="enqueue-10", clients=10, act=self._enqueue_in_transaction
            ),
            "alone-1": partial(self._enqueue_singles, row="alone-1", clients=1, act=self._enqueue_one),
            "alone-10": partial(self._enqueue_singles, row="alone-10", clients=10, act=self._enqueue_one),
            "enqueue-batch": partial(self._enqueue_many, row="enqueue-batch", bodies=False),
            "enqueue-bodies": partial(self._enqueue_many, row="enqueue-bodies", bodies=True),
            "latency": self._latency,
            "drain": self._drain,
        }

    async def _enqueue_one(self, connection: asyncpg.Connection, number: int) -> None:
        queue = self._queues[self._connections.index(connection)]
        await queue.enqueue("mail", template_payload(number))

    async def _enqueue_in_transaction(self, connection: asyncpg.Connection, number: int) -> None:
        async with connection.transaction():
            await self._enqueue_one(connection, number)

    async def _enqueue_in_one_transaction(self, count: int) -> Readings:
        work = load.in_one_transaction(self._connections[0], self._numbers.take(count), self._enqueue_one)
        return (await self._meter.spend(count, work)).readings("accept-open")

    async def _enqueue_singles(
        self, count: int, *, row: str, clients: int, act: load.Act[asyncpg.Connection, int]
    ) -> Readings:
        work = load.share_singles(self._connections[:clients], self._numbers.take(count), act)
        return (await self._meter.spend(count, work)).readings(row)

    async def _enqueue_many(self, count: int, *, row: str, bodies: bool) -> Readings:
        await self._queues[0].clear_queue()
        act = partial(enqueue_batch, bodies=bodies)
        work = load.share_batches(self._queues[: load.BULK_CLIENTS], self._numbers.take(count), act)
        return (await self._meter.spend(count, work)).readings(row)

    async def _latency(self, count: int) -> Readings:
        return await load.call_latency(self._connections[0], self._numbers.take(count), self._enqueue_one)

    async def _fill(self, count: int) -> None:
        await self._enqueue_many(count, row="fill", bodies=False)

    async def _drain(self, count: int) -> Readings:
        await self._queues[0].clear_queue()
        command = python_command(WORKER, self._url, str(self._batch_size))
        drained = await drain(self._meter, [command] * 2, self._fill, count)
        left = sum(entry.count for entry in await self._queues[0].queue_size())
        assert left == 0, f"{left} were not finished"
        return drained.readings("drain")


async def enqueue_batch(queue: Queries, numbers: range, *, bodies: bool) -> None:
    payload = body_payload if bodies else template_payload
    payloads: list[bytes | None] = [payload(number) for number in numbers]
    await queue.enqueue(["mail"] * len(numbers), payloads, [0] * len(numbers))
