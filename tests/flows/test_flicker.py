"""The database flickers: connections are cut in the middle of the work, and results are written once all the same."""

import asyncio
from collections import Counter
from datetime import timedelta

import asyncpg
import pytest
from structlog.testing import capture_logs
from tests.support.builders import Recording, a_mail, a_worker, accepted, claimed, state_of, until
from tests.support.chaos import ledger, leftovers
from tests.support.loops import logged, looping

from postroom.db.pool import Pool, open_pool
from postroom.db.room import Room
from postroom.delivery.maintenance import Maintenance, MaintenanceOptions
from postroom.delivery.model import DeliveryState, Lane
from postroom.delivery.worker import WorkerOptions
from postroom.post.reply import Content, Envelope, Reply

CUT = (  # and wait so many milliseconds until they are gone
    "SELECT pg_terminate_backend(pid, $1) FROM pg_stat_activity"
    " WHERE datname = current_database() AND backend_type = 'client backend' AND application_name <> 'witness'"
)
OPTIONS = WorkerOptions(batch=20, chunk=5, until_empty=True, poll_interval=timedelta(milliseconds=20))


async def own_pool(room: Room, size: int) -> Pool:
    """A second pool of the room, for connections that are cut."""
    return await open_pool(room.url, room.name, size=size, pooled=room.settings.is_pooled)


async def open_witness(room: Room) -> asyncpg.Connection:
    """A connection that cuts others and is not cut."""
    return await asyncpg.connect(room.direct_url, server_settings={"application_name": "witness"})


async def uncut_pool(room: Room) -> Pool:
    """A pool that looks at the result; PgBouncer refuses connections for a while after its own were refused."""
    return await open_pool(room.direct_url, room.name, size=1)


async def cut_all(room: Room) -> None:
    """End every connection of the room's workers, as a restart would."""
    connection = await open_witness(room)
    await connection.execute(CUT, 0)
    await connection.close()


class Cutting(Recording):
    """A way out during which, now and then, the database goes away."""

    def __init__(self, room: Room, every: int) -> None:
        super().__init__()
        self._room, self._every = room, every

    async def send(self, envelope: Envelope, content: Content) -> Reply:
        reply = await super().send(envelope, content)
        if len(self.envelopes) % self._every == 0:
            await cut_all(self._room)
        return reply


async def test_results_are_written_once_although_connections_are_cut(room: Room) -> None:
    """Sixty mails while the database hangs up every seventh: each is sent once and written once."""
    ids = await accepted(room.pool, *(a_mail(f"p{n}@example.org", lane=lane) for lane in Lane for n in range(20)))
    own = await own_pool(room, 6)
    transport = Cutting(room, 7)
    async with asyncio.timeout(60):
        await a_worker(own, transport, options=OPTIONS).run()
    await own.close()
    async with await uncut_pool(room) as uncut:
        entries = await ledger(uncut)
    # A claim whose answer was lost waits for its lease; nothing of it was sent.
    done = [entry for entry in entries if entry.state == "sent"]
    assert Counter(transport.delivery_ids) == Counter({entry.id: 1 for entry in done})
    assert {entry.sent for entry in done} == {1}
    assert {entry.state for entry in entries} <= {"sent", "sending", "queued"}
    assert [entry.id for entry in entries] == ids


@pytest.mark.parametrize("step", ["claimed", "started", "sent"])
async def test_a_cut_after_any_step_is_survived(room: Room, step: str) -> None:
    """The worker goes on after its connections were cut, whatever it was doing."""
    [delivery] = await accepted(room.pool)
    own = await own_pool(room, 4)
    cut: list[str] = []

    def signal(name: str) -> None:
        if name == step and not cut:
            cut.append(name)
            for holder in own._holders:  # no orderly good-bye: the sockets go away under the worker
                if holder._con is not None:
                    holder._con.terminate()

    transport = Recording()
    async with asyncio.timeout(60):
        await a_worker(own, transport, options=OPTIONS, signal=signal).run()
    await own.close()
    assert cut == [step]
    assert transport.delivery_ids == [delivery]
    assert [(entry.state, entry.sent) for entry in await ledger(room.pool)] == [("sent", 1)]
    assert await leftovers(room.pool) == (0, 0)


class Closing(Recording):
    """A way out during which the database goes away and stays away."""

    def __init__(self, witness: asyncpg.Connection) -> None:
        super().__init__()
        self._witness, self.closed = witness, asyncio.Event()

    async def send(self, envelope: Envelope, content: Content) -> Reply:
        reply = await super().send(envelope, content)
        await close_database(self._witness)
        self.closed.set()
        return reply


async def limit_connections(connection: asyncpg.Connection, limit: int) -> None:
    name = await connection.fetchval("SELECT current_database()")
    await connection.execute(f'ALTER DATABASE "{name}" CONNECTION LIMIT {limit}')


async def close_database(witness: asyncpg.Connection) -> None:
    """Refuse new connections and close the existing ones before returning."""
    await limit_connections(witness, 0)
    await witness.execute(CUT, 60_000)


async def test_worker_without_a_database_stops_after_its_grace(room: Room) -> None:
    """The worker retries the write for the grace time, then ends with the reason; the claim stays in the database."""
    [delivery] = await accepted(room.pool)
    own, witness = await own_pool(room, 1), await open_witness(room)
    transport = Closing(witness)
    worker = a_worker(own, transport, options=WorkerOptions(grace=timedelta(milliseconds=50)))
    running = asyncio.create_task(worker.run())
    await asyncio.wait_for(transport.closed.wait(), 60)
    worker.stop()
    with pytest.raises(ExceptionGroup) as caught:
        await asyncio.wait_for(running, 60)
    # PgBouncer reports that its own login fails.
    assert caught.group_contains((asyncpg.TooManyConnectionsError, asyncpg.PostgresConnectionError))
    await limit_connections(witness, -1)
    await witness.close()
    own.terminate()
    async with await uncut_pool(room) as uncut:
        assert (transport.delivery_ids, await state_of(uncut, delivery)) == ([delivery], DeliveryState.SENDING)


async def test_maintenance_survives_a_cut(room: Room) -> None:
    """A step that fails for want of a connection is done again at the next turn."""
    await accepted(room.pool)
    await claimed(room.pool, lease=timedelta())
    witness = await open_witness(room)
    await close_database(witness)
    maintenance = Maintenance(room.pool, MaintenanceOptions(recovery_interval=timedelta(milliseconds=1)))
    with capture_logs() as logs:
        async with looping(*maintenance.loops()):
            await logged("loop_interrupted", logs)
            await limit_connections(witness, -1)
            await witness.close()
            async with await uncut_pool(room) as uncut:
                await until(uncut, "NOT EXISTS (SELECT FROM claims)")
                assert await uncut.fetchval("SELECT state FROM deliveries") == DeliveryState.QUEUED
