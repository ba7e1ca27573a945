"""The worker: claims, records, loses nothing, and stops when asked."""

import asyncio
from collections import Counter
from datetime import timedelta
from functools import partial
from time import monotonic

import pytest
from tests.support.builders import (
    BUSY,
    DELIVERED,
    LEASE,
    NOON,
    QUEUE_WAITING,
    FunctionWriter,
    Hands,
    Hanging,
    Recording,
    Steps,
    a_compose,
    a_mail,
    a_worker,
    accepted,
    attempts_of,
    claimed,
    state_of,
    until,
)
from tests.support.silence import let_pass

from postroom.db.pool import Pool, open_pool
from postroom.db.room import Room
from postroom.delivery import store
from postroom.delivery.lane import LaneWakeups, WokenWorker
from postroom.delivery.maintenance import Maintenance
from postroom.delivery.model import Channel, DeliveryRequest, DeliveryState, Lane
from postroom.delivery.worker import Worker, WorkerOptions
from postroom.outbox.webhooks.writer import compose as compose_webhook
from postroom.post.address import Address
from postroom.post.reply import Content, Envelope, Reply, Stage

HOUR = timedelta(hours=1)


def a_webhook(url: str) -> DeliveryRequest:
    return DeliveryRequest(to=(Address(url),), text="{}", channel=Channel.WEBHOOK, source="test")


async def fill(pool: Pool, lane: Lane, count: int) -> None:
    """Insert many deliveries at once."""
    async with pool.acquire() as connection:
        await connection.execute(
            "INSERT INTO deliveries (lane, next_attempt_at, ladder, source, recipient_email)"
            " SELECT $1, now(), 'generic', 'test', 'ada@example.org' FROM generate_series(1, $2::int)",
            lane.value,
            count,
        )
        await connection.execute(QUEUE_WAITING)


# ── claiming ──────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_many_claimers_never_claim_a_row_twice(room: Room) -> None:
    """Eight claimers at once share a thousand deliveries: each is claimed once, none is left."""
    await fill(room.pool, Lane.BULK, 1000)

    async def claim_all() -> list[int]:
        mine: list[int] = []
        while batch := await claimed(room.pool, Lane.BULK, limit=37):
            mine += [outgoing.id for outgoing in batch]
        return mine

    shares = await asyncio.gather(*(claim_all() for _ in range(8)))
    counted = Counter(delivery_id for share in shares for delivery_id in share)
    assert len(counted) == 1000
    assert set(counted.values()) == {1}


async def test_a_lane_does_not_wait_behind_bulk(pool: Pool) -> None:
    """With ten thousand bulk deliveries before them, a code and a receipt are the first of their lanes."""
    await fill(pool, Lane.BULK, 10_000)
    code, receipt = await accepted(pool, a_mail(lane=Lane.AUTH), a_mail())
    assert [outgoing.id for outgoing in await claimed(pool, Lane.AUTH)] == [code]
    assert [outgoing.id for outgoing in await claimed(pool, Lane.TRANSACTIONAL)] == [receipt]


async def test_the_oldest_goes_first(pool: Pool) -> None:
    """The delivery due longest is claimed first, and a claim keeps that order."""
    late, early, middle = await accepted(
        pool,
        *(a_mail(send_at=NOON + timedelta(minutes=minutes)) for minutes in (30, 10, 20)),
        now=NOON,
    )
    first = await claimed(pool, now=NOON + HOUR, limit=2)
    second = await claimed(pool, now=NOON + HOUR, limit=2)
    assert [outgoing.id for outgoing in [*first, *second]] == [early, middle, late]


async def test_nothing_leaves_before_its_time(pool: Pool) -> None:
    """A delivery with `send_at` is not claimed a second earlier."""
    await accepted(pool, a_mail(send_at=NOON + HOUR), now=NOON)
    assert await claimed(pool, now=NOON + timedelta(minutes=59, seconds=59)) == []
    assert len(await claimed(pool, now=NOON + HOUR)) == 1


