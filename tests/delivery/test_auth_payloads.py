"""Content of mail in the lane `auth` is deleted when the delivery ends: it contains one-time codes."""

from datetime import timedelta

import pytest
from tests.support.builders import (
    DELIVERED,
    NOON,
    Recording,
    a_mail,
    a_worker,
    accepted,
    state_of,
    suppress,
)

from postroom.db.pool import Pool
from postroom.delivery import service
from postroom.delivery.errors import BodyGone
from postroom.delivery.model import DeliveryState, Lane
from postroom.delivery.worker import WorkerOptions
from postroom.post.reply import Reply, Stage

CODE = "06609"
REFUSED = Reply(Stage.FINAL, 550, "5.7.1", "no")
LATER = Reply(Stage.FINAL, 451, "4.3.0", "later")


async def a_code(pool: Pool, lane: Lane = Lane.AUTH) -> int:
    mail = a_mail("ada@example.org", subject=CODE, text=f"Your code is {CODE}", lane=lane)
    [delivery_id] = await accepted(pool, mail, now=NOON)
    return delivery_id


async def has_content(pool: Pool, delivery_id: int) -> bool:
    question = "SELECT EXISTS (SELECT FROM delivery_payloads WHERE delivery_id = $1)"
    return bool(await pool.fetchval(question, delivery_id))


async def work(pool: Pool, answer: Reply) -> None:
    options = WorkerOptions(until_empty=True)
    await a_worker(pool, Recording(answer), options=options, clock=lambda: NOON).run()


@pytest.mark.parametrize(
    "lane, answer, state, is_kept",
    [
        (Lane.AUTH, DELIVERED, DeliveryState.SENT, False),
        (Lane.AUTH, REFUSED, DeliveryState.FAILED, False),
        (Lane.AUTH, LATER, DeliveryState.QUEUED, True),
        (Lane.TRANSACTIONAL, DELIVERED, DeliveryState.SENT, True),
        (Lane.BULK, REFUSED, DeliveryState.FAILED, True),
    ],
)
async def test_an_attempt_that_ends_a_code_deletes_it(
    pool: Pool, lane: Lane, answer: Reply, state: DeliveryState, *, is_kept: bool
) -> None:
    """Content is deleted when the delivery is sent or fails; deferred mail and other lanes keep it."""
    delivery_id = await a_code(pool, lane)
    await work(pool, answer)
    assert await state_of(pool, delivery_id) is state
    assert await has_content(pool, delivery_id) is is_kept


async def test_a_suppressed_code_is_not_kept(pool: Pool) -> None:
    """Content is deleted on suppression at acceptance or before an attempt."""
    early = await a_code(pool)
    await suppress(pool, "ada@example.org")
    late = await a_code(pool)
    await work(pool, DELIVERED)
    for delivery_id in (early, late):
        assert await state_of(pool, delivery_id) is DeliveryState.SUPPRESSED
        assert not await has_content(pool, delivery_id)


async def test_a_cancelled_code_is_not_kept(pool: Pool) -> None:
    """Content is deleted when an operator or a plain UPDATE cancels the delivery."""
    by_hand, by_sql = await a_code(pool), await a_code(pool)
    await service.cancel(pool, by_hand, actor="tests")
    await pool.execute(
        "UPDATE deliveries SET state = 'cancelled', reason = 'mine', next_attempt_at = NULL, finished_at = now()"
        " WHERE id = $1",
        by_sql,
    )
    assert not await has_content(pool, by_hand)
    assert not await has_content(pool, by_sql)


async def test_a_dead_letter_keeps_its_code_until_it_is_settled(pool: Pool) -> None:
    """A dead letter keeps its content for a redrive; settling it deletes the content."""
    delivery_id = await a_code(pool)
    await pool.execute("UPDATE deliveries SET state = 'sending', claim_id = 1, next_attempt_at = NULL")
    await pool.execute(
        "UPDATE deliveries SET state = 'dead_letter', claim_id = NULL, reason = 'ambiguous', finished_at = now()"
    )
    await pool.execute("INSERT INTO dead_letters (delivery_id, reason) VALUES ($1, 'ambiguous')", delivery_id)
    assert await has_content(pool, delivery_id)
    await service.settle(pool, delivery_id, actor="tests")
    assert await state_of(pool, delivery_id) is DeliveryState.SENT
    assert not await has_content(pool, delivery_id)


async def test_a_resend_says_that_the_content_was_deleted(pool: Pool) -> None:
    """The error explains that such content is kept only until the delivery ends."""
    delivery_id = await a_code(pool)
    await work(pool, DELIVERED)
    with pytest.raises(BodyGone, match=r"has been deleted.*in the lane auth only until the delivery ends"):
        await service.resend(pool, delivery_id, actor="tests", now=NOON + timedelta(minutes=1))


async def test_other_lanes_call_no_function(pool: Pool) -> None:
    """The trigger's condition excludes other lanes."""
    shown = await pool.fetchval("SELECT pg_get_triggerdef(oid) FROM pg_trigger WHERE tgname = 'empty_auth_payload'")
    assert "WHEN (((new.lane = 'auth'::" in shown
