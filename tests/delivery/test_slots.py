"""Unresponsive servers delay no other mail, and mail that waits for a connection has not started."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

from tests.support.builders import (
    LEASE,
    NOON,
    Hands,
    a_mail,
    a_worker,
    accepted,
    an_outgoing,
    attempts_of,
    state_of,
    until,
)
from tests.support.senders import SEALER, account_of, an_account
from tests.support.silence import let_pass
from tests.support.smtp_server import Hold, Says, Script, Server, smtp_server, transport_to

from postroom.db.pool import Pool
from postroom.delivery.model import DeliveryState, Lane
from postroom.delivery.slots import FIRST_PAUSE_S, LOOK_S, SILENCE_S, STALL_S, UNREACHED, InFlight, TransportSlots
from postroom.delivery.worker import WorkerOptions
from postroom.senders.accounts_in_use import AccountsInUse
from postroom.senders.factory import ProviderAddresses
from postroom.senders.model import HealthPolicy, SenderStatus
from postroom.transports.base import SendProgress
from postroom.transports.unsent import NoopTransport

OPTIONS = WorkerOptions(batch=8, chunk=4, lease=timedelta(hours=1), grace=timedelta(milliseconds=20))


async def sent(pool: Pool, count: int) -> None:
    await until(pool, f"(SELECT count(*) = {count} FROM deliveries WHERE state = 'sent')")


@asynccontextmanager
async def two_mailboxes(pool: Pool) -> AsyncIterator[tuple[list[Hold], Server]]:
    """A worker with one mailbox whose server stops answering after the content, and one that works."""
    holds = [Hold(), Hold()]
    async with smtp_server(Script(says={".": [*holds]})) as silent, smtp_server() as good:
        for name, server in (("silent", silent), ("good", good)):
            await an_account(pool, f"{name}@example.org", smtp_port=server.port)
        desk = AccountsInUse(
            pool, SEALER, ProviderAddresses(connections=2, allow_private=True), policy=HealthPolicy(errors_in_a_row=2)
        )
        worker = a_worker(pool, NoopTransport(), senders=desk, options=OPTIONS)
        running = asyncio.create_task(worker.run())
        try:
            async with asyncio.timeout(60):
                for hold in holds:
                    await hold.reached.wait()
            yield holds, good
        finally:
            worker.stop()
            await asyncio.wait_for(running, 60)
            await desk.close()


async def test_a_silent_mailbox_delays_only_the_mail_it_holds(pool: Pool) -> None:
    """With two mails at an unresponsive server, the other mailbox sends the remaining thirty-eight."""
    await accepted(pool, *(a_mail(f"p{n}@example.org") for n in range(40)))
    async with two_mailboxes(pool) as (_holds, good):
        let_pass(STALL_S + LOOK_S)
        await sent(pool, 38)
        assert len(good.messages) == 38
    async with pool.acquire() as connection:
        rows = await connection.fetch("SELECT outcome::text, count(*) FROM attempts GROUP BY 1 ORDER BY 1")
    assert [tuple(row) for row in rows] == [("ambiguous", 2), ("sent", 38)]


async def test_silence_is_an_error_of_the_account(pool: Pool) -> None:
    """A server that has two messages and does not answer for a minute pauses its account."""
    await accepted(pool, *(a_mail(f"p{n}@example.org") for n in range(4)))
    async with two_mailboxes(pool):
        await sent(pool, 2)  # a mail that is still with the good server would be silence too once time is moved
        let_pass(LOOK_S)
        while (await account_of(pool, 1)).consecutive_errors == 0:
            let_pass(SILENCE_S / 2)
            await until(pool, "true")
        silent = await account_of(pool, 1)
        assert (silent.status, silent.status_reason) == (SenderStatus.PAUSED, "2 errors in a row")
    assert (await account_of(pool, 2)).status is SenderStatus.ACTIVE


async def test_a_mailbox_that_answers_again_is_used_again(pool: Pool) -> None:
    """A stalled mailbox is used again after its server answers."""
    await accepted(pool, *(a_mail(f"p{n}@example.org") for n in range(20)))
    async with two_mailboxes(pool) as (holds, _good):
        let_pass(STALL_S + LOOK_S)
        await sent(pool, 18)
        for hold in holds:
            hold.go.set()
        await sent(pool, 20)
        await accepted(pool, *(a_mail(f"q{n}@example.org") for n in range(20)))
        await until(pool, "(SELECT count(*) > 2 FROM deliveries WHERE sender_account_id = 1 AND state = 'sent')")
        assert (await account_of(pool, 1)).status is SenderStatus.ACTIVE


async def test_mails_of_a_connection_leave_in_their_order(pool: Pool) -> None:
    """One task per connection sends the queued mails, first come, first served."""
    ids = await accepted(pool, *(a_mail(f"p{n}@example.org") for n in range(10)))
    async with smtp_server() as server, transport_to(server, max_connections=1) as transport:
        await a_worker(pool, transport).run_once(Lane.TRANSACTIONAL)
        assert [message.recipients for message in server.messages] == [(f"p{n}@example.org",) for n in range(10)]
        assert len(server.visits) == 1
    assert {await state_of(pool, delivery) for delivery in ids} == {DeliveryState.SENT}


async def test_mail_for_a_quick_server_shares_connections(pool: Pool) -> None:
    """Thirty mails for a server that answers at once need two connections, though it may have twenty."""
    await accepted(pool, *(a_mail(f"p{n}@example.org") for n in range(30)))
    async with smtp_server() as server, transport_to(server) as transport:
        transport.pace.answer_s = 0.0
        await a_worker(pool, transport).run_once(Lane.TRANSACTIONAL)
        assert (len(server.messages), len(server.visits)) == (30, 2)


async def test_mail_behind_a_server_that_becomes_slow_gets_a_connection(pool: Pool) -> None:
    """Mails that share a connection do not wait for one that the server keeps: free slots serve them a second later."""
    await accepted(pool, *(a_mail(f"p{n}@example.org") for n in range(3)))
    hold = Hold()
    async with smtp_server(Script(says={".": [hold]})) as server, transport_to(server) as transport:
        transport.pace.answer_s = 0.0
        worker = a_worker(pool, transport, options=OPTIONS)
        running = asyncio.create_task(worker.run())
        await asyncio.wait_for(hold.reached.wait(), 60)
        let_pass(2 * LOOK_S)
        await sent(pool, 2)
        hold.go.set()
        await sent(pool, 3)
        worker.stop()
        await asyncio.wait_for(running, 60)


async def test_a_quick_server_gets_a_task_for_every_few_mails() -> None:
    """A task with a slot is enough for as many waiting mails as the depth of the queue."""
    gate = TransportSlots(3, may_stall=False)
    entered = [gate.offer(an_outgoing()) and gate.enter(2) for _ in range(8)]
    assert entered == [True, False, True, False, True, False, False, False]


async def test_a_lowered_limit_ends_surplus_tasks() -> None:
    """A task with a slot beyond the new limit gets no mail; the others go on."""
    gate = TransportSlots(2, may_stall=False)
    assert (gate.enter(), gate.enter(), gate.enter()) == (True, True, False)
    mail = an_outgoing()
    assert gate.offer(mail)
    gate.limit = 1
    assert gate.next() is None
    gate.leave()
    assert gate.next() is mail


async def test_a_stalled_transport_takes_no_mail_until_an_attempt_ends() -> None:
    """While all slots hang, a mail is not queued; the next end of an attempt makes the transport usable."""
    gate, hanging = TransportSlots(1, may_stall=True), an_outgoing()
    gate.enter()
    gate.flights[hanging.id] = InFlight(hanging, SendProgress())
    assert gate.offer(an_outgoing())
    gate.look(STALL_S)
    assert (gate.is_stalled, len(gate.take_waiting()), gate.offer(an_outgoing())) == (True, 1, False)


async def test_a_server_out_of_reach_gets_no_mail_for_a_while() -> None:
    """After ten attempts in a row without a connection waiting mail is released; after the pause one more is enough."""
    gate = TransportSlots(1, may_stall=True)
    gate.offer(an_outgoing())
    for _ in range(UNREACHED):
        gate.count_reached(is_reached=False)
    assert (gate.next(), gate.offer(an_outgoing())) == (None, False)
    now = asyncio.get_running_loop().time()
    gate.look(now)
    assert (gate.is_stalled, len(gate.take_waiting())) == (True, 1)
    gate.look(now + FIRST_PAUSE_S)
    assert (gate.is_stalled, gate.offer(an_outgoing())) == (False, True)
    gate.count_reached(is_reached=False)
    assert gate.is_paused


async def test_one_answer_ends_the_count_of_unreached_attempts() -> None:
    """A server that answers now and then is used without a pause."""
    gate = TransportSlots(1, may_stall=True)
    for _ in range(2):
        for _ in range(UNREACHED - 1):
            gate.count_reached(is_reached=False)
        gate.count_reached(is_reached=True)
    assert not gate.is_paused


# ── stopping ──────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_stopping_releases_what_the_server_cannot_have(pool: Pool) -> None:
    """One mail at its final dot, one at RCPT, four without a connection: only the first may have arrived."""
    final, early = Hold(), Hold()
    says: Says = {"RCPT early@example.org": early, ".": [final]}
    recipients = ["early@example.org", *(f"p{n}@example.org" for n in range(5))]
    ids = await accepted(pool, *(a_mail(address, lane=Lane.BULK) for address in recipients))
    async with smtp_server(Script(says=says)) as server, transport_to(server, max_connections=2) as transport:
        worker = a_worker(pool, transport, options=OPTIONS)
        running = asyncio.create_task(worker.run())
        async with asyncio.timeout(60):
            await final.reached.wait()
            await early.reached.wait()
        worker.stop()
        await asyncio.wait_for(running, 60)
    async with pool.acquire() as connection:
        rows = await connection.fetch(
            "SELECT state::text, attempt_count, count(*) FROM deliveries GROUP BY 1, 2 ORDER BY 1"
        )
        assert await connection.fetchval("SELECT count(*) FROM claims") == 0
    assert [tuple(row) for row in rows] == [("dead_letter", 1, 1), ("queued", 0, 5)]
    assert [attempt.outcome for attempt in await attempts_of(pool, ids[1])] == ["ambiguous"]


# ── expiry ────────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_code_that_expires_while_waiting_is_not_sent(pool: Pool) -> None:
    """One connection, three codes: the first takes longer than the others are valid."""
    hands, hold = Hands(), Hold("250 2.0.0 queued")
    soon = NOON + timedelta(seconds=5)
    ids = await accepted(pool, *(a_mail(lane=Lane.AUTH, expires_at=soon) for _ in range(3)), now=hands())
    async with smtp_server(Script(says={".": [hold]})) as server, transport_to(server, max_connections=1) as transport:
        working = asyncio.create_task(a_worker(pool, transport, clock=hands).run_once(Lane.AUTH))
        await asyncio.wait_for(hold.reached.wait(), 60)
        hands.forward(seconds=10)
        hold.go.set()
        await asyncio.wait_for(working, 60)
        assert len(server.messages) == 1
    assert [await state_of(pool, delivery) for delivery in ids] == [
        DeliveryState.SENT,
        DeliveryState.CANCELLED,
        DeliveryState.CANCELLED,
    ]
    assert [attempt.outcome for attempt in await attempts_of(pool, ids[2])] == ["cancelled"]


async def test_code_that_expires_while_connecting_is_not_sent(pool: Pool) -> None:
    """The server's greeting takes longer than the code is valid: nothing is offered."""
    hands, hold = Hands(), Hold("220 at last")
    [delivery] = await accepted(pool, a_mail(lane=Lane.AUTH, expires_at=NOON + timedelta(seconds=5)), now=hands())
    async with smtp_server(Script(says={"connect": [hold]})) as server, transport_to(server) as transport:
        working = asyncio.create_task(a_worker(pool, transport, clock=hands).run_once(Lane.AUTH))
        await asyncio.wait_for(hold.reached.wait(), 60)
        hands.forward(seconds=10)
        hold.go.set()
        await asyncio.wait_for(working, 60)
        assert not [command for command in server.commands if command.startswith("MAIL")]
    assert await state_of(pool, delivery) is DeliveryState.CANCELLED


def test_a_lease_is_longer_than_a_look() -> None:
    """Stalls are noticed before the default lease of a claim that waits for them runs out."""
    assert STALL_S + LOOK_S < WorkerOptions().lease.total_seconds() < LEASE.total_seconds()
