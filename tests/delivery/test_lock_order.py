"""Statements that run at once: they lock in one order, and decide by what they see under the lock."""

import asyncio
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any

import pytest
from tests.delivery.test_ledger_writer import completing
from tests.support.builders import (
    NO_ANSWER,
    NOON,
    Hands,
    Recording,
    a_mail,
    a_worker,
    accepted,
    claimed,
    finished,
    state_of,
)
from tests.support.campaigns import a_running_campaign
from tests.support.sessions import until_blocked

from postroom.campaigns.store import feed_campaign
from postroom.db.pool import Pool, Session
from postroom.delivery import service, store
from postroom.delivery.errors import BodyGone
from postroom.delivery.maintenance import Maintenance
from postroom.delivery.model import DeliveryState, Lane
from postroom.erasure import store as erasure_store

ADA = "ada@example.org"
Step = Callable[[Session, int, int], Coroutine[Any, Any, object]]


async def a_held_letter(pool: Pool) -> int:
    """An ambiguous dead letter."""
    [delivery] = await accepted(pool, a_mail(lane=Lane.BULK))
    await a_worker(pool, Recording(NO_ANSWER)).run_once(Lane.BULK)
    return delivery


async def settle(connection: Session, letter: int, _waiting: int) -> object:
    return await store.settle_ambiguous(connection, delivery_id=letter)


async def withdraw(connection: Session, letter: int, waiting: int) -> object:
    return await connection.execute("SELECT withdraw_deliveries($1::bigint[], 'person_deleted')", [letter, waiting])


@pytest.mark.parametrize("step", [settle, withdraw])
async def test_deliveries_are_locked_before_their_dead_letters(pool: Pool, step: Step) -> None:
    """An erasure holds deliveries and then wants a dead letter: a writer that waits for it does not hold that."""
    letter = await a_held_letter(pool)
    [waiting] = await accepted(pool)
    async with pool.acquire() as holder, pool.acquire() as other, holder.transaction():
        await store.lock_delivery(holder, delivery_id=letter if step is settle else waiting)
        stepping = asyncio.create_task(step(other, letter, waiting))
        await until_blocked(pool, unless=stepping)
        await holder.execute("SELECT FROM dead_letters WHERE delivery_id = $1 FOR UPDATE NOWAIT", letter)
        assert not stepping.done()
    await stepping


async def test_results_are_written_in_the_order_of_ids(pool: Pool) -> None:
    """A batch of results that waits for the first delivery has not locked the second."""
    await accepted(pool, a_mail(), a_mail())
    batch = await claimed(pool)
    first, second = sorted(each.id for each in batch)
    async with pool.acquire() as holder, completing(pool) as ledger:
        async with holder.transaction():
            await store.lock_delivery(holder, delivery_id=first)
            ledger.expect(batch[0].claim_id, 2)
            for result in finished(sorted(batch, key=lambda each: -each.id)):
                ledger.add(result)
            await until_blocked(pool)
            await holder.execute("SELECT FROM deliveries WHERE id = $1 FOR UPDATE NOWAIT", second)
        await asyncio.wait_for(ledger.drain(), 60)
    assert await state_of(pool, second) is DeliveryState.SENT


async def test_new_partitions_of_two_tables_take_two_transactions(pool: Pool) -> None:
    """A writer of steps can write attempts while the partitions of the steps wait for it."""
    async with pool.acquire() as writer:
        writing = writer.transaction()
        await writing.start()
        await writer.execute("LOCK TABLE delivery_steps_default IN ROW EXCLUSIVE MODE")
        making = asyncio.create_task(Maintenance(pool).make_partitions())
        await until_blocked(pool, unless=making)
        await writer.execute("LOCK TABLE attempts_default IN ROW EXCLUSIVE MODE NOWAIT")
        await writing.rollback()
    await asyncio.gather(making, return_exceptions=True)  # it may have waited for longer than its lock timeout
    assert await pool.fetchval("SELECT count(*) FROM pg_inherits WHERE inhparent = 'attempts'::regclass") > 1


async def test_worker_that_is_seen_again_keeps_its_registration(pool: Pool) -> None:
    """A silent worker renews its claims while retention looks at it."""
    async with pool.acquire() as holder, pool.acquire() as other:
        worker = await store.register_worker(other, pid=1, host="here")
        await other.execute("UPDATE workers SET seen_at = now() - interval '1 hour'")
        renewing = holder.transaction()
        await renewing.start()
        await store.renew_claims(holder, worker_id=worker, claim_ids=[], lease=timedelta(seconds=1), now=None)
        forgetting = asyncio.create_task(
            store.forget_workers(other, retention=timedelta(minutes=5), batch_limit=10, now=None)
        )
        await until_blocked(pool, unless=forgetting)
        await renewing.commit()
        await forgetting
        assert await other.fetchval("SELECT count(*) FROM workers") == 1


