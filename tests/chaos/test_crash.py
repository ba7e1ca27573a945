"""Workers killed at every step lose no delivery; every second copy is in the ledger, and bulk mail has none."""

import asyncio
import signal
from datetime import timedelta

import pytest
from tests.support.builders import NOON, Hands, a_mail, a_worker, accepted
from tests.support.chaos import ledger, leftovers, received, run_to_its_end, silence, worker_process
from tests.support.chaos_worker import Orders
from tests.support.smtp_server import Hold, Script, Server, smtp_server, transport_to

from postroom.db.room import Room
from postroom.delivery.maintenance import Maintenance
from postroom.delivery.model import DeliveryId, Lane
from postroom.delivery.worker import WorkerOptions

PER_LANE = 12
DEATHS = [
    ("claimed", 1),
    ("claimed", 4),
    ("started", 1),
    ("started", 3),
    ("started", 6),
    ("sent", 1),
    ("sent", 9),
    ("sent", 25),
    ("completed", 1),
    ("completed", 2),
]


async def fill(room: Room) -> list[DeliveryId]:
    return await accepted(
        room.pool, *(a_mail(f"{lane}{n}@example.org", lane=lane) for lane in Lane for n in range(PER_LANE))
    )


async def recover_and_finish(room: Room, server: Server) -> None:
    """An hour later the leases have run out: take over, and let a second worker finish."""
    later = Hands(NOON + timedelta(days=365))
    await Maintenance(room.pool, clock=later).recover()
    options = WorkerOptions(lease=timedelta(hours=1), until_empty=True)
    async with transport_to(server) as transport:
        await a_worker(room.pool, transport, clock=later, options=options).run()


@pytest.mark.parametrize("step, occurrence", DEATHS)
async def test_a_worker_killed_at_any_step_loses_nothing_and_hides_nothing(
    room: Room, step: str, occurrence: int
) -> None:
    """After SIGKILL and recovery all is sent or held, and the sink has what the ledger says it may have."""
    ids = await fill(room)
    async with smtp_server() as server:
        orders = Orders(room.url, server.port, die_at=step, occurrence=occurrence)
        assert await run_to_its_end(orders) == -signal.SIGKILL
        await silence(server)
        await recover_and_finish(room, server)
        arrived = received(server)

    entries = await ledger(room.pool)
    assert [entry.id for entry in entries] == ids
    for entry in entries:
        copies = arrived[entry.id]
        assert entry.sent <= copies <= entry.sent + entry.ambiguous, entry
        if entry.lane == "bulk":
            assert copies <= 1, entry
            assert entry.state == ("dead_letter" if entry.ambiguous else "sent"), entry
        else:
            assert copies >= 1, entry
            assert entry.state == "sent", entry
    assert await leftovers(room.pool) == (0, 0)


async def test_a_death_between_the_answer_and_the_commit_makes_a_second_copy_that_is_told(room: Room) -> None:
    """The one window that cannot be closed: received twice, and both are in the ledger."""
    [delivery] = await accepted(room.pool)
    async with smtp_server() as server:
        assert await run_to_its_end(Orders(room.url, server.port, die_at="sent")) == -signal.SIGKILL
        await silence(server)
        await recover_and_finish(room, server)
        assert received(server) == {delivery: 2}
        names = {message.content.partition(b"Message-ID:")[2].partition(b"\r\n")[0] for message in server.messages}
    [entry] = await ledger(room.pool)
    assert (entry.state, entry.sent, entry.ambiguous) == ("sent", 1, 1)
    assert len(names) == 1


async def test_a_death_before_the_wire_is_not_ambiguous(room: Room) -> None:
    """Deliveries claimed but not started return to the queue unchanged."""
    [delivery] = await accepted(room.pool, a_mail(lane=Lane.BULK))
    async with smtp_server() as server:
        assert await run_to_its_end(Orders(room.url, server.port, die_at="claimed")) == -signal.SIGKILL
        await recover_and_finish(room, server)
        assert received(server) == {delivery: 1}
    [entry] = await ledger(room.pool)
    assert (entry.state, entry.sent, entry.ambiguous) == ("sent", 1, 0)


async def test_a_death_after_the_commit_repeats_nothing(room: Room) -> None:
    """Completed deliveries stay completed; only the empty claim is removed."""
    [delivery] = await accepted(room.pool)
    async with smtp_server() as server:
        assert await run_to_its_end(Orders(room.url, server.port, die_at="completed")) == -signal.SIGKILL
        await recover_and_finish(room, server)
        assert received(server) == {delivery: 1}
    [entry] = await ledger(room.pool)
    assert (entry.state, entry.sent, entry.ambiguous) == ("sent", 1, 0)
    assert await leftovers(room.pool) == (0, 0)


async def test_sigterm_finishes_what_is_in_flight_and_gives_back_the_rest(room: Room) -> None:
    """The worker finishes attempts in flight, releases the rest without waiting for the lease, and exits with 0."""
    await accepted(room.pool, *(a_mail(f"p{n}@example.org") for n in range(40)))
    holds = [Hold("250 2.0.0 queued") for _ in range(4)]
    async with smtp_server(Script(says={".": [*holds]})) as server:
        orders = Orders(room.url, server.port, batch=20, chunk=4, connections=4)
        async with worker_process(orders) as process, asyncio.timeout(60):
            for hold in holds:
                await hold.reached.wait()
            process.send_signal(signal.SIGTERM)
            assert process.stdout is not None
            assert await process.stdout.readline() == b"stopping\n"
            for hold in holds:
                hold.go.set()
            assert await process.wait() == 0
        arrived = received(server)

    entries = await ledger(room.pool)
    assert {entry.id for entry in entries if entry.state == "sent"} == set(arrived)
    assert len(arrived) == 8  # two chunks: the one on the wire, and the one that waited for its connections
    assert set(arrived.values()) == {1}
    async with room.pool.acquire() as connection:
        due = await connection.fetchval(
            "SELECT count(*) FROM deliveries WHERE state = 'queued' AND attempt_count = 0 AND next_attempt_at <= now()"
        )
    assert due == 32
    assert await leftovers(room.pool) == (0, 0)