async def test_a_template_is_claimed_at_once(pool: Pool) -> None:
    """The worker renders it: nothing comes between acceptance and the claim."""
    [delivery] = await accepted(pool, a_mail(template="welcome"))
    [outgoing] = await claimed(pool)
    pinned = await pool.fetchval("SELECT template_version_id FROM deliveries WHERE id = $1", delivery)
    assert (outgoing.id, outgoing.template_id, outgoing.template_version_id) == (delivery, "welcome", pinned)


async def test_only_the_commit_of_a_claim_does_not_wait_for_the_disk(pool: Pool) -> None:
    """A start is on disk before anything is sent, and with it the log of the claim, which was written before."""
    await accepted(pool)
    async with pool.acquire() as connection:
        async with connection.transaction():
            await connection.execute("SET LOCAL synchronous_commit = on")  # the servers of tests have it off
            [outgoing] = await store.claim_due(
                connection, lane=Lane.TRANSACTIONAL, batch_limit=1, worker_id=1, lease=LEASE, now=None
            )
            assert await connection.fetchval("SHOW synchronous_commit") == "off"
        async with connection.transaction():
            await connection.execute("SET LOCAL synchronous_commit = on")
            assert await store.mark_started(
                connection, worker_id=1, claim_id=outgoing.claim_id, started_through=1, lease=LEASE, now=None
            )
            assert await connection.fetchval("SHOW synchronous_commit") == "on"


async def test_a_connection_is_enough(room: Room) -> None:
    """A worker with one connection serves all lanes: no step holds one while it waits for another."""
    ids = await accepted(room.pool, *(a_mail(lane=lane) for lane in Lane))
    narrow = await open_pool(room.url, room.name, size=1)
    steps, transport = Steps(), Recording()
    worker = a_worker(narrow, transport, signal=steps, options=WorkerOptions(poll_interval=timedelta(milliseconds=1)))
    running = asyncio.create_task(worker.run())
    try:
        await steps.reached("asleep", times=3)
        more = await accepted(room.pool, *(a_mail(lane=lane) for lane in Lane))
        await steps.reached("sent", times=6)
    finally:
        worker.stop()
        await running
        await narrow.close()
    assert sorted(transport.delivery_ids) == sorted([*ids, *more])


# ── the ledger ────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_an_attempt_is_written_with_all_it_knows(pool: Pool) -> None:
    """The ledger keeps stage, codes, text, host, TLS and times of an attempt."""
    hands = Hands()
    [delivery] = await accepted(pool, now=hands())
    before = monotonic()
    await a_worker(pool, Recording(DELIVERED), clock=hands).run_once(Lane.TRANSACTIONAL)
    took = timedelta(seconds=monotonic() - before)
    [attempt] = await attempts_of(pool, delivery)
    assert (attempt.attempt_no, attempt.outcome, attempt.transport) == (1, "sent", "recording")
    assert (attempt.stage, attempt.code, attempt.enhanced_code) == ("final", 250, "2.0.0")
    assert (attempt.reply_text, attempt.remote_host, attempt.tls) == ("queued as 7", "mx.example.org:25", "TLSv1.3")
    assert attempt.finished_at == hands()
    assert timedelta() <= attempt.finished_at - attempt.started_at <= took
    assert await state_of(pool, delivery) is DeliveryState.SENT


async def test_nul_in_a_reply_is_replaced(pool: Pool) -> None:
    """A NUL in a reply is replaced, and the reply is written."""
    [delivery] = await accepted(pool)
    reply = Reply(Stage.FINAL, 554, "5.0.0", "no\x00way \udc80")
    await a_worker(pool, Recording(reply)).run_once(Lane.TRANSACTIONAL)
    [attempt] = await attempts_of(pool, delivery)
    assert attempt.reply_text == "no\N{REPLACEMENT CHARACTER}way \N{REPLACEMENT CHARACTER}"


async def test_no_transaction_is_open_during_an_attempt(pool: Pool) -> None:
    """A server that takes minutes to answer must hold neither a lock nor the horizon of vacuum and followers."""
    open_transactions = (
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        " AND (state LIKE 'idle in transaction%' OR backend_xid IS NOT NULL)"
    )
    seen: list[int] = []

    class Looking(Recording):
        async def send(self, envelope: Envelope, content: Content) -> Reply:
            seen.append(await pool.fetchval(open_transactions))
            return await super().send(envelope, content)

    [delivery] = await accepted(pool, a_mail())
    await a_worker(pool, Looking()).run_once(Lane.TRANSACTIONAL)
    assert seen == [0]
    assert await state_of(pool, delivery) is DeliveryState.SENT


