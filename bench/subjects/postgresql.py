"""The ceiling: bare PostgreSQL through asyncpg, with nothing of a product around it.

Prepared statements, one table with an idempotency key and a partial index on what waits. Drains with two processes
that claim 500, complete them and write a log row each in one statement. End to end is the bare script: claim 500,
send one prepared body over 20 pipelined connections, mark sent, no log. Two processes of it are a quarter faster than
one, even on two cores.
"""

import contextlib
import json
import time
import uuid
from collections.abc import AsyncIterator, Mapping
from functools import partial
from pathlib import Path

import asyncpg

from bench import letters, load
from bench.harness import Measure, Readings
from bench.server import Arena
from bench.sink import start_sink
from bench.statements import read_statements
from bench.workers import drain, python_command

SQL = read_statements(Path(__file__).with_name("postgresql.sql"))
WORKER = "bench.subjects.postgresql_worker"


def template_payload(number: int) -> str:
    return json.dumps({"template": letters.TEMPLATE_ID, "variables": letters.variables(number)})


class BarePostgres:
    name = "postgresql"

    def __init__(self) -> None:
        self._numbers = load.Numbers()
        self._connections: list[asyncpg.Connection] = []

    async def open(self, arena: Arena) -> None:
        self._url = await arena.create_database("bench_postgresql")
        self._depths = {
            depth: await arena.create_database(f"bench_postgresql_{depth}") for depth in ("shallow", "deep")
        }
        self._connections = [await asyncpg.connect(self._url) for _ in range(10)]
        await self._connections[0].execute(SQL["schema"])
        for url in self._depths.values():
            async with connected(url) as connection:
                await connection.execute(SQL["schema"])

    async def close(self) -> None:
        for connection in self._connections:
            await connection.close()

    def measures(self) -> Mapping[str, Measure]:
        return {
            "enqueue-1": partial(self._enqueue_singles, clients=1),
            "enqueue-10": partial(self._enqueue_singles, clients=10),
            "enqueue-batch": self._enqueue_batch,
            "enqueue-bodies": self._enqueue_bodies,
            "drain": self._drain,
            "end-to-end": self._end_to_end,
            "claim": self._claim,
        }

    async def _enqueue_singles(self, count: int, *, clients: int) -> Readings:
        rate = await load.rate_of_singles(self._connections[:clients], self._numbers.take(count), self._insert_one)
        return {f"enqueue-{clients}": rate}

    async def _insert_one(self, connection: asyncpg.Connection, number: int) -> None:
        await connection.fetchval(
            SQL["insert_one"], f"key-{number}", letters.recipient(number), template_payload(number)
        )

    async def _enqueue_batch(self, count: int) -> Readings:
        return {"enqueue-batch": await self._insert_many(count, bodies=False)}

    async def _enqueue_bodies(self, count: int) -> Readings:
        return {"enqueue-bodies": await self._insert_many(count, bodies=True)}

    async def _insert_many(self, count: int, *, bodies: bool) -> float:
        await self._connections[0].execute(SQL["clear"])
        connections = self._connections[: load.BULK_CLIENTS]
        act = partial(insert_batch, bodies=bodies)
        return await load.rate_of_batches(connections, self._numbers.take(count), act)

    async def _fill(self, count: int) -> None:
        await self._insert_many(count, bodies=False)
        await self._connections[0].execute(SQL["settle"])

    async def _drain(self, count: int) -> Readings:
        await self._connections[0].execute(SQL["clear"])
        effort = await drain([python_command(WORKER, self._url)] * 2, self._fill, count)
        await self._check_finished()
        return {"drain": count / effort.seconds, "drain-memory": effort.peak_megabytes}

    async def _end_to_end(self, count: int) -> Readings:
        await self._connections[0].execute(SQL["clear"])
        with start_sink() as sink:
            command = python_command(WORKER, self._url, str(sink.port))
            effort = await drain([command] * 2, self._fill, count)
            accepted = sink.counts().messages
        assert accepted == count, f"the sink has {accepted} of {count}"
        await self._check_finished()
        return {"end-to-end": count / effort.seconds, "end-to-end-memory": effort.peak_megabytes}

    async def _check_finished(self) -> None:
        unfinished = await self._connections[0].fetchval(SQL["count_unfinished"])
        assert unfinished == 0, f"{unfinished} were not finished"

    async def _claim(self, depth: int) -> Readings:
        async with connected(self._depths["shallow"]) as shallow, connected(self._depths["deep"]) as deep:
            await self._top_up(shallow, 1_000)
            await self._top_up(deep, depth)
            return await load.compare_claims(partial(claim, shallow), partial(claim, deep))

    async def _top_up(self, connection: asyncpg.Connection, waiting: int) -> None:
        missing = waiting - await connection.fetchval(SQL["count_unfinished"])
        if missing > 0:
            await load.rate_of_batches([connection], self._numbers.take(missing), insert_batch)
        await connection.execute(SQL["settle"])


async def insert_batch(connection: asyncpg.Connection, numbers: range, *, bodies: bool = False) -> None:
    payload = letters.own_body if bodies else template_payload
    inserted = await connection.fetch(
        SQL["insert_batch"],
        [f"key-{number}" for number in numbers],
        [letters.recipient(number) for number in numbers],
        [payload(number) for number in numbers],
    )
    assert len(inserted) == len(numbers)


async def claim(connection: asyncpg.Connection) -> float:
    """The seconds a claim takes; rolled back, so that as many wait for the next."""
    transaction = connection.transaction()
    await transaction.start()
    began = time.perf_counter()
    claimed = await connection.fetch(SQL["claim"], uuid.uuid4(), load.CLAIMED_AT_ONCE)
    elapsed = time.perf_counter() - began
    await transaction.rollback()
    assert len(claimed) == load.CLAIMED_AT_ONCE
    return elapsed


@contextlib.asynccontextmanager
async def connected(url: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(url)
    try:
        yield connection
    finally:
        await connection.close()
