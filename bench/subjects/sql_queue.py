"""Queues that are SQL alone: the statements of `<name>.sql` through asyncpg, prepared, with nothing around them.

Every file has the same statements: `schema`, `insert_one`, `insert_batch`, `claim`, `complete`, `count_unfinished`,
`clear`, `settle`. Two processes drain: they claim 500 and complete them in one statement.
"""

import json
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import asyncpg

from bench import letters, load
from bench.harness import Measure, Readings
from bench.server import Arena
from bench.statements import read_statements
from bench.workers import Command, drain, python_command

WORKER = "bench.subjects.sql_queue_worker"

Content = Mapping[str, object]
Arguments = Callable[[int, Content], tuple[str, ...]]
"""Makes the values of one insert from the number of a mail and its content."""


def by_template(number: int) -> Content:
    return {"template": letters.TEMPLATE_ID, "variables": letters.variables(number)}


def by_body(number: int) -> Content:
    return {"text": letters.own_body(number)}


def one_document(number: int, content: Content) -> tuple[str]:
    """A job as one JSON document: these queues have no columns for mail."""
    return (json.dumps({"to": letters.recipient(number), **content}),)


class SqlQueue:
    def __init__(self, name: str, arguments: Arguments = one_document) -> None:
        self.name = name
        self._arguments = arguments
        self._sql = read_statements(Path(__file__).with_name(f"{name.replace('-', '_')}.sql"))
        self._numbers = load.Numbers()
        self._connections: list[asyncpg.Connection] = []

    async def open(self, arena: Arena) -> None:
        self._meter = arena.meter
        self._url = await arena.create_database(f"bench_{self.name}")
        self._connections = [await asyncpg.connect(self._url) for _ in range(10)]
        await self._connections[0].execute(self._sql["schema"])

    async def close(self) -> None:
        for connection in self._connections:
            await connection.close()

    def measures(self) -> Mapping[str, Measure]:
        return {
            "accept-open": self._insert_in_one_transaction,
            "enqueue-1": partial(self._insert_singles, row="enqueue-1", clients=1, act=self._insert_in_transaction),
            "enqueue-10": partial(self._insert_singles, row="enqueue-10", clients=10, act=self._insert_in_transaction),
            "alone-1": partial(self._insert_singles, row="alone-1", clients=1, act=self._insert_one),
            "alone-10": partial(self._insert_singles, row="alone-10", clients=10, act=self._insert_one),
            "enqueue-batch": partial(self._insert_many, row="enqueue-batch", bodies=False),
            "enqueue-bodies": partial(self._insert_many, row="enqueue-bodies", bodies=True),
            "latency": self._latency,
            "drain": self._drain,
        }

    async def _insert_one(self, connection: asyncpg.Connection, number: int) -> None:
        await connection.fetchval(self._sql["insert_one"], *self._arguments(number, by_template(number)))

    async def _insert_in_transaction(self, connection: asyncpg.Connection, number: int) -> None:
        async with connection.transaction():
            await self._insert_one(connection, number)

    async def _insert_in_one_transaction(self, count: int) -> Readings:
        work = load.in_one_transaction(self._connections[0], self._numbers.take(count), self._insert_one)
        return (await self._meter.spend(count, work)).readings("accept-open")

    async def _insert_singles(
        self, count: int, *, row: str, clients: int, act: load.Act[asyncpg.Connection, int]
    ) -> Readings:
        work = load.share_singles(self._connections[:clients], self._numbers.take(count), act)
        return (await self._meter.spend(count, work)).readings(row)

    async def _insert_many(self, count: int, *, row: str, bodies: bool) -> Readings:
        await self._connections[0].execute(self._sql["clear"])
        act = partial(self._insert_batch, content=by_body if bodies else by_template)
        work = load.share_batches(self._connections[: load.BULK_CLIENTS], self._numbers.take(count), act)
        return (await self._meter.spend(count, work)).readings(row)

    async def _insert_batch(
        self, connection: asyncpg.Connection, numbers: range, *, content: Callable[[int], Content] = by_template
    ) -> None:
        columns = zip(*(self._arguments(number, content(number)) for number in numbers), strict=True)
        inserted = await connection.fetch(self._sql["insert_batch"], *map(list, columns))
        assert len(inserted) == len(numbers)

    async def _latency(self, count: int) -> Readings:
        return await load.call_latency(self._connections[0], self._numbers.take(count), self._insert_one)

    async def _fill(self, count: int) -> None:
        await self._insert_many(count, row="fill", bodies=False)
        await self._connections[0].execute(self._sql["settle"])

    async def _drain(self, count: int) -> Readings:
        await self._connections[0].execute(self._sql["clear"])
        drained = await drain(self._meter, [self._worker()] * 2, self._fill, count)
        await self._check_finished()
        return drained.readings("drain")

    def _worker(self, *arguments: str) -> Command:
        return python_command(WORKER, self.name.replace("-", "_"), self._url, *arguments)

    async def _check_finished(self) -> None:
        unfinished = await self._connections[0].fetchval(self._sql["count_unfinished"])
        assert unfinished == 0, f"{unfinished} were not finished"
