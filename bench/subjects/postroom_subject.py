"""Postroom itself, through the doors its users have: the Python call, HTTP, and `postroom work`.

Everything stays as it ships: idempotency keys, recipients, payloads, suppression, the ledger of attempts. Single mail
is accepted in a transaction of the caller's; batches of 1,000 in one each; workers are `postroom work --processes 2`.
"""

import asyncio
import subprocess
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import partial
from pathlib import Path

import asyncpg

from bench import letters, load
from bench.harness import Measure, Readings
from bench.http_load import HttpClient
from bench.server import Arena
from bench.sink import Sink, start_sink
from bench.statements import read_statements
from bench.subjects.postroom_process import API_KEY_COMMAND, ask, find_api_key, free_port, postroom, running
from bench.workers import Command, drain
from postroom.db.migrate import migrate
from postroom.db.pool import connect
from postroom.delivery import service, store
from postroom.delivery.check import check_batch, check_request
from postroom.delivery.model import DeliveryRequest, Lane
from postroom.post.address import Address

SQL = read_statements(Path(__file__).with_name("postroom.sql"))
ROOM = "postroom"
HTTP_CLIENTS = 32
CODES = 200
CODE_PACE_S = 0.02
ARRIVAL_PATIENCE_S = 120


def by_template(number: int, lane: Lane = Lane.TRANSACTIONAL) -> DeliveryRequest:
    return DeliveryRequest(
        to=(Address(letters.recipient(number)),),
        template=letters.TEMPLATE_ID,
        variables=letters.variables(number),
        locale=letters.LOCALE,
        lane=lane,
        source="bench",
        idempotency_key=f"key-{number}",
    )


def by_body(number: int, recipient: str = "", lane: Lane = Lane.TRANSACTIONAL) -> DeliveryRequest:
    return DeliveryRequest(
        to=(Address(recipient or letters.recipient(number)),),
        subject=f"Letter {number}",
        text=letters.own_body(number),
        lane=lane,
        source="bench",
        idempotency_key=f"key-{number}",
    )


def ready(number: int) -> DeliveryRequest:
    """A short mail that needs no template, as small as a job of the peers."""
    return DeliveryRequest(
        to=(Address(letters.recipient(number)),),
        subject=f"Letter {number}",
        text=f"Dear Reader {number}, your order 2026-{number:08d} is on its way.",
        source="bench",
        idempotency_key=f"key-{number}",
    )


