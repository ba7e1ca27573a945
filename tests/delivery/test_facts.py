"""Facts: every step of a delivery is appended to the event store by the statement that takes it."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta

import pytest
from tests.support.builders import a_mail

from postroom.db.pool import Pool
from postroom.delivery import service, store
from postroom.delivery.maintenance import Maintenance
from postroom.delivery.model import DeliveryId, Lane
from postroom.events.model import Query
from postroom.events.service import EventStore
from postroom.settings import FACTS


async def facts_of(pool: Pool, delivery_id: int) -> list[str]:
    page = await EventStore(pool).read(Query.of(tags=[f"postroom.delivery={delivery_id}"]))
    return [event.type for event in page.events]


async def accepted(pool: Pool, **fields: object) -> DeliveryId:
    async with pool.acquire() as connection:
        return (await service.accept(connection, a_mail(**fields))).id


async def test_acceptance_is_a_fact(pool: Pool) -> None:
    """Accepting appends in the same transaction, and names no person."""
    delivery_id = await accepted(pool)
    page = await EventStore(pool).read(Query.of("DeliveryAccepted"))
    assert [event.data["delivery"] for event in page.events] == [delivery_id]
    assert set(page.events[0].data) == {"delivery", "lane", "channel", "source"}


async def test_a_rolled_back_acceptance_is_no_fact(pool: Pool) -> None:
    """What did not happen was not appended."""
    async with pool.acquire() as connection:
        attempt = connection.transaction()
        await attempt.start()
        await service.accept(connection, a_mail())
        await attempt.rollback()
    assert (await EventStore(pool).read(Query.all())).events == []


async def test_a_statement_by_hand_leaves_the_same_trace(pool: Pool) -> None:
    """An operator who cancels in psql is recorded as well as one who uses the service."""
    delivery_id = await accepted(pool)
    await pool.execute(
        "UPDATE deliveries SET state = 'cancelled', next_attempt_at = NULL, finished_at = now(), reason = 'by hand'"
    )
    assert await facts_of(pool, delivery_id) == ["DeliveryAccepted", "DeliveryCancelled"]


async def test_a_batch_is_one_append(pool: Pool) -> None:
    """Many deliveries accepted by one statement share one transaction and as many facts."""
    async with pool.acquire() as connection:
        taken = await service.accept_batch(connection, [a_mail() for _ in range(300)])
    page = await EventStore(pool).read(Query.of("DeliveryAccepted"), limit=1000)
    assert sorted(event.data["delivery"] for event in page.events) == sorted(answer.id for answer in taken)
    assert len({event.transaction_id for event in page.events}) == 1


async def test_machinery_is_no_fact(pool: Pool) -> None:
    """Claiming and giving back say nothing about the mail itself."""
    delivery_id = await accepted(pool)
    async with pool.acquire() as connection:
        rows = await store.claim_due(
            connection,
            lane=Lane.TRANSACTIONAL,
            batch_limit=10,
            worker_id=1,
            lease=timedelta(seconds=30),
            now=None,
        )
        await store.release(connection, claim_id=rows[0]["claim_id"], delivery_ids=[delivery_id], now=None)
    assert await facts_of(pool, delivery_id) == ["DeliveryAccepted"]


@pytest.mark.parametrize("types", [(), ("DeliveryCancelled",), FACTS])
async def test_only_chosen_facts_are_recorded(pool: Pool, types: Sequence[str]) -> None:
    """The choice is the room's, and takes effect with the next statement."""
    async with pool.acquire() as connection:
        await service.choose_facts(connection, types)
    delivery_id = await accepted(pool)
    await service.cancel(pool, delivery_id, actor="test")
    expected = [name for name in ("DeliveryAccepted", "DeliveryCancelled") if name in types]
    assert await facts_of(pool, delivery_id) == expected


async def test_expiry_and_concurrent_writers(pool: Pool) -> None:
    """Facts of concurrent statements all arrive, and maintenance is recorded like anybody else."""
    ids = await asyncio.gather(*(accepted(pool) for _ in range(20)))
    await pool.execute("UPDATE deliveries SET expires_at = now() - interval '1 minute'")
    await Maintenance(pool).expire()
    cancelled = await EventStore(pool).read(Query.of("DeliveryCancelled"), limit=100)
    assert sorted(event.data["delivery"] for event in cancelled.events) == sorted(ids)
    assert {event.data["reason"] for event in cancelled.events} == {"expired"}
