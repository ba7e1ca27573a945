"""The collector: tokens become deliveries in one transaction, despite crashes, pauses and locks."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import asyncpg
import pytest
from tests.conftest import SCHEMA
from tests.support.accounts import KEY, LETTERHEAD, TTL, collector, mailed_keys, run_once, settle, sign_up, token
from tests.support.builders import Recording, a_mail
from tests.support.patience import PATIENCE_S
from tests.support.retention import swept
from tests.support.sessions import until_blocked
from tests.support.silence import let_pass
from tests.support.templates import a_template_worker

from postroom.accounts import service, store
from postroom.accounts.letter import AccountMailOptions
from postroom.accounts.metrics import STALLED_SECONDS
from postroom.accounts.model import Action, DueToken
from postroom.accounts.signature import verify
from postroom.accounts.worker import CHANNEL, RETENTION, Collector, CollectorOptions, Deliver, run_collector
from postroom.campaigns.contents import contents_of
from postroom.db.listen import Listener
from postroom.db.pool import Pool
from postroom.db.queries import Connection
from postroom.db.room import Room
from postroom.delivery import service as delivery
from postroom.delivery import store as deliveries
from postroom.delivery.check import check_request
from postroom.delivery.filter import DeliveryFilter
from postroom.delivery.model import DeliveryState, Lane
from postroom.errors import SettingInvalid
from postroom.mail.catalog import BUILTIN_TEMPLATES, Catalog
from postroom.settings import Settings

LONG = timedelta(hours=1)


class Steps:
    """Records a collector's signals; `until` waits for the next one with a name."""

    def __init__(self) -> None:
        self._heard: asyncio.Queue[str] = asyncio.Queue()

    def __call__(self, step: str) -> None:
        self._heard.put_nowait(step)

    async def until(self, step: str) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while await self._heard.get() != step:
                pass


class Taken:
    """Passes batches to the test."""

    def __init__(self) -> None:
        self.batches: asyncio.Queue[list[str]] = asyncio.Queue()

    async def __call__(self, _connection: Connection, tokens: Sequence[DueToken]) -> None:
        self.batches.put_nowait([token.login for token in tokens])

    async def next(self) -> list[str]:
        return await asyncio.wait_for(self.batches.get(), PATIENCE_S)


@asynccontextmanager
async def running(worker: Collector, url: str | None = None) -> AsyncIterator[None]:
    """Run the collector; with a URL it also listens."""
    task = asyncio.create_task(worker.loop().run(worker.stop))
    try:
        if url is None:
            yield
        else:
            async with Listener(url, SCHEMA) as listener, listener.hearing(CHANNEL, worker.wake):
                await asyncio.wait_for(listener.listening.wait(), PATIENCE_S)
                yield
    finally:
        worker.stop.set()
        await task


async def test_a_token_becomes_its_mail(pool: Pool) -> None:
    """The delivery has template, link, code, lane, key and expiry of the token."""
    ada = await sign_up(pool, "ada")
    assert await run_once(pool) == 1
    found = await token(pool, ada)
    [summary], _ = await delivery.list_deliveries(pool, DeliveryFilter())
    mail = await delivery.get_delivery(pool, summary.id)
    assert (mail.lane, mail.source, mail.template_id) == (Lane.AUTH, "accounts", "account-activation")
    assert mail.idempotency_key == f"token:{found['id']}"
    assert mail.expires_at == datetime.fromtimestamp(found["expires_at"], UTC)
    assert [recipient.address for recipient in mail.recipients] == ["ada@example.org"]
    link = mail.variables["link"]
    assert link.startswith("https://mail.example.org/activate?token=")
    assert verify(KEY, Action.ACTIVATION, link.partition("=")[2]) == found["secret"]
    assert (mail.variables["code"], mail.variables["login"], mail.variables["minutes"]) == (found["code"], "ada", 15)


async def test_a_recovery_has_its_own_mail(pool: Pool) -> None:
    """A recovery has its own template and link path."""
    ada = await sign_up(pool, "ada", status="active")
    await pool.execute("INSERT INTO tokens (account, action) VALUES ($1, 'password_recovery')", ada)
    await run_once(pool)
    [summary], _ = await delivery.list_deliveries(pool, DeliveryFilter())
    mail = await delivery.get_delivery(pool, summary.id)
    assert mail.template_id == "account-recovery"
    assert mail.variables["link"].startswith("https://mail.example.org/recover?token=")


