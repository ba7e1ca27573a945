"""Facts: each transition of a delivery is appended to the event store by the statement that makes it."""

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta

import pytest
from tests.support.builders import (
    BUSY,
    DELIVERED,
    REFUSED,
    Hands,
    Recording,
    a_checked_mail,
    a_worker,
    redrive,
    suppress,
)

from postroom.db.pool import Pool
from postroom.delivery import service, store
from postroom.delivery.maintenance import Maintenance
from postroom.delivery.model import DeliveryId, Lane
from postroom.delivery.settings import FACTS
from postroom.events.model import Query
from postroom.events.service import EventStore
from postroom.post.reply import Reply
from postroom.transports.base import Transport
from postroom.transports.unsent import StubTransport


async def facts_of(pool: Pool, delivery_id: int) -> list[str]:
    page = await EventStore(pool).read(Query.of(tags=[f"postroom.delivery={delivery_id}"]))
    return [event.type for event in page.events]


async def accepted(pool: Pool, *, now: datetime | None = None, **fields: object) -> DeliveryId:
    async with pool.acquire() as connection:
        return (await service.accept(connection, a_checked_mail(**fields), now=now)).id


async def delivered(pool: Pool, transport: Transport, hands: Hands, *, attempts: int) -> None:
    """Let a worker make this many attempts, ten minutes apart."""
    worker = a_worker(pool, transport, clock=hands)
    for _ in range(attempts):
        assert await worker.run_once(Lane.AUTH) == 1
        hands.forward(minutes=10)


async def test_acceptance_is_a_fact(pool: Pool) -> None:
    """Accepting appends in the same transaction, and names no person."""
    delivery_id = await accepted(pool)
    page = await EventStore(pool).read(Query.of("DeliveryAccepted"))
    assert [event.data["delivery"] for event in page.events] == [delivery_id]
    assert set(page.events[0].data) == {"delivery", "lane", "channel", "source"}


@pytest.mark.parametrize(
    "answers, expected",
    [
        ([DELIVERED], ["DeliverySent"]),
        ([BUSY, DELIVERED], ["DeliveryDeferred", "DeliverySent"]),
        ([BUSY, REFUSED], ["DeliveryDeferred", "DeliveryFailed"]),
        ([REFUSED], ["DeliveryFailed"]),
        ([BUSY] * 6, [*["DeliveryDeferred"] * 5, "DeliveryDeadLettered"]),
    ],
)
async def test_each_attempt_appends_a_fact(pool: Pool, answers: list[Reply], expected: list[str]) -> None:
    """Each attempt appends one fact with its number and reason: sent, deferred, failed or given up."""
    hands = Hands()
    delivery_id = await accepted(pool, now=hands(), lane=Lane.AUTH)
    await delivered(pool, Recording(*answers), hands, attempts=len(answers))
    page = await EventStore(pool).read(Query.of(tags=[f"postroom.delivery={delivery_id}"]))
    facts = [event for event in page.events if event.type.startswith("Delivery")]  # a refusal is a bounce as well
    assert [fact.type for fact in facts] == ["DeliveryAccepted", *expected]
    assert [fact.data["attempt"] for fact in facts[1:]] == list(range(1, len(answers) + 1))
    found = await service.get_delivery(pool, delivery_id)
    last = facts[-1].data
    assert (last["reason"], last["lane"], last["channel"]) == (found.reason, "auth", "email")


async def test_a_redriven_dead_letter_is_a_fact(pool: Pool) -> None:
    """Giving up, redriving and sending each append a fact."""
    hands = Hands()
    delivery_id = await accepted(pool, now=hands(), lane=Lane.AUTH)
    await delivered(pool, Recording(BUSY), hands, attempts=6)
    assert (await redrive(pool, now=hands())).changed == 1
    await delivered(pool, Recording(DELIVERED), hands, attempts=1)
    assert (await facts_of(pool, delivery_id))[-3:] == ["DeliveryDeadLettered", "DeliveryRedriven", "DeliverySent"]


