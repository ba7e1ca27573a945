"""The ceiling: bare PostgreSQL through asyncpg, with nothing of a product around it.

One table with an idempotency key and a partial index on waiting rows; a log row for each drained mail. Inside one open
transaction it inserts one row into a table with a primary key and a unique key: the least an accepted mail can cost.
End to end is the bare script: claim 500, send one prepared body over 20 pipelined connections, mark sent, no log. Two
processes of it are a quarter faster than one, even on two cores.
"""

import json
from collections.abc import Mapping
from functools import partial

import asyncpg

from bench import letters, load
from bench.harness import Measure, Readings
from bench.sink import start_sink
from bench.subjects.sql_queue import Content, SqlQueue, by_template
from bench.workers import drain


def mail_columns(number: int, content: Content) -> tuple[str, str, str]:
    return f"key-{number}", letters.recipient(number), json.dumps(content)


class BarePostgres(SqlQueue):
    def __init__(self) -> None:
        super().__init__("postgresql", mail_columns)

    def measures(self) -> Mapping[str, Measure]:
        return {
            **super().measures(),
            "accept-open": self._insert_rows,
            "enqueue-1-role": partial(
                self._insert_singles, row="enqueue-1-role", clients=1, act=self._insert_in_transaction
            ),
            "end-to-end": self._end_to_end,
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
