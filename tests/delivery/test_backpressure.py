"""A worker that cannot record results stops sending."""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

from tests.support.builders import NOON, Hands, Recording, a_mail, a_worker, accepted, until
from tests.support.chaos import ledger, received, silence, worker_process
from tests.support.chaos_worker import Orders
from tests.support.smtp_server import smtp_server, transport_to

from postroom.db.pool import Pool
from postroom.db.room import Room
from postroom.delivery.maintenance import Maintenance
from postroom.delivery.model import Lane
from postroom.delivery.worker import WorkerOptions

CHUNK = 4
BLOCKED = "EXISTS (SELECT FROM pg_locks WHERE NOT granted AND relation = 'attempts'::regclass)"
OPTIONS = WorkerOptions(batch=8, chunk=CHUNK, lease=timedelta(hours=1), until_empty=True)


@asynccontextmanager
async def locked_ledger(pool: Pool) -> AsyncIterator[None]:
    """Lock the table of attempts against writes."""
    async with pool.acquire() as connection, connection.transaction():
        await connection.execute("LOCK TABLE attempts IN ACCESS EXCLUSIVE MODE")
        yield


async def test_a_worker_stops_sending_when_two_chunks_are_not_written(pool: Pool) -> None:
    """With a blocked ledger two chunks of forty mails leave; the rest follow when it is free."""
    ids = await accepted(pool, *(a_mail(f"p{n}@example.org") for n in range(40)))
    transport = Recording()
    worker = a_worker(pool, transport, options=OPTIONS)
    async with locked_ledger(pool):
        running = asyncio.create_task(worker.run())
        await until(pool, BLOCKED)
        async with pool.acquire() as connection:
            for _ in range(200):  # round trips enough to claim and send everything several times over
                await connection.fetchval("SELECT 1")
                await asyncio.sleep(0)
        assert CHUNK <= len(transport.envelopes) <= 2 * CHUNK
    await asyncio.wait_for(running, 60)
    assert sorted(transport.delivery_ids) == sorted(ids)


async def test_a_kill_beside_a_blocked_ledger_repeats_at_most_two_chunks(room: Room) -> None:
    """A worker killed while it cannot write repeats at most two chunks, and the ledger records it."""
    await accepted(room.pool, *(a_mail(f"p{n}@example.org", lane=Lane.TRANSACTIONAL) for n in range(40)))
    async with smtp_server() as server:
        async with locked_ledger(room.pool), worker_process(Orders(room.url, server.port, chunk=CHUNK)) as process:
            await until(room.pool, BLOCKED)
            process.send_signal(signal.SIGKILL)
            await process.wait()
        await silence(server)
        later = Hands(NOON + timedelta(days=365))
        await Maintenance(room.pool, clock=later).recover()
        async with transport_to(server) as transport:
            await a_worker(room.pool, transport, clock=later, options=OPTIONS).run()
        copies = received(server)
    entries = await ledger(room.pool)
    assert {entry.state for entry in entries} == {"sent"}
    assert sum(1 for count in copies.values() if count > 1) <= 2 * CHUNK
    assert {each for each, count in copies.items() if count > 1} <= {e.id for e in entries if e.ambiguous}
