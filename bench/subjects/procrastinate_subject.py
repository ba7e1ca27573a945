"""procrastinate: its psycopg connector with a pool, uvloop, two worker processes of ten jobs at a time.

Batches with `batch_defer_async`, the bulk call of its manual; no queueing lock. Finished jobs stay in its table with
their events, which is its default and its record of what happened. It fetches and finishes each job in a transaction
of its own; of one, ten and thirty jobs at a time, ten is the fastest.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

from procrastinate import App

from bench import letters, load
from bench.harness import Measure, Readings
from bench.server import Arena
from bench.subjects.procrastinate_worker import build_app
from bench.workers import drain, python_command

WORKER = "bench.subjects.procrastinate_worker"


def template_arguments(number: int) -> dict[str, Any]:
    return {
        "to": letters.recipient(number),
        "template": letters.TEMPLATE_ID,
        "variables": letters.variables(number),
    }


def body_arguments(number: int) -> dict[str, Any]:
    return {"to": letters.recipient(number), "text": letters.own_body(number)}


class Procrastinate:
    name = "procrastinate"

    def __init__(self) -> None:
        self._numbers = load.Numbers()
        self._app: App | None = None

    async def open(self, arena: Arena) -> None:
        self._meter = arena.meter
        self._url = await arena.create_database("bench_procrastinate")
        self._app = build_app(self._url)
        await self._app.open_async()
        await self._app.schema_manager.apply_schema_async()
        self._mail = self._app.tasks["mail"]

    async def close(self) -> None:
        if self._app:
            await self._app.close_async()

    def measures(self) -> Mapping[str, Measure]:
        return {
            "alone-1": partial(self._defer_singles, clients=1),
            "alone-10": partial(self._defer_singles, clients=10),
            "enqueue-batch": partial(self._defer_many, row="enqueue-batch", bodies=False),
            "enqueue-bodies": partial(self._defer_many, row="enqueue-bodies", bodies=True),
            "drain": self._drain,
        }

    async def _defer_singles(self, count: int, *, clients: int) -> Readings:
        work = load.share_singles(range(clients), self._numbers.take(count), self._defer_one)
        return (await self._meter.spend(count, work)).readings(f"alone-{clients}")

    async def _defer_one(self, _client: int, number: int) -> None:
        await self._mail.defer_async(**template_arguments(number))

    async def _defer_many(self, count: int, *, row: str, bodies: bool) -> Readings:
        await self._clear()
        act = partial(self._defer_batch, bodies=bodies)
        work = load.share_batches(range(load.BULK_CLIENTS), self._numbers.take(count), act)
        return (await self._meter.spend(count, work)).readings(row)

    async def _defer_batch(self, _client: int, numbers: range, *, bodies: bool) -> None:
        arguments = body_arguments if bodies else template_arguments
        await self._mail.batch_defer_async(*(arguments(number) for number in numbers))

    async def _clear(self) -> None:
        assert self._app
        await self._app.connector.execute_query_async("TRUNCATE procrastinate_jobs CASCADE")

    async def _fill(self, count: int) -> None:
        await self._defer_many(count, row="fill", bodies=False)

    async def _drain(self, count: int) -> Readings:
        assert self._app
        await self._clear()
        drained = await drain(self._meter, [python_command(WORKER, self._url)] * 2, self._fill, count)
        finished = await self._app.connector.execute_query_one_async(
            "SELECT count(*) AS jobs FROM procrastinate_jobs WHERE status = 'succeeded'"
        )
        assert finished["jobs"] == count, f"{finished['jobs']} of {count} were finished"
        return drained.readings("drain")