@pytest.mark.parametrize(
    "own, default, words",
    [(None, "en", "Recover your account"), ("fr", "en", "Récup"), (None, "fr", "Récup"), ("en", "fr", "Recover")],
)
async def test_mail_uses_the_locale_of_the_account(pool: Pool, own: str | None, default: str, words: str) -> None:
    """The mail uses the account's locale, or else the default locale."""
    ada = await sign_up(pool, "ada", status="active", locale=own)
    await pool.execute("INSERT INTO tokens (account, action) VALUES ($1, 'password_recovery')", ada)
    letterhead = AccountMailOptions.of(Settings(secret_key=KEY, default_locale=default))
    await run_once(pool, Collector(pool, Deliver(letterhead, idempotency_ttl=TTL)))
    delivery = await pool.fetchval("SELECT id FROM deliveries")
    assert (await contents_of(pool).render([delivery]))[delivery].subject.startswith(words)


@pytest.mark.parametrize("locale", ["en", "fr"])
@pytest.mark.parametrize("template", ["account-activation", "account-recovery"])
def test_the_templates_render_completely(template: str, locale: str) -> None:
    """Text and HTML contain link, code, login and minutes; the subject does not contain the code."""
    variables = {"link": "https://mail.example.org/x?token=abc", "code": "01234", "login": "ada", "minutes": 15}
    letter = Catalog.load(BUILTIN_TEMPLATES).render(template, locale=locale, variables=variables)
    for value in variables.values():
        assert str(value) in letter.text  # type: ignore[operator]
        assert str(value) in letter.html  # type: ignore[union-attr, operator]
    assert "01234" not in letter.subject  # type: ignore[union-attr]


async def test_a_collected_token_is_rendered(pool: Pool) -> None:
    """A worker renders and sends the mail that the collector enqueued."""
    await sign_up(pool, "ada")
    await run_once(pool)
    transport = Recording()
    lane = Lane(await pool.fetchval("SELECT lane::text FROM deliveries"))
    assert await a_template_worker(pool, transport).run_once(lane) == 1
    assert len(transport.envelopes) == 1


async def test_mail_of_an_expired_token_is_cancelled(pool: Pool) -> None:
    """A mail that was not sent before its token expired is cancelled."""
    await sign_up(pool, "ada")
    await run_once(pool)
    later = datetime.now(UTC) + timedelta(minutes=16)
    async with pool.acquire() as connection:
        [expired] = await deliveries.expire_waiting(connection, batch_limit=10, now=later)
    assert (await delivery.get_delivery(pool, expired)).state is DeliveryState.CANCELLED


async def test_expired_tokens_are_deleted_after_retention(pool: Pool) -> None:
    """Retention deletes old tokens that the cursor has passed; newer and uncollected ones stay."""
    old, young = await sign_up(pool, "ada"), await sign_up(pool, "grace")
    await pool.execute("UPDATE tokens SET expires_at = expires_at - 40 * 86400 WHERE account = $1", old)
    assert await swept(pool, RETENTION) == 0
    await run_once(pool)
    assert await swept(pool, RETENTION) == 1
    assert await pool.fetch("SELECT account FROM tokens") == [(young,)]


async def test_live_tokens_do_not_block_retention(pool: Pool) -> None:
    """Retention deletes expired tokens that come after many live ones."""
    ada, bob = [await sign_up(pool, name) for name in ("ada", "bob")]
    await pool.execute(
        "INSERT INTO tokens (account, action, expires_at) SELECT $1, 'password_recovery', 99999999999"
        " FROM generate_series(1, 20)",
        ada,
    )
    await pool.execute("INSERT INTO tokens (account, action, expires_at) VALUES ($1, 'activation', 1)", bob)
    await settle(pool)
    await collector(pool).drain()
    assert await swept(pool, RETENTION, step=10) == 1