async def test_suppression_is_a_fact_whenever_it_happens(pool: Pool) -> None:
    """Suppression at acceptance, before an attempt and by the stub transport is recorded."""
    hands = Hands()
    by_transport = await accepted(pool, now=hands(), lane=Lane.AUTH)
    await delivered(pool, StubTransport(), hands, attempts=1)
    later = await accepted(pool, now=hands(), lane=Lane.AUTH)
    await suppress(pool, "ada@example.org")
    await delivered(pool, Recording(DELIVERED), hands, attempts=1)
    at_once = await accepted(pool, now=hands(), lane=Lane.AUTH)
    for delivery_id in (by_transport, later, at_once):
        assert await facts_of(pool, delivery_id) == ["DeliveryAccepted", "DeliverySuppressed"]


async def test_a_rolled_back_acceptance_is_no_fact(pool: Pool) -> None:
    """A rollback appends nothing."""
    async with pool.acquire() as connection:
        attempt = connection.transaction()
        await attempt.start()
        await service.accept(connection, a_checked_mail())
        await attempt.rollback()
    assert (await EventStore(pool).read(Query.all())).events == []


async def test_cancelling_in_plain_sql_is_a_fact(pool: Pool) -> None:
    """A cancellation in psql is recorded like one through the service."""
    delivery_id = await accepted(pool)
    await pool.execute("SELECT cancel_deliveries(ARRAY[$1::bigint], 'cancelled_by_operator')", delivery_id)
    assert await facts_of(pool, delivery_id) == ["DeliveryAccepted", "DeliveryCancelled"]


async def test_a_batch_is_one_append(pool: Pool) -> None:
    """Many deliveries accepted by one statement share one transaction and as many facts."""
    async with pool.acquire() as connection:
        taken = await service.accept_batch(connection, [a_checked_mail() for _ in range(300)])
    page = await EventStore(pool).read(Query.of("DeliveryAccepted"), limit=1000)
    assert sorted(event.data["delivery"] for event in page.events) == sorted(answer.id for answer in taken)
    assert len({event.transaction_id for event in page.events}) == 1


async def test_machinery_is_no_fact(pool: Pool) -> None:
    """Claiming and releasing append no fact."""
    delivery_id = await accepted(pool)
    async with pool.acquire() as connection:
        claimed = await store.claim_due(
            connection,
            lane=Lane.TRANSACTIONAL,
            batch_limit=10,
            worker_id=1,
            lease=timedelta(seconds=30),
            now=None,
        )
        await store.release(connection, worker_id=1, claim_id=claimed[0].claim_id, delivery_ids=[delivery_id], now=None)
    assert await facts_of(pool, delivery_id) == ["DeliveryAccepted"]


@pytest.mark.parametrize("types", [(), ("DeliveryCancelled",), FACTS])
async def test_only_chosen_facts_are_recorded(pool: Pool, types: Sequence[str]) -> None:
    """The selection belongs to the room and takes effect with the next statement."""
    async with pool.acquire() as connection:
        await service.choose_facts(connection, types)
    delivery_id = await accepted(pool)
    await service.cancel(pool, delivery_id, actor="test")
    expected = [name for name in ("DeliveryAccepted", "DeliveryCancelled") if name in types]
    assert await facts_of(pool, delivery_id) == expected


async def test_expiry_and_concurrent_writers(pool: Pool) -> None:
    """Facts of concurrent statements and of maintenance are all recorded."""
    ids = await asyncio.gather(*(accepted(pool) for _ in range(20)))
    await pool.execute("UPDATE deliveries SET expires_at = now() - interval '1 minute'")
    await Maintenance(pool).expire()
    cancelled = await EventStore(pool).read(Query.of("DeliveryCancelled"), limit=100)
    assert sorted(event.data["delivery"] for event in cancelled.events) == sorted(ids)
    assert {event.data["reason"] for event in cancelled.events} == {"expired"}