class PostroomSubject:
    name = "postroom"

    def __init__(self) -> None:
        self._numbers = load.Numbers()
        self._connections: list[asyncpg.Connection] = []

    async def open(self, arena: Arena) -> None:
        self._scratch = arena.scratch
        self._templates = arena.scratch / "templates"
        letters.write_template(self._templates)
        self._urls = {name: await arena.create_database(f"bench_postroom_{name}") for name in ("main", "few", "many")}
        for url in self._urls.values():
            await migrate(url, ROOM)
        self._connections = [await connect(self._urls["main"], ROOM) for _ in range(10)]
        self._few = await connect(self._urls["few"], ROOM)
        self._many = await connect(self._urls["many"], ROOM)

    async def close(self) -> None:
        for connection in (*self._connections, self._few, self._many):
            await connection.close()

    def measures(self) -> Mapping[str, Measure]:
        return {
            "enqueue-1": partial(self._accept_singles, clients=1),
            "enqueue-10": partial(self._accept_singles, clients=10),
            "enqueue-batch": self._accept_by_template,
            "enqueue-bodies": self._accept_bodies,
            "accept-http": self._accept_over_http,
            "drain": self._drain,
            "end-to-end": self._end_to_end,
            "claim": self._claim,
            "code": self._code,
        }

    # ── Accepting ────────────────────────────────────────────────────────────────────────────────────────────────

    async def _accept_singles(self, count: int, *, clients: int) -> Readings:
        connections = self._connections[:clients]
        return {f"enqueue-{clients}": await load.rate_of_singles(connections, self._numbers.take(count), accept_one)}

    async def _accept_by_template(self, count: int) -> Readings:
        return {"enqueue-batch": await self._accept_many(count, bodies=False)}

    async def _accept_bodies(self, count: int) -> Readings:
        return {"enqueue-bodies": await self._accept_many(count, bodies=True)}

    async def _accept_many(self, count: int, *, bodies: bool) -> float:
        await self._connections[0].execute(SQL["clear"])
        connections = self._connections[: load.BULK_CLIENTS]
        act = partial(accept_batch, bodies=bodies)
        return await load.rate_of_batches(connections, self._numbers.take(count), act)

    async def _accept_over_http(self, count: int) -> Readings:
        url, port = self._urls["main"], free_port()
        key = find_api_key(await asyncio.to_thread(ask, postroom(url, self._templates, *API_KEY_COMMAND)))
        with running(postroom(url, self._templates, "serve", http_addr=f"127.0.0.1:{port}"), port=port):
            headers = {"Authorization": f"Bearer {key}"}
            clients = [await HttpClient.connect(port, headers) for _ in range(HTTP_CLIENTS)]
            rate = await load.rate_of_singles(clients, self._numbers.take(count), post_one)
            for client in clients:
                await client.close()
        return {"accept-http": rate}

    # ── Working ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _workers(self, database: str, *arguments: str, sink: Sink | None = None) -> Command:
        settings = {"transport": "smtp", "smtp_relay": sink.url} if sink else {"transport": "noop"}
        return postroom(self._urls[database], self._templates, "work", "--processes", "2", *arguments, **settings)

    async def _fill(self, count: int) -> None:
        await self._accept_many(count, bodies=False)
        await self._connections[0].execute(SQL["settle"])

    async def _fill_ready(self, count: int) -> None:
        """Content that is ready to leave: what the peers' jobs, which render nothing, are to be compared with."""
        numbers = self._numbers.take(count)
        for first in range(0, len(numbers), load.BATCH):
            requests = [ready(number) for number in numbers[first : first + load.BATCH]]
            await service.accept_batch(self._connections[0], check_batch(requests))
        await self._connections[0].execute(SQL["settle"])

    async def _drain(self, count: int) -> Readings:
        await self._connections[0].execute(SQL["clear"])
        effort = await drain([self._workers("main", "--until-empty")], self._fill_ready, count)
        await self._check_sent(count)
        return {"drain": count / effort.seconds, "drain-memory": effort.peak_megabytes}

    async def _end_to_end(self, count: int) -> Readings:
        await self._connections[0].execute(SQL["clear"])
        with start_sink() as sink:
            effort = await drain([self._workers("main", "--until-empty", sink=sink)], self._fill, count)
            accepted = sink.counts().messages
        assert accepted == count, f"the sink has {accepted} of {count}"
        await self._check_sent(count)
        return {"end-to-end": count / effort.seconds, "end-to-end-memory": effort.peak_megabytes}

    async def _check_sent(self, count: int) -> None:
        sent = await self._connections[0].fetchval(SQL["count_sent"])
        assert sent == count, f"{sent} of {count} were sent"

    # ── Waiting ──────────────────────────────────────────────────────────────────────────────────────────────────

    async def _claim(self, depth: int) -> Readings:
        await self._top_up(self._few, 1_000)
        await self._top_up(self._many, depth)
        return await load.compare_claims(partial(claim, self._few), partial(claim, self._many))

    async def _top_up(self, connection: asyncpg.Connection, waiting: int) -> None:
        missing = waiting - await connection.fetchval(SQL["count_waiting"])
        if missing > 0:
            act = partial(accept_batch, bodies=True, lane=Lane.BULK)
            await load.rate_of_batches([connection], self._numbers.take(missing), act)
        await connection.execute(SQL["settle"])

    async def _code(self, waiting: int) -> Readings:
        """Codes at a steady pace while two processes send the bulk; from commit to the sink's last byte."""
        await self._top_up(self._many, waiting)
        record = self._scratch / f"codes-{time.monotonic_ns()}"
        with start_sink(record=record, only="code-") as sink, running(self._workers("many", sink=sink)) as workers:
            await until(lambda: sink.counts().messages > 0, workers)
            accepted = await self._send_codes()
            await until(lambda: len(sink.recorded()) >= CODES, workers)
            arrived = {found.recipients[0]: found.at for found in sink.recorded()}
        waits = [(arrived[address] - at) * 1_000 for address, at in accepted.items()]
        return {"code-p50": load.percentile(waits, 50), "code-p99": load.percentile(waits, 99)}

    async def _send_codes(self) -> dict[str, float]:
        """When each code's address was accepted, on the clock the sink uses."""
        accepted: dict[str, float] = {}
        for number in self._numbers.take(CODES):
            address = f"code-{number}@example.org"
            async with self._many.transaction():
                await service.accept(self._many, check_request(by_body(number, address, Lane.AUTH)))
            accepted[address] = time.monotonic()
            await asyncio.sleep(CODE_PACE_S)
        return accepted


async def accept_one(connection: asyncpg.Connection, number: int) -> None:
    async with connection.transaction():
        await service.accept(connection, check_request(by_template(number)))


async def accept_batch(
    connection: asyncpg.Connection, numbers: range, *, bodies: bool, lane: Lane = Lane.TRANSACTIONAL
) -> None:
    request = partial(by_body, lane=lane) if bodies else partial(by_template, lane=lane)
    async with connection.transaction():
        accepted = await service.accept_batch(connection, check_batch([request(number) for number in numbers]))
    assert len(accepted) == len(numbers)


async def post_one(client: HttpClient, number: int) -> None:
    document = {
        "to": [letters.recipient(number)],
        "template": letters.TEMPLATE_ID,
        "variables": letters.variables(number),
        "locale": letters.LOCALE,
    }
    status = await client.post("/v1/deliveries", document, idempotency_key=f"key-{number}")
    assert status == 202, f"answered {status}"


async def claim(connection: asyncpg.Connection) -> float:
    """The seconds a claim takes; rolled back, so that as many wait for the next."""
    transaction = connection.transaction()
    await transaction.start()
    began = time.perf_counter()
    claimed = await store.claim_due(
        connection,
        lane=Lane.BULK,
        batch_limit=load.CLAIMED_AT_ONCE,
        worker_id=1,
        lease=timedelta(minutes=5),
        now=None,
    )
    elapsed = time.perf_counter() - began
    await transaction.rollback()
    assert len(claimed) == load.CLAIMED_AT_ONCE
    return elapsed


async def until(happened: Callable[[], bool], workers: subprocess.Popen[bytes]) -> None:
    """Look again and again, off the event loop, until it has happened."""
    deadline = time.monotonic() + ARRIVAL_PATIENCE_S
    while not await asyncio.to_thread(happened):
        if workers.poll() is not None:
            raise RuntimeError(f"the workers ended with {workers.returncode}")
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {ARRIVAL_PATIENCE_S} s")
        await asyncio.sleep(0.1)
