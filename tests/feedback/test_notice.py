"""The notice about complaints, once per interval; retention of reports, while suppressions stay."""

import asyncio

import pytest
from tests.support.builders import Hands
from tests.support.feedback import a_bounce, a_complaint, rows, sent, suppressed
from tests.support.retention import swept

from postroom.db.pool import Pool
from postroom.delivery.notices import Notice, Notifier
from postroom.feedback.notice import RETENTION, report_complaints
from postroom.feedback.record import record
from postroom.post.address import Address
from postroom.settings import Settings

NOTICE = Notice("complaints", "complaint_notice_interval", report_complaints)


def notifier(pool: Pool, clock: Hands) -> Notifier:
    return Notifier(pool, Address("admin@example.net"), [NOTICE], Settings(), clock=clock)


@pytest.fixture
def hands() -> Hands:
    return Hands()


async def complain(pool: Pool, hands: Hands, *people: str, **fields: object) -> None:
    async with pool.acquire() as connection:
        await record(connection, [a_complaint(each, **fields) for each in people], now=hands.now)


async def mails(pool: Pool) -> list[tuple[str, ...]]:
    return await rows(
        pool,
        "SELECT lane::text, subject FROM deliveries JOIN delivery_payloads ON delivery_id = id "
        "WHERE source = 'postroom' ORDER BY id",
    )


async def test_complaint_sends_a_notice_at_once(pool: Pool, hands: Hands) -> None:
    """The administrator gets one transactional mail without the complainer's address."""
    delivery_id = await sent(pool)
    await complain(pool, hands, "ada@example.org", delivery_id=delivery_id)
    assert await notifier(pool, hands).run_once() == 1
    assert await mails(pool) == [("transactional", "Postroom: 1 person complained")]
    ((text,),) = await rows(pool, "SELECT text_body FROM delivery_payloads WHERE subject LIKE 'Postroom%'")
    assert str(delivery_id) in text
    assert "ada@" not in text


async def test_many_complaints_cause_one_notice_per_interval(pool: Pool, hands: Hands) -> None:
    """The number of complaints and processes does not matter."""
    keepers = [notifier(pool, hands) for _ in range(3)]
    for minute in range(90):
        await complain(pool, hands, f"p{minute}@example.org")
        if minute % 10 == 0:
            await asyncio.gather(*(keeper.run_once() for keeper in keepers))
        hands.forward(minutes=1)
    await keepers[0].run_once()
    hands.forward(hours=1)
    assert await keepers[1].run_once() > 0
    assert await keepers[2].run_once() == 0
    told = [int(subject.split()[1]) for _, subject in await mails(pool)]
    assert (len(told), sum(told)) == (3, 90)


async def test_no_complaint_sends_no_notice(pool: Pool, hands: Hands) -> None:
    """Bounces and unverified complaints cause no notice."""
    async with pool.acquire() as connection:
        await record(connection, [a_bounce(), a_complaint("ben@example.org", is_verified=False)], now=hands.now)
    assert await notifier(pool, hands).run_once() == 0
    assert await mails(pool) == []


async def test_retention_deletes_reports_and_keeps_suppressions(pool: Pool, hands: Hands) -> None:
    """Reports are deleted after their retention; the complainer stays suppressed."""
    await complain(pool, hands, "ada@example.org")
    hands.forward(days=364)
    assert await swept(pool, RETENTION, clock=hands) == 0
    hands.forward(days=2)
    assert await swept(pool, RETENTION, clock=hands) == 1
    assert await rows(pool, "SELECT FROM bounces") == []
    assert await suppressed(pool) == [("complaint", "all", None)]
