"""Postroom itself, as its users call it: the Python call, HTTP, and `postroom work`.

Everything stays as it ships: idempotency keys, recipients, payloads, suppression, facts, the ledger of attempts.
Batches of 1,000 are accepted in one transaction each; workers are `postroom work --processes 2`. Every row but
`enqueue-1-role` connects as the owner of the room, whose mail is not checked a second time by `send` (ADR 70).
"""

import asyncio
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import asyncpg

from bench import letters, load
from bench.campaigns import measure_sending
from bench.cost import cpu_of_tree
from bench.dashboard import measure_pages
from bench.growth import measure_appends, measure_deliveries, measure_schedule
from bench.harness import Measure, Readings
from bench.http_load import HttpClient
from bench.listing_pages import measure_every_listing
from bench.postroom_process import ask, create_api_key, free_port, postroom, running
from bench.server import Arena
from bench.sink import Sink, start_sink
from bench.statements import read_statements
from bench.workers import Command, Drained, drain, run_workers
from postroom import send
from postroom.db.pool import connect
from postroom.delivery import service
from postroom.delivery.check import check_batch, check_request
from postroom.delivery.model import DeliveryRequest, Lane
from postroom.post.address import Address

SQL = read_statements(Path(__file__).with_name("postroom.sql"))
ROOM = "postroom"
HTTP_CLIENTS = 32
CODES = 200
CODE_PACE_S = 0.02
IDLE_PACE_S = 0.1
CAMPAIGN_ACCOUNTS = 10
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
        self._arena, self._meter, self._scratch = arena, arena.meter, arena.scratch
        self._templates = arena.scratch / "templates"
        letters.write_template(self._templates)
        self._urls = {name: await arena.create_database(f"bench_postroom_{name}") for name in ("main", "many")}
        for url in self._urls.values():
            await asyncio.to_thread(ask, postroom(url, self._templates, "migrate"))
            await asyncio.to_thread(ask, postroom(url, self._templates, "templates", "publish"))
        self._connections = [await connect(self._urls["main"], ROOM) for _ in range(10)]
        self._many = await connect(self._urls["many"], ROOM)
        await self._connections[0].execute(SQL["create_application"])
        self._application = await asyncpg.connect(self._urls["main"], user="bench")

    async def close(self) -> None:
        for connection in (*self._connections, self._many, self._application):
            await connection.close()

    def measures(self) -> Mapping[str, Measure]:
        return {
            "accept-open": self._accept_in_one_transaction,
            "enqueue-1": partial(self._accept_singles, row="enqueue-1", clients=1, act=accept_in_transaction),
            "enqueue-1-role": self._accept_as_application,
            "enqueue-10": partial(self._accept_singles, row="enqueue-10", clients=10, act=accept_in_transaction),
            "alone-1": partial(self._accept_singles, row="alone-1", clients=1, act=accept_one),
            "alone-10": partial(self._accept_singles, row="alone-10", clients=10, act=accept_one),
            "enqueue-batch": partial(self._accept_many, row="enqueue-batch", bodies=False),
            "enqueue-bodies": partial(self._accept_many, row="enqueue-bodies", bodies=True),
            "accept-http": self._accept_over_http,
            "drain": self._drain,
            "end-to-end": self._end_to_end,
            "end-to-end-tls": self._end_to_end_tls,
            "campaign": self._campaign,
            "latency": self._latency,
            "wire": self._wire,
            "code": self._code,
            "kept": self._kept,
            "growth": self._growth,
            "dashboard": self._dashboard,
        }

    # ── Accepting ────────────────────────────────────────────────────────────────────────────────────────────────

    async def _accept_in_one_transaction(self, count: int) -> Readings:
        work = load.in_one_transaction(self._connections[0], self._numbers.take(count), accept_one)
        return (await self._meter.spend(count, work)).readings("accept-open")

    async def _accept_singles(
        self, count: int, *, row: str, clients: int, act: load.Act[asyncpg.Connection, int]
    ) -> Readings:
        work = load.share_singles(self._connections[:clients], self._numbers.take(count), act)
        return (await self._meter.spend(count, work)).readings(row)

    async def _accept_as_application(self, count: int) -> Readings:
        work = load.share_singles([self._application], self._numbers.take(count), accept_in_transaction)
        return (await self._meter.spend(count, work)).readings("enqueue-1-role")

    async def _accept_many(self, count: int, *, row: str, bodies: bool) -> Readings:
        await self._connections[0].execute(SQL["clear"])
        act = partial(accept_batch, bodies=bodies)
        work = load.share_batches(self._connections[: load.BULK_CLIENTS], self._numbers.take(count), act)
        return (await self._meter.spend(count, work)).readings(row)

    async def _accept_over_http(self, count: int) -> Readings:
        url, port = self._urls["main"], free_port()
        key = await asyncio.to_thread(create_api_key, url, self._templates)
        with running(postroom(url, self._templates, "serve", http_addr=f"127.0.0.1:{port}"), port=port) as server:
            headers = {"Authorization": f"Bearer {key}"}
            clients = [await HttpClient.connect(port, headers) for _ in range(HTTP_CLIENTS)]
            before = cpu_of_tree(server.pid)
            spent = await self._meter.spend(count, load.share_singles(clients, self._numbers.take(count), post_one))
            served = replace(spent, python=cpu_of_tree(server.pid) - before)
            for client in clients:
                await client.close()
        return served.readings("accept-http")

    async def _latency(self, count: int) -> Readings:
        return await load.call_latency(self._connections[0], self._numbers.take(count), accept_one)

    # ── Working ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _workers(self, database: str, *arguments: str, sink: Sink | None = None) -> Command:
        settings = {"transport": "smtp", "smtp_relay": sink.url} if sink else {"transport": "noop"}
        return postroom(self._urls[database], self._templates, "work", "--processes", "2", *arguments, **settings)

    async def _fill(self, count: int) -> None:
        """Mail by template, as an application sends it."""
        await self._fill_with(by_template, count)

    async def _fill_ready(self, count: int) -> None:
        """Content that is ready to leave, comparable with the jobs of the peers, which render nothing."""
        await self._fill_with(ready, count)

    async def _fill_with(self, request: Callable[[int], DeliveryRequest], count: int) -> None:
        for batch in load.batches(self._numbers.take(count)):
            await service.accept_batch(self._connections[0], check_batch([request(number) for number in batch]))
        await self._connections[0].execute(SQL["settle"])

    async def _drain(self, count: int) -> Readings:
        await self._connections[0].execute(SQL["clear"])
        drained = await drain(self._meter, [self._workers("main", "--until-empty")], self._fill_ready, count)
        await self._check_sent(count)
        return drained.readings("drain")

    async def _end_to_end(self, count: int) -> Readings:
        return (await self._send_queued(count, tls=False)).readings("end-to-end")

    async def _end_to_end_tls(self, count: int) -> Readings:
        """Over STARTTLS, and once more without TLS, for the ratio of their CPU within one round."""
        plain, secured = [await self._send_queued(count, tls=tls) for tls in (False, True)]
        readings = secured.readings("end-to-end-tls")
        return {**readings, "end-to-end-tls-plain": secured.spent.python / plain.spent.python}

    async def _send_queued(self, count: int, *, tls: bool) -> Drained:
        await self._connections[0].execute(SQL["clear"])
        with start_sink(tls=tls) as sink:
            drained = await drain(self._meter, [self._workers("main", "--until-empty", sink=sink)], self._fill, count)
            accepted = sink.counts().messages
        assert accepted == count, f"the sink has {accepted} of {count}"
        await self._check_sent(count)
        return drained

    async def _campaign(self, count: int) -> Readings:
        """Ten sender accounts, as an operator of campaigns has them."""
        return (await measure_sending(self._arena, count, accounts=CAMPAIGN_ACCOUNTS)).readings("campaign")

    async def _check_sent(self, count: int) -> None:
        sent = await self._connections[0].fetchval(SQL["count_sent"])
        assert sent == count, f"{sent} of {count} were sent"

    # ── Waiting ──────────────────────────────────────────────────────────────────────────────────────────────────

    async def _top_up(self, connection: asyncpg.Connection, waiting: int) -> None:
        missing = waiting - await connection.fetchval(SQL["count_waiting"])
        if missing > 0:
            act = partial(accept_batch, bodies=True, lane=Lane.BULK)
            await load.share_batches([connection], self._numbers.take(missing), act)
        await connection.execute(SQL["settle"])

    async def _code(self, waiting: int) -> Readings:
        """Codes at a steady pace while two processes send the bulk; from commit to the sink's last byte."""
        await self._top_up(self._many, waiting)
        return load.percentiles("code", await self._time_to_wire("many", self._many, Lane.AUTH, CODES, CODE_PACE_S))

    async def _wire(self, count: int) -> Readings:
        """Mails at a slow pace, so that two processes sleep before each."""
        connection = self._connections[0]
        await connection.execute(SQL["clear"])
        waits = await self._time_to_wire("main", connection, Lane.TRANSACTIONAL, count, IDLE_PACE_S)
        return load.percentiles("wire", waits)

    async def _time_to_wire(
        self, database: str, connection: asyncpg.Connection, lane: Lane, count: int, pace: float
    ) -> list[float]:
        """Milliseconds from commit to the sink's last byte, once the workers have sent their first mail."""
        record = self._scratch / f"timed-{time.monotonic_ns()}"
        with start_sink(record=record, only="timed-") as sink, running(self._workers(database, sink=sink)) as workers:
            await accept_in_transaction(connection, self._numbers.take(1).start)
            await until(lambda: sink.counts().messages > 0, workers)
            accepted = await self._send_timed(connection, lane, count, pace)
            await until(lambda: len(sink.recorded()) >= count, workers)
            arrived = {found.recipients[0]: found.at for found in sink.recorded()}
        return [(arrived[address] - at) * 1_000 for address, at in accepted.items()]

    async def _send_timed(
        self, connection: asyncpg.Connection, lane: Lane, count: int, pace: float
    ) -> dict[str, float]:
        """When each address was accepted, on the clock the sink uses."""
        accepted: dict[str, float] = {}
        for number in self._numbers.take(count):
            address = f"timed-{number}@example.org"
            async with connection.transaction():
                await service.accept(connection, check_request(by_body(number, address, lane)))
            accepted[address] = time.monotonic()
            await asyncio.sleep(pace)
        return accepted

    async def _growth(self, size: int) -> Readings:
        return {
            **await measure_deliveries(self._arena, self._templates, size),
            **await measure_every_listing(self._arena, size),
            **await measure_appends(self._arena, size),
            **await measure_schedule(self._arena, size),
        }

    async def _dashboard(self, size: int) -> Readings:
        return await measure_pages(self._arena, self._templates, size)

    # ── Keeping ──────────────────────────────────────────────────────────────────────────────────────────────────

    async def _kept(self, count: int) -> Readings:
        """The growth of a room by finished mail. The first mails leave space that is used again: they do not count."""
        await self._connections[0].execute(SQL["clear"])
        sizes = []
        for fill in (self._fill_ready, self._fill_ready, self._fill):
            await fill(count)
            await run_workers([self._workers("main", "--until-empty")])
            await self._connections[0].execute(SQL["vacuum"])
            sizes.append(await self._connections[0].fetchval(SQL["measure_size"]))
        first, bodies, templates = sizes
        return {"kept-body": (bodies - first) / count, "kept-template": (templates - bodies) / count}


async def accept_one(connection: asyncpg.Connection, number: int) -> None:
    await send(
        connection,
        to=letters.recipient(number),
        template=letters.TEMPLATE_ID,
        variables=letters.variables(number),
        locale=letters.LOCALE,
        source="bench",
        idempotency_key=f"key-{number}",
    )


async def accept_in_transaction(connection: asyncpg.Connection, number: int) -> None:
    async with connection.transaction():
        await accept_one(connection, number)


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


async def until(happened: Callable[[], bool], workers: subprocess.Popen[bytes]) -> None:
    """Look again and again, off the event loop, until it has happened."""
    deadline = time.monotonic() + ARRIVAL_PATIENCE_S
    while not await asyncio.to_thread(happened):
        if workers.poll() is not None:
            raise RuntimeError(f"the workers ended with {workers.returncode}")
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {ARRIVAL_PATIENCE_S} s")
        await asyncio.sleep(0.1)