async def test_the_message_keeps_its_name_over_all_attempts(pool: Pool) -> None:
    """All attempts have the same Message-ID."""
    hands, transport = Hands(), Recording(BUSY, DELIVERED)
    await accepted(pool, now=hands())
    worker = a_worker(pool, transport, clock=hands)
    await worker.run_once(Lane.TRANSACTIONAL)
    hands.forward(hours=1)
    await worker.run_once(Lane.TRANSACTIONAL)
    first, second = transport.envelopes
    assert first.message_id == second.message_id
    assert transport.contents[0] == transport.contents[1]


async def test_receivers_who_do_not_answer_hold_up_no_mail(pool: Pool) -> None:
    """Webhooks that time out do not delay mail of the same lane, and their number in flight is limited."""
    posts = await accepted(pool, *(a_webhook(f"https://hook.example.org/{n}") for n in range(7)))
    silent, quick, steps = Hanging(), Recording(), Steps()
    ways = {Channel.WEBHOOK: silent, Channel.EMAIL: quick}
    posting = partial(compose_webhook, keys=(), now=NOON)
    worker = Worker(
        pool,
        writers={Channel.WEBHOOK: FunctionWriter(posting), Channel.EMAIL: FunctionWriter(a_compose())},
        routes={channel: dict.fromkeys(Lane, way) for channel, way in ways.items()},
        options=WorkerOptions(batch=4, chunk=2, lease=HOUR, grace=timedelta(milliseconds=10)),
        signal=steps,
    )
    running = asyncio.create_task(worker.run())
    await asyncio.wait_for(silent.reached.wait(), 60)
    mails = await accepted(pool, *(a_mail(f"p{n}@example.org") for n in range(9)))
    await steps.reached("sent", times=9)
    assert sorted(quick.delivery_ids) == sorted(mails)
    assert len(silent.envelopes) == 2
    worker.stop()
    await running
    assert {await state_of(pool, post) for post in posts} == {DeliveryState.QUEUED}


async def test_a_claim_that_cannot_be_prepared_is_released(pool: Pool) -> None:
    """If preparation fails, the claim is released at once, and no attempt is counted."""
    [delivery] = await accepted(pool)

    async def fail(*_claim: object) -> None:
        raise ConnectionError("the database is away")

    transport = Recording()
    worker = a_worker(pool, transport, prepare=fail)
    with pytest.raises(ExceptionGroup):
        await worker.run_once(Lane.TRANSACTIONAL)
    row = await pool.fetchrow("SELECT state::text, attempt_count, claim_id FROM deliveries WHERE id = $1", delivery)
    assert row is not None
    assert (*row, transport.envelopes) == ("queued", 0, None, [])
    assert await pool.fetchval("SELECT count(*) FROM claims") == 0


# ── stopping ──────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_stopping_gives_back_what_was_not_started(pool: Pool) -> None:
    """A stopping worker releases deliveries it has not started, while attempts hang."""
    await accepted(pool, *(a_mail(f"p{n}@example.org") for n in range(12)))
    transport = Hanging()
    options = WorkerOptions(batch=12, chunk=3, lease=HOUR, grace=timedelta(milliseconds=20))
    worker = a_worker(pool, transport, options=options)
    running = asyncio.create_task(worker.run())
    await asyncio.wait_for(transport.reached.wait(), 60)
    worker.stop()
    await asyncio.wait_for(running, 60)
    async with pool.acquire() as connection:
        rows = await connection.fetch(
            "SELECT state::text, next_attempt_at <= now() FROM deliveries WHERE attempt_count = 0"
        )
        assert await connection.fetchval("SELECT count(*) FROM claims") == 0
        assert await connection.fetchval("SELECT count(*) FROM deliveries WHERE state = 'sending'") == 0
    assert len(rows) == 12 - len(transport.envelopes)
    assert {tuple(row) for row in rows} == {("queued", True)}