async def test_a_step_of_retention_reads_no_more_than_its_tokens(pool: Pool) -> None:
    """A step reads its own twenty of ten thousand tokens, even with plans cached when there was one."""
    ada = await sign_up(pool)
    await pool.execute("VACUUM ANALYZE tokens")
    read = "SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_xact_user_tables WHERE relname = 'tokens'"
    after = 0

    async def forget(connection: Connection) -> int:
        nonlocal after
        step = await store.forget_tokens(connection, retention=LONG, batch_limit=20, now=None, after=after)
        after = step.after
        return step.deleted

    async with pool.acquire() as connection:
        await connection.execute("SET plan_cache_mode = force_generic_plan; SET enable_seqscan = on")
        await forget(connection)
        after = 0
        await pool.execute(
            "INSERT INTO tokens (account, action, expires_at)"
            " SELECT $1, 'password_recovery', CASE WHEN n > 100 THEN 99999999999 ELSE 1 END"
            " FROM generate_series(1, 10000) AS n",
            ada,
        )
        await pool.execute("UPDATE jobs SET last_transaction_id = pg_current_xact_id()")
        async with connection.transaction():
            before = await connection.fetchval(read)
            gone = [await forget(connection) for _step in range(10)]
            assert gone == [19, 20, 20, 20, 20, 1, 0, 0, 0, 0]
            assert await connection.fetchval(read) - before <= 10 * 20 * 4
        await connection.execute("RESET plan_cache_mode; RESET enable_seqscan")


async def test_retention_skips_locked_tokens(pool: Pool) -> None:
    """Retention does not wait for locks; the next round deletes the skipped token."""
    ada = await sign_up(pool)
    await run_once(pool)
    await pool.execute("UPDATE tokens SET expires_at = 1")
    async with asyncio.timeout(PATIENCE_S):
        async with pool.acquire() as user, user.transaction():
            await user.execute("SELECT FROM tokens WHERE account = $1 FOR UPDATE", ada)
            assert await swept(pool, RETENTION) == 0
        assert await swept(pool, RETENTION) == 1


async def test_crash_before_commit_mails_each_token_once(pool: Pool) -> None:
    """A batch that was not committed is mailed once by the next collector."""

    class Dies(Deliver):
        async def __call__(self, connection: Connection, tokens: Sequence[DueToken]) -> None:
            await super().__call__(connection, tokens)
            raise ConnectionResetError

    await sign_up(pool, "ada")
    with pytest.raises(ConnectionResetError):
        await run_once(pool, Collector(pool, Dies(LETTERHEAD, idempotency_ttl=TTL)))
    assert await mailed_keys(pool) == []
    assert await run_once(pool) == 1
    assert len(await mailed_keys(pool)) == 1


async def test_a_token_that_is_read_twice_is_mailed_once(pool: Pool) -> None:
    """With the cursor reset, the idempotency key prevents a second mail, also with another public URL."""
    await sign_up(pool, "ada")
    await run_once(pool)
    await pool.execute("UPDATE jobs SET last_seq = 0, last_transaction_id = '0'")
    moved = AccountMailOptions("https://elsewhere.example.org", KEY)
    assert await run_once(pool, Collector(pool, Deliver(moved, idempotency_ttl=TTL))) == 1
    assert len(await mailed_keys(pool)) == 1


async def test_a_token_whose_key_another_mail_holds_is_mailed(pool: Pool) -> None:
    """A token is mailed although an unrelated delivery holds its idempotency key."""
    async with pool.acquire() as connection:
        taken = a_mail("mallory@example.org", source="accounts", idempotency_key="token:1")
        await delivery.accept(connection, check_request(taken))
    await sign_up(pool, "ada")
    assert await run_once(pool) == 1
    rows = await pool.fetch("SELECT email FROM delivery_recipients ORDER BY delivery_id")
    assert [row["email"] for row in rows] == ["mallory@example.org", "ada@example.org"]


async def test_two_collectors_share_the_work(pool: Pool) -> None:
    """The second collector waits for the first to commit and takes the remaining tokens."""
    await pool.execute(
        "INSERT INTO accounts (email, login) SELECT n || '@example.org', n FROM generate_series(1, 15) n"
    )
    holding, go_on = asyncio.Event(), asyncio.Event()

    class Slow(Deliver):
        async def __call__(self, connection: Connection, tokens: Sequence[DueToken]) -> None:
            holding.set()
            await go_on.wait()
            await super().__call__(connection, tokens)

    await settle(pool)
    first = asyncio.create_task(Collector(pool, Slow(LETTERHEAD, idempotency_ttl=TTL)).run_once())
    await holding.wait()
    second = asyncio.create_task(collector(pool).run_once())
    await until_blocked(pool)
    go_on.set()
    assert (await first, await second) == (10, 5)
    assert len(set(await mailed_keys(pool))) == 15


