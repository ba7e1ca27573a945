"""Mails that follow each other over one connection: expiry, stopping and accounts decide until the content leaves."""

import asyncio
from datetime import timedelta

from tests.support.builders import Hands, a_mail, a_worker, accepted, attempts_of, state_of
from tests.support.senders import SEALER, an_account
from tests.support.silence import let_pass, settle
from tests.support.smtp_server import DROP, Hold, Says, Script, smtp_server, transport_to

from postroom.db.pool import Pool
from postroom.delivery import service
from postroom.delivery.model import DeliveryState, Lane
from postroom.delivery.worker import WorkerOptions
from postroom.senders.accounts_in_use import AccountsInUse
from postroom.senders.factory import ProviderAddresses
from postroom.transports.smtp.session import LONGEST_BEHIND_S
from postroom.transports.unsent import NoopTransport

ONE, TWO, THREE = "one@example.org", "two@example.org", "three@example.org"


async def test_mail_that_expires_behind_another_is_not_sent(pool: Pool) -> None:
    """Its envelope was offered while the server stored the mail before it; its content never leaves."""
    hands, hold = Hands(), Hold("250 2.0.0 queued")
    late = a_mail(TWO, expires_at=hands() + timedelta(hours=1))
    ids = await accepted(pool, a_mail(ONE), late, a_mail(THREE), now=hands())
    async with (
        smtp_server(Script(says={".": [hold]})) as server,
        transport_to(server, max_connections=1, is_quick=True) as transport,
    ):
        running = asyncio.create_task(a_worker(pool, transport, clock=hands).run_once(Lane.TRANSACTIONAL))
        await hold.reached.wait()
        await settle()
        hands.forward(hours=2)
        hold.go.set()
        await running
        assert f"RCPT TO:<{TWO}>" in server.commands
        assert [message.recipients for message in server.messages] == [(ONE,), (THREE,)]
    found = await service.get_delivery(pool, ids[1])
    assert (found.state, found.reason) == (DeliveryState.CANCELLED, "expired")
    assert await state_of(pool, ids[2]) is DeliveryState.SENT


async def test_mail_behind_a_slow_one_is_sent_over_another_connection(pool: Pool) -> None:
    """With a free connection it does not wait for the answer to the mail before it."""
    hold = Hold("250 2.0.0 queued")
    ids = await accepted(pool, a_mail(ONE), a_mail(TWO))
    async with (
        smtp_server(Script(says={".": [hold]})) as server,
        transport_to(server, max_connections=1, is_quick=True) as transport,
    ):
        running = asyncio.create_task(a_worker(pool, transport).run_once(Lane.TRANSACTIONAL))
        await hold.reached.wait()
        await settle()
        transport.max_connections = 2
        let_pass(LONGEST_BEHIND_S)
        await settle()
        hold.go.set()
        await running
        assert sorted(message.recipients for message in server.messages) == [(ONE,), (TWO,)]
    assert [await state_of(pool, delivery) for delivery in ids] == [DeliveryState.SENT] * 2
    assert [len(await attempts_of(pool, delivery)) for delivery in ids] == [1, 1]


async def test_lost_connection_makes_one_of_two_mails_ambiguous(pool: Pool) -> None:
    """The mail behind the lost one has a single attempt, which succeeds."""
    ids = await accepted(pool, a_mail(ONE), a_mail(TWO))
    async with (
        smtp_server(Script(says={".": [DROP]})) as server,
        transport_to(server, max_connections=1, is_quick=True) as transport,
    ):
        await a_worker(pool, transport).run_once(Lane.TRANSACTIONAL)
        assert [message.recipients for message in server.messages] == [(TWO,)]
    outcomes = [[attempt.outcome for attempt in await attempts_of(pool, delivery)] for delivery in ids]
    assert outcomes == [["ambiguous"], ["sent"]]


async def test_cancelled_worker_releases_the_mail_behind_the_one_in_flight(pool: Pool) -> None:
    """Only the mail whose content left may have arrived; the other one is queued again without an attempt."""
    hold = Hold()
    ids = await accepted(pool, a_mail(ONE, lane=Lane.BULK), a_mail(TWO, lane=Lane.BULK))
    options = WorkerOptions(grace=timedelta(milliseconds=20))
    async with (
        smtp_server(Script(says={".": [hold]})) as server,
        transport_to(server, max_connections=1, is_quick=True) as transport,
    ):
        worker = a_worker(pool, transport, options=options)
        running = asyncio.create_task(worker.run())
        async with asyncio.timeout(60):
            await hold.reached.wait()
        await settle()
        worker.stop()
        await asyncio.wait_for(running, 60)
        assert f"RCPT TO:<{TWO}>".encode() in b"".join(server.visits[0].chunks)
    assert [attempt.outcome for attempt in await attempts_of(pool, ids[0])] == ["ambiguous"]
    assert await attempts_of(pool, ids[1]) == []
    assert await state_of(pool, ids[1]) is DeliveryState.QUEUED


async def test_throttled_account_does_not_send_the_mail_behind(pool: Pool) -> None:
    """A throttle stops the account for its claim: the next mail is released although its envelope was accepted."""
    says: Says = {".": ["250 2.0.0 queued", "550 5.4.5 Daily user sending quota exceeded"]}
    async with smtp_server(Script(says=says)) as server:
        await an_account(pool, "news@example.org", smtp_port=server.port)
        desk = AccountsInUse(pool, SEALER, ProviderAddresses(connections=1, allow_private=True))
        ids = await accepted(pool, a_mail(ONE), a_mail(TWO), a_mail(THREE))
        await a_worker(pool, NoopTransport(), senders=desk).run_once(Lane.TRANSACTIONAL)
        await desk.close()
        assert f"RCPT TO:<{THREE}>".encode() in b"".join(server.visits[0].chunks)
        assert [message.recipients for message in server.messages] == [(ONE,)]
    assert await attempts_of(pool, ids[2]) == []
    assert await state_of(pool, ids[2]) is DeliveryState.QUEUED