async def test_attempt_beyond_the_grace_time_is_ambiguous(pool: Pool) -> None:
    """An attempt in flight at the end of the grace time is recorded as ambiguous."""
    [delivery] = await accepted(pool)
    transport = Hanging()
    worker = a_worker(pool, transport, options=WorkerOptions(grace=timedelta(milliseconds=20)))
    running = asyncio.create_task(worker.run())
    await asyncio.wait_for(transport.reached.wait(), 60)
    worker.stop()
    await asyncio.wait_for(running, 60)
    assert [attempt.outcome for attempt in await attempts_of(pool, delivery)] == ["ambiguous"]


async def test_a_worker_says_good_bye(pool: Pool) -> None:
    """A stopped worker is removed from the table of workers and no longer notified."""
    steps = Steps()
    worker = a_worker(pool, Recording(), signal=steps)
    running = asyncio.create_task(worker.run())
    await steps.reached("asleep", times=3)
    async with pool.acquire() as connection:
        assert await connection.fetchval("SELECT cardinality(asleep) FROM workers") == 3
    worker.stop()
    await running
    async with pool.acquire() as connection:
        assert await connection.fetchval("SELECT count(*) FROM workers") == 0


async def test_until_empty_ends_when_nothing_is_due(pool: Pool) -> None:
    """A worker with `until_empty` sends everything due and returns."""
    ids = await accepted(pool, *(a_mail(lane=lane) for lane in Lane for _ in range(5)))
    transport = Recording()
    await a_worker(pool, transport, options=WorkerOptions(batch=2, chunk=1, until_empty=True)).run()
    assert sorted(transport.delivery_ids) == sorted(ids)


async def test_a_lease_is_renewed_while_work_goes_on(pool: Pool) -> None:
    """The lease is renewed while an attempt takes longer than the lease."""
    await accepted(pool)
    transport = Hanging()
    options = WorkerOptions(lease=HOUR, grace=timedelta(milliseconds=10))
    worker = a_worker(pool, transport, options=options)
    running = asyncio.create_task(worker.run())
    await asyncio.wait_for(transport.reached.wait(), 60)
    async with pool.acquire() as connection:
        first = await connection.fetchval("SELECT expires_at FROM claims")
    let_pass(HOUR.total_seconds())
    await until(pool, f"EXISTS (SELECT FROM claims WHERE expires_at > '{first}')")
    worker.stop()
    await running
    assert transport.reached.is_set()


async def test_a_claim_the_worker_does_not_know_of_is_not_renewed(pool: Pool) -> None:
    """A claim whose response was lost expires and is recovered as never started."""
    hands = Hands()
    await accepted(pool, now=hands())
    [outgoing] = await claimed(pool, now=hands(), worker_id=7)
    async with pool.acquire() as connection:
        kept = await store.renew_claims(connection, worker_id=7, claim_ids=[], lease=LEASE, now=hands())
        assert kept == {}
    hands.forward(minutes=2)
    assert await Maintenance(pool, clock=hands).recover() == 1
    assert await state_of(pool, outgoing.id) is DeliveryState.QUEUED
    assert await attempts_of(pool, outgoing.id) == []


async def test_a_woken_worker_begins_with_the_lane_that_was_notified(pool: Pool) -> None:
    """The other lanes wait for a notification or their head start, and the worker uses its given registration."""
    first, second = await accepted(pool, a_mail(lane=Lane.TRANSACTIONAL), a_mail(lane=Lane.BULK))
    worker_id = await pool.fetchval("SELECT wake_sleeper(1, 'tests')")
    waker, woken = LaneWakeups(), WokenWorker(worker_id, frozenset({Lane.TRANSACTIONAL}), HOUR)
    worker = a_worker(pool, Recording(), waker=waker, woken=woken)
    running = asyncio.create_task(worker.run())
    try:
        await until(pool, f"state = 'sent' FROM deliveries WHERE id = {first}")
        assert await state_of(pool, second) == DeliveryState.QUEUED
        assert await pool.fetchval("SELECT array_agg(id) FROM workers") == [worker_id]
        waker.notified("bulk")
        await until(pool, f"state = 'sent' FROM deliveries WHERE id = {second}")
    finally:
        worker.stop()
        await running
