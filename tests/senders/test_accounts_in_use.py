"""Transports of accounts: kept while the settings are unchanged, drained on a change, queried when ambiguous."""

import asyncio
import json

from tests.support.builders import NOON, Hands, Recording, a_compose, a_mail, accepted, attempts_of, state_of
from tests.support.gmail_server import SUBJECT, Google, google_running, private_pem
from tests.support.senders import SEALER, a_desk, a_sending_worker, account_of, an_account, set_account
from tests.support.smtp_server import Hold, Script, smtp_server

from postroom.db.pool import Pool
from postroom.delivery.maintenance import Maintenance
from postroom.delivery.model import DeliveryState, Lane
from postroom.senders import store
from postroom.senders.credentials import Credentials
from postroom.senders.factory import ProviderAddresses
from postroom.senders.model import AuthType, SenderAccount, SenderId, SenderStatus, StartSlot
from postroom.senders.seal import purpose_of
from postroom.transports.base import Transport


async def test_an_edited_note_keeps_the_connection(pool: Pool) -> None:
    """A new note and limit between two mails keep their connection."""
    async with smtp_server() as server:
        account = await an_account(pool, smtp_port=server.port)
        desk = a_desk(pool, ProviderAddresses(allow_private=True))
        worker = a_sending_worker(pool, desk)
        for _ in range(2):
            await accepted(pool)
            await worker.run_once(Lane.TRANSACTIONAL)
            await pool.execute("UPDATE sender_accounts SET notes = 'new', daily_limit = 7, updated_at = now()")
        await desk.close()
    assert (len(server.messages), len(server.visits)) == (2, 1)
    assert (await account_of(pool, account)).daily_sent == 2


async def test_mail_that_waits_for_a_connection_leaves_when_the_server_changes(pool: Pool) -> None:
    """Twelve mails that wait while the account's server changes are sent, and no account pauses."""
    hold = Hold("250 2.0.0 queued")
    async with smtp_server(Script(says={".": [hold]})) as server:
        account = await an_account(pool, smtp_port=server.port)
        ids = await accepted(pool, *(a_mail() for _ in range(13)))
        desk = a_desk(pool, ProviderAddresses(connections=1, allow_private=True))
        running = asyncio.create_task(a_sending_worker(pool, desk).run_once(Lane.TRANSACTIONAL))
        await hold.reached.wait()
        await set_account(pool, account, smtp_host="localhost")
        await desk.prepare([StartSlot(claim_id=0, account_id=account)])
        hold.go.set()
        await running
        await desk.close()
    assert {await state_of(pool, each) for each in ids} == {DeliveryState.SENT}
    after = await account_of(pool, account)
    assert (after.status, after.daily_errors) == (SenderStatus.ACTIVE, 0)


async def a_gmail_account(pool: Pool, google: Google, **columns: object) -> SenderId:
    key_file = {
        "client_email": "mailer@project.iam.example.org",
        "private_key": private_pem(),
        "private_key_id": "key-1",
        "token_uri": f"{google.url}/token",
    }
    async with pool.acquire() as connection:
        account = await store.reserve_id(connection)
    key_id, sealed = await SEALER.seal(json.dumps(key_file).encode(), purpose=purpose_of("gmail", account))
    smtp = {"smtp_host": None, "smtp_port": None, "smtp_use_tls": True}
    secret = {"credentials_encrypted": sealed, "credentials_key_id": key_id, "gmail_subject_email": SUBJECT}
    return await an_account(pool, SUBJECT, id=account, auth_type="gmail", **smtp, **secret, **columns)


async def test_after_a_crash_the_mailbox_is_asked_before_the_mail_is_sent_again(pool: Pool) -> None:
    """After a crash the retry queries the first account, which has the mail."""
    hands, other = Hands(), Recording()
    async with google_running(Google()) as google:
        ways = ProviderAddresses(gmail_base_url=google.url)

        def factory(account: SenderAccount, credentials: Credentials) -> Transport:
            return ways(account, credentials) if account.auth_type is AuthType.GMAIL else other

        first = await a_gmail_account(pool, google, counted_on=NOON.date())
        [delivery] = await accepted(pool, now=hands())
        desk = a_desk(pool, factory, clock=hands)
        worker = a_sending_worker(pool, desk, clock=hands)
        started = await worker._start(Lane.TRANSACTIONAL, await worker._claim(Lane.TRANSACTIONAL), 1)
        assert started
        assert (await desk.transport(first, "transactional").send(*a_compose()(started[0]))).code == 250
        hands.forward(hours=1)
        await Maintenance(pool, clock=hands).recover()

        await set_account(pool, first, last_used_at=hands())
        await an_account(pool, "other@example.org", counted_on=NOON.date())
        assert await a_sending_worker(pool, desk, clock=hands).run_once(Lane.TRANSACTIONAL) == 1
        await desk.close()
    assert (len(google.mails), other.envelopes) == (1, [])
    assert await state_of(pool, delivery) is DeliveryState.SENT
    assert [attempt.outcome for attempt in await attempts_of(pool, delivery)] == ["ambiguous", "sent"]