async def test_invalid_address_does_not_stop_the_batch(pool: Pool) -> None:
    """A token that cannot be mailed is logged and skipped."""
    await pool.execute("ALTER TABLE accounts DROP CONSTRAINT accounts_email_form")
    await sign_up(pool, "bad", email="nonsense")
    await sign_up(pool, "good")
    await run_once(pool)
    assert len(await mailed_keys(pool)) == 1


async def test_it_wakes_by_notify_and_gathers_a_full_batch(pool: Pool, database_url: str) -> None:
    """With a batch timeout of an hour and no polling, the third token completes the batch."""
    taken = Taken()
    options = CollectorOptions(batch_limit=3, batch_timeout=LONG, poll_interval=LONG)
    steps = Steps()
    worker = Collector(pool, taken, options=options, signal=steps)
    async with running(worker, database_url):
        await steps.until("counted")
        await steps.until("drained")  # the wake-up of the listener is handled: no token waits, and the collector sleeps
        for name in ("one", "two"):
            await sign_up(pool, name)
            await steps.until("counted")
        assert taken.batches.empty()
        await sign_up(pool, "three")
        assert await taken.next() == ["one", "two", "three"]


async def test_batch_timeout_ends_gathering(pool: Pool, database_url: str) -> None:
    """An incomplete batch is taken after the batch timeout."""
    taken = Taken()
    options = CollectorOptions(batch_limit=10, batch_timeout=timedelta(milliseconds=50), poll_interval=LONG)
    async with running(Collector(pool, taken, options=options), database_url):
        await sign_up(pool, "ada")
        assert await taken.next() == ["ada"]


async def test_collector_polls_without_notifications(pool: Pool) -> None:
    """Without a notification the next poll finds the token, and the interval is far below 4.5 minutes."""
    taken, steps = Taken(), Steps()
    options = CollectorOptions(poll_interval=timedelta(milliseconds=20))
    async with running(Collector(pool, taken, options=options, signal=steps)):
        await steps.until("drained")
        await sign_up(pool, "ada")
        assert await taken.next() == ["ada"]
    assert CollectorOptions().poll_interval < timedelta(minutes=4, seconds=30)


async def test_collector_reconnects_and_drains(pool: Pool, database_url: str) -> None:
    """After all its connections were terminated, the collector mails tokens created meanwhile."""
    taken, steps = Taken(), Steps()
    options = CollectorOptions(batch_timeout=timedelta(0), poll_interval=LONG)
    async with running(Collector(pool, taken, options=options, signal=steps), database_url):
        await steps.until("drained")
        outsider = await asyncpg.connect(database_url, server_settings={"search_path": SCHEMA})
        await outsider.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'postroom'"
        )
        await outsider.execute("INSERT INTO accounts (email, login) VALUES ('ada@example.org', 'ada')")
        assert await taken.next() == ["ada"]
        await outsider.close()


async def test_a_backlog_is_taken_many_batches_at_once(pool: Pool) -> None:
    """Twelve hundred tokens are drained in a few transactions, each once."""
    await pool.execute(
        "INSERT INTO accounts (email, login) SELECT n || '@example.org', n FROM generate_series(1, 1200) n"
    )
    taken = Taken()
    await settle(pool)
    assert await Collector(pool, taken).drain() == 1200
    sizes = [len(taken.batches.get_nowait()) for _ in range(taken.batches.qsize())]
    assert sizes == [10, 500, 500, 190]