async def test_free_mail_is_not_released_and_held_mail_not_held_twice(pool: Pool) -> None:
    """A retry moved the mail after the step of a resume or a pause had found it."""
    [delivery] = await accepted(pool, now=NOON)
    async with pool.acquire() as connection:
        free, held = NOON.year, NOON.year + 1000
        for move, due in (("-1000 years", free), ("1000 years", held), ("1000 years", held), ("-1000 years", free)):
            await connection.execute("SELECT shift_deliveries(ARRAY[$1::bigint], $2::text::interval)", delivery, move)
            moved = await connection.fetchval("SELECT extract(year FROM next_attempt_at)::integer FROM deliveries")
            assert moved == due


async def test_mail_whose_expiry_was_moved_is_not_expired(pool: Pool) -> None:
    """The record decides, not the row of the queue by which it was found."""
    hands = Hands()
    [delivery] = await accepted(pool, a_mail(expires_at=NOON + timedelta(hours=1)), now=hands())
    async with pool.acquire() as connection:
        await connection.execute("UPDATE due_deliveries SET watch_at = $1", NOON)
    assert await Maintenance(pool, clock=hands).expire() == 0
    assert await state_of(pool, delivery) is DeliveryState.QUEUED


# ── erasure ───────────────────────────────────────────────────────────────────────────────────────────────────────────


async def erase(pool: Pool) -> None:
    async with pool.acquire() as connection, connection.transaction():
        await erasure_store.erase_indexed(connection, address=ADA, pseudonym="erased:1")


async def left_of(pool: Pool, address: str) -> int:
    """The recipients and bodies that contain an address."""
    return int(
        await pool.fetchval(
            "SELECT (SELECT count(*) FROM delivery_recipients WHERE email = $1)"
            " + (SELECT count(*) FROM delivery_payloads WHERE strpos(text_body, $1) > 0)",
            address,
        )
    )


async def test_copy_of_a_resend_that_runs_during_an_erasure_is_erased(pool: Pool) -> None:
    """The erasure waits for the resend, which has locked the original, and finds its copy."""
    [delivery] = await accepted(pool, a_mail(ADA, text=f"Dear {ADA}"))
    await a_worker(pool, Recording()).run_once(Lane.TRANSACTIONAL)
    async with pool.acquire() as connection:
        resending = connection.transaction()
        await resending.start()
        await store.lock_delivery(connection, delivery_id=delivery)
        await store.resend(connection, delivery_ids=[delivery], now=None)
        erasing = asyncio.create_task(erase(pool))
        await until_blocked(pool, unless=erasing)
        await resending.commit()
    await erasing
    assert await left_of(pool, ADA) == 0


async def test_resend_during_an_erasure_copies_nothing_of_the_person(pool: Pool) -> None:
    """The resend waits for the erasure, and then finds that the body is gone."""
    [delivery] = await accepted(pool, a_mail(ADA, text=f"Dear {ADA}"))
    await a_worker(pool, Recording()).run_once(Lane.TRANSACTIONAL)
    async with pool.acquire() as connection:
        erasing = connection.transaction()
        await erasing.start()
        await erasure_store.erase_indexed(connection, address=ADA, pseudonym="erased:1")
        resending = asyncio.create_task(service.resend(pool, delivery, actor="tests"))
        await until_blocked(pool, unless=resending)
        await erasing.commit()
    with pytest.raises(BodyGone):
        await resending
    assert await left_of(pool, ADA) == 0


async def test_mail_that_a_feeder_queues_during_an_erasure_is_erased(pool: Pool) -> None:
    """The erasure waits for the campaign before it searches the deliveries."""
    campaign = await a_running_campaign(pool, [ADA], now=NOON)
    async with pool.acquire() as connection:
        feeding = connection.transaction()
        await feeding.start()
        await feed_campaign(connection, campaign_id=campaign, target=10, now=NOON)
        erasing = asyncio.create_task(erase(pool))
        await until_blocked(pool, unless=erasing)
        await feeding.commit()
    await erasing
    assert await left_of(pool, ADA) == 0
