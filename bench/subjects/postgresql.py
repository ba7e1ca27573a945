"""The ceiling: bare PostgreSQL through asyncpg, with nothing of a product around it.

One table with an idempotency key and a partial index on waiting rows; a log row for each drained mail. Inside one open
transaction it inserts one row into a table with a primary key and a unique key: the least an accepted mail can cost.
End to end is the bare script: claim 500, send one prepared body over 20 pipelined connections, mark sent, no log. Two
processes of it are a quarter faster than one, even on two cores.
"""

import contextlib
import json
import time
import uuid
from collections.abc import AsyncIterator, Mapping
from functools import partial

import asyncpg

from bench import letters, load
from bench.harness import Measure, Readings
from bench.server import Arena
from bench.sink import start_sink
from bench.subjects.sql_queue import Content, SqlQueue, by_template
from bench.workers import drain


def mail_columns(number: int, content: Content) -> tuple[str, str, str]:
    return f"key-{number}", letters.recipient(number), json.dumps(content)


class BarePostgres(SqlQueue):
    def __init__(self) -> None:
        super().__init__("postgresql", mail_columns)

    async def open(self, arena: Arena) -> None:
        await super().open(arena)
        self._depths = {
            depth: await arena.create_database(f"bench_postgresql_{depth}") for depth in ("shallow", "deep")
        }
        for url in self._depths.values():
            async with connected(url) as connection:
                await connection.execute(self._sql["schema"])

    def measures(self) -> Mapping[str, Measure]:
        return {
            **super().measures(),
            "accept-open": self._insert_rows,
            "end-to-end": self._end_to_end,
            "claim": self._claim,
        }

    async def _insert_rows(self, count: int) -> Readings:
        work = load.in_one_transaction(self._connections[0], self._numbers.take(count), self._insert_row)
        return (await self._meter.spend(count, work)).readings("accept-open")

    async def _insert_row(self, connection: asyncpg.Connection, number: int) -> None:
        key, _recipient, payload = self._arguments(number, by_template(number))
        await connection.fetchval(self._sql["insert_row"], key, payload)

    async def _end_to_end(self, count: int) -> Readings:
        await self._connections[0].execute(self._sql["clear"])
        with start_sink() as sink:
            drained = await drain(self._meter, [self._worker(str(sink.port))] * 2, self._fill, count)
            accepted = sink.counts().messages
        assert accepted == count, f"the sink has {accepted} of {count}"
        await self._check_finished()
        return drained.readings("end-to-end")

    async def _claim(self, depth: int) -> Readings:
        async with connected(self._depths["shallow"]) as shallow, connected(self._depths["deep"]) as deep:
            await self._top_up(shallow, 1_000)
            await self._top_up(deep, depth)
            claim = self._sql["claim"]
            return await load.compare_claims(partial(time_claim, shallow, claim), partial(time_claim, deep, claim))

    async def _top_up(self, connection: asyncpg.Connection, waiting: int) -> None:
        missing = waiting - await connection.fetchval(self._sql["count_unfinished"])
        if missing > 0:
            await load.share_batches([connection], self._numbers.take(missing), self._insert_batch)
        await connection.execute(self._sql["settle"])


async def time_claim(connection: asyncpg.Connection, statement: str) -> float:
    """The seconds a claim takes; rolled back, so that as many wait for the next."""
    transaction = connection.transaction()
    await transaction.start()
    began = time.perf_counter()
    claimed = await connection.fetch(statement, uuid.uuid4(), load.CLAIMED_AT_ONCE)
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