async def test_long_transaction_is_reported_as_a_stall(pool: Pool) -> None:
    """Health and metric report the delay and the pid until the transaction ends."""
    async with pool.acquire() as foreign:
        transaction = foreign.transaction()
        await transaction.start()
        await foreign.execute("CREATE TABLE elsewhere ()")
        pid = await foreign.fetchval("SELECT pg_backend_pid()")
        await sign_up(pool, "ada")
        await pool.execute("UPDATE tokens SET created_at = created_at - 100")
        async with asyncio.timeout(PATIENCE_S):
            while (stall := await service.measure_stall(pool)).holder_pid != pid:
                pass  # an older transaction of another test is still open
        assert (stall.tokens, stall.is_alarming()) == (1, True)
        assert stall.seconds >= 100
        taken, steps = Taken(), Steps()
        options = CollectorOptions(poll_interval=2 * LONG, busy_interval=LONG)
        async with running(Collector(pool, taken, options=options, signal=steps)):
            await steps.until("drained")
            [sample] = [s for s in next(iter(STALLED_SECONDS.collect())).samples if s.labels["pid"] == str(pid)]
            assert sample.value >= 100
            await transaction.rollback()
            let_pass(LONG.total_seconds())
            assert await taken.next() == ["ada"]  # without a notification: it polls often while tokens are delayed
    await settle(pool)
    assert not (await service.measure_stall(pool)).is_stalled


async def test_run_until_empty_waits_for_delayed_tokens(pool: Pool) -> None:
    """`run_until_empty` also collects committed tokens that a transaction delays."""
    steps = Steps()
    async with pool.acquire() as foreign:
        transaction = foreign.transaction()
        await transaction.start()
        await foreign.execute("CREATE TABLE elsewhere ()")
        await sign_up(pool, "ada")
        deliver = Deliver(LETTERHEAD, idempotency_ttl=TTL)
        options = CollectorOptions(busy_interval=timedelta(milliseconds=10))
        emptying = asyncio.create_task(Collector(pool, deliver, options=options, signal=steps).run_until_empty())
        for _ in range(3):
            await steps.until("dequeued")
        assert not emptying.done()
        await transaction.rollback()
    assert await asyncio.wait_for(emptying, PATIENCE_S) == 1


async def test_nothing_is_stalled_when_nothing_waits(pool: Pool) -> None:
    """A long transaction is not a stall while there are no tokens."""
    async with pool.acquire() as foreign, foreign.transaction():
        await foreign.execute("CREATE TABLE elsewhere ()")
        stall = await service.measure_stall(pool)
    assert (stall.is_stalled, stall.is_alarming(), stall.seconds) == (False, False, 0)


async def test_address_limits_are_deleted_after_retention(pool: Pool) -> None:
    """Retention deletes limits of addresses without recent requests."""
    await service.request_token(pool, "nobody@example.org", action=Action.ACTIVATION)
    await pool.execute("UPDATE address_limits SET touched_at = now() - interval '2 days'")
    assert await swept(pool, RETENTION) == 1
    assert await pool.fetchval("SELECT count(*) FROM address_limits") == 0


async def test_the_whole_collector_runs_and_stops(room: Room, database_url: str) -> None:
    """A collector made from settings enqueues a sign-up and ends on stop."""
    settings = Settings(database_url=database_url, secret_key=KEY, batch_timeout=timedelta(0))
    stop = asyncio.Event()
    task = asyncio.create_task(run_collector(replace(room, settings=settings), stop=stop))
    await sign_up(room.pool, "ada")
    async with asyncio.timeout(PATIENCE_S):
        while not await mailed_keys(room.pool):
            pass
        stop.set()
        await task
    assert len(await mailed_keys(room.pool)) == 1


def test_invalid_default_locale_stops_the_start() -> None:
    """The error names POSTROOM_DEFAULT_LOCALE at start."""
    with pytest.raises(SettingInvalid, match="POSTROOM_DEFAULT_LOCALE"):
        AccountMailOptions.of(Settings(secret_key=KEY, default_locale="no locale"))


def test_missing_key_stops_the_start() -> None:
    """The error names POSTROOM_SECRET_KEY."""
    with pytest.raises(SettingInvalid, match="POSTROOM_SECRET_KEY"):
        AccountMailOptions.of(Settings())


def test_links_use_the_public_url_or_the_listen_address() -> None:
    """Without a public URL, links use the address the API listens at."""
    assert AccountMailOptions.of(Settings(secret_key=KEY)).public_url == "http://127.0.0.1:8025"
    assert AccountMailOptions.of(Settings(secret_key=KEY, http_addr=("::1", 80))).public_url == "http://[::1]:80"
    assert (
        AccountMailOptions.of(Settings(secret_key=KEY, public_url="https://a.example")).public_url
        == "https://a.example"
    )
