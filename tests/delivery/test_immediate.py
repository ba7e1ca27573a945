"""Transports that never wait: a chunk is sent in one go, with the same results as by tasks."""

import asyncio
from datetime import timedelta

import pytest
from tests.support.builders import (
    DELIVERED,
    NOON,
    REFUSED,
    Hands,
    Immediate,
    a_mail,
    a_worker,
    accepted,
    attempts_of,
    outcomes_of,
    per_recipient,
    state_of,
)

from postroom.db.pool import Pool
from postroom.delivery.model import DeliveryState, Lane
from postroom.delivery.worker import WorkerOptions
from postroom.post.reply import Envelope, Reply

SMALL = WorkerOptions(batch=8, chunk=2, lease=timedelta(hours=1))


async def test_a_chunk_needs_no_task_per_mail(pool: Pool) -> None:
    """Twenty mails are answered by the task of their lane, in their order."""
    ids = await accepted(pool, *(a_mail(f"p{n}@example.org") for n in range(20)))
    transport = Immediate()
    await a_worker(pool, transport).run_once(Lane.TRANSACTIONAL)
    assert transport.delivery_ids == ids
    assert len(set(transport.tasks)) == 1
    assert {await state_of(pool, delivery) for delivery in ids} == {DeliveryState.SENT}


@pytest.mark.parametrize(
    "answer, outcome, state",
    [
        (RuntimeError("a bug"), "ambiguous", DeliveryState.QUEUED),
        (ValueError("no such letter"), "failed", DeliveryState.FAILED),
        (REFUSED, "failed", DeliveryState.FAILED),
    ],
)
async def test_an_error_ends_one_mail_only(
    pool: Pool, answer: Reply | Exception, outcome: str, state: DeliveryState
) -> None:
    """A bug is ambiguous, content that cannot be encoded fails, and the next mail is sent."""
    first, second = await accepted(pool, a_mail(), a_mail())
    await a_worker(pool, Immediate(answer, DELIVERED)).run_once(Lane.TRANSACTIONAL)
    assert [attempt.outcome for attempt in await attempts_of(pool, first)] == [outcome]
    assert (await state_of(pool, first), await state_of(pool, second)) == (state, DeliveryState.SENT)


async def test_each_recipient_has_an_outcome(pool: Pool) -> None:
    """Replies to single recipients are recorded for them."""
    [delivery] = await accepted(pool, a_mail("a@example.org", "b@example.org"))
    transport = Immediate(per_recipient({"b@example.org": (550, "5.1.1")}))
    await a_worker(pool, transport).run_once(Lane.TRANSACTIONAL)
    assert await outcomes_of(pool, delivery) == {"a@example.org": "delivered", "b@example.org": "refused"}


async def test_an_expired_mail_is_not_offered(pool: Pool) -> None:
    """A code that expires while an earlier one of its chunk is sent does not leave."""
    hands = Hands()
    soon = NOON + timedelta(seconds=5)
    ids = await accepted(pool, *(a_mail(lane=Lane.AUTH, expires_at=soon) for _ in range(2)), now=hands())

    def answer(_envelope: Envelope) -> Reply:
        hands.forward(seconds=10)
        return DELIVERED

    transport = Immediate(answer)
    await a_worker(pool, transport, clock=hands).run_once(Lane.AUTH)
    assert transport.delivery_ids == ids[:1]
    assert [await state_of(pool, delivery) for delivery in ids] == [DeliveryState.SENT, DeliveryState.CANCELLED]


async def test_stopping_releases_the_chunks_that_were_not_started(pool: Pool) -> None:
    """A stop during the first chunk of two lets it end; the other six mails are released without an attempt."""
    ids = await accepted(pool, *(a_mail() for _ in range(8)))

    def answer(_envelope: Envelope) -> Reply:
        worker.stop()
        return DELIVERED

    transport = Immediate(answer)
    worker = a_worker(pool, transport, options=SMALL)
    await asyncio.wait_for(worker.run(), 60)
    assert transport.delivery_ids == ids[:2]
    assert [await state_of(pool, delivery) for delivery in ids] == [DeliveryState.SENT] * 2 + [DeliveryState.QUEUED] * 6
    async with pool.acquire() as connection:
        assert await connection.fetchval("SELECT count(*) FROM claims") == 0
        assert await connection.fetchval("SELECT sum(attempt_count) FROM deliveries") == 2
