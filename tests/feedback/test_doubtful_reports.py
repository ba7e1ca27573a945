"""Reports about a mail to several recipients, any of whom may have written the report."""

import asyncio
from collections.abc import Callable
from datetime import timedelta

import pytest
from tests.support.builders import NOON, a_mail, accepted, state_of
from tests.support.feedback import a_bounce, a_complaint, a_report, a_soft_bounce, sent, suppressed
from tests.support.sessions import until_blocked

from postroom.db.pool import Pool
from postroom.delivery.model import Lane
from postroom.feedback.model import Feedback, FeedbackKind
from postroom.feedback.record import record

DAY = timedelta(days=1)


async def take(pool: Pool, *feedback: Feedback, after: timedelta = timedelta()) -> int:
    async with pool.acquire() as connection:
        return await record(connection, feedback, now=NOON + after)


async def to_both(pool: Pool) -> int:
    """A mail to two people: each knows its Message-ID and return path."""
    return await sent(pool, "ada@example.org", "eve@example.org")


@pytest.mark.parametrize("origin", ["smtp", "imap", "ingest"])
@pytest.mark.parametrize("make", [a_bounce, a_complaint])
async def test_report_about_a_mail_to_several_recipients_holds_for_three_days(
    pool: Pool, make: Callable[..., Feedback], origin: str
) -> None:
    """Another recipient may have written it, so bulk mail waits; a repetition has no effect."""
    delivery_id = await to_both(pool)
    await take(pool, make(delivery_id=delivery_id, origin=origin))
    assert await suppressed(pool) == [("soft_bounce", "all", NOON + 3 * DAY)]
    for day in range(1, 9):
        await take(pool, make(delivery_id=delivery_id, origin=origin), after=day * DAY)
    assert await suppressed(pool) == [("soft_bounce", "all", NOON + 3 * DAY)]


async def test_sign_in_code_is_sent_while_a_doubtful_report_holds(pool: Pool) -> None:
    """A forged report closes no lane but bulk."""
    await take(pool, a_bounce(delivery_id=await to_both(pool)))
    ids = await accepted(pool, *(a_mail(lane=lane) for lane in (Lane.AUTH, Lane.TRANSACTIONAL)), now=NOON)
    assert [await state_of(pool, each) for each in ids] == ["queued", "queued"]


@pytest.mark.parametrize("make, reason", [(a_bounce, "hard_bounce"), (a_complaint, "complaint")])
async def test_report_about_a_second_delivery_confirms_the_first(
    pool: Pool, make: Callable[..., Feedback], reason: str
) -> None:
    """Two deliveries say the same, in one batch or in two: the address is suppressed."""
    await take(pool, make(delivery_id=await to_both(pool)))
    await take(pool, make(delivery_id=await to_both(pool)), after=DAY)
    assert await suppressed(pool) == [(reason, "all", None)]
    pair = [make("eve@example.org", delivery_id=await to_both(pool)) for _ in range(2)]
    await take(pool, *pair)
    assert await suppressed(pool, "eve@example.org") == [(reason, "all", None)]


async def test_second_delivery_that_says_something_else_confirms_nothing(pool: Pool) -> None:
    """A full mailbox is no evidence for a missing one."""
    await take(pool, a_soft_bounce(delivery_id=await to_both(pool)))
    await take(pool, a_bounce(delivery_id=await to_both(pool)), after=2 * DAY)
    assert await suppressed(pool) == [("soft_bounce", "all", NOON + 5 * DAY)]


@pytest.mark.parametrize("origin", ["session", "ses"])
async def test_reply_in_the_session_and_signed_webhook_need_no_confirmation(pool: Pool, origin: str) -> None:
    """No recipient can forge them."""
    await take(pool, a_bounce(delivery_id=await to_both(pool), origin=origin))
    assert await suppressed(pool) == [("hard_bounce", "all", None)]


async def test_unsubscription_from_a_mail_to_several_recipients_applies(pool: Pool) -> None:
    """A request to stop bulk mail is honoured: its link is in every copy anyway."""
    await take(pool, a_report(FeedbackKind.UNSUBSCRIBE, delivery_id=await to_both(pool)))
    assert await suppressed(pool) == [("unsubscribe", "bulk", None)]


async def test_doubtful_report_weakens_no_suppression(pool: Pool) -> None:
    """After a fourth soft bounce the address stays suppressed."""
    for day in range(4):
        await take(pool, a_soft_bounce(), after=day * DAY)
    await take(pool, a_bounce(delivery_id=await to_both(pool)), after=5 * DAY)
    assert await suppressed(pool) == [("soft_bounce", "all", None)]


async def test_concurrent_reports_about_two_deliveries_confirm_each_other(pool: Pool) -> None:
    """The second transaction reads the effects again after it has locked the address."""
    ids = [await to_both(pool), await to_both(pool)]
    async with pool.acquire() as one, pool.acquire() as two:
        transaction = one.transaction()
        await transaction.start()
        await record(one, [a_bounce(delivery_id=ids[0])], now=NOON)
        later = asyncio.create_task(record(two, [a_bounce(delivery_id=ids[1])], now=NOON))
        await until_blocked(pool, unless=later)
        await transaction.commit()
        await later
    assert await suppressed(pool) == [("hard_bounce", "all", None)]
