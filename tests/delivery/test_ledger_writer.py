"""The ledger: results are written in batches, once, under a valid claim, and never lost silently."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
import pytest
from structlog.testing import capture_logs
from tests.support.builders import (
    BUSY,
    Hands,
    Recording,
    Steps,
    a_mail,
    a_worker,
    accepted,
    attempts_of,
    claimed,
    finished,
    outcomes_of,
    state_of,
)

from postroom.db.pool import Pool
from postroom.delivery import store
from postroom.delivery.decision import AttemptResult, complete_columns
from postroom.delivery.ledger import Ledger
from postroom.delivery.model import DeliveryState, Lane, Outgoing, Recipient, RecipientOutcome
from postroom.runtime.clock import database_time
from postroom.runtime.loop import Signal, unheard


@asynccontextmanager
async def completing(pool: Pool, signal: Signal = unheard) -> AsyncIterator[Ledger]:
    ledger = Ledger(pool, worker_id=lambda: 1, clock=database_time, signal=signal)
    running = asyncio.create_task(ledger.loop().run(asyncio.Event()))
    try:
        yield ledger
    finally:
        running.cancel()


async def claims(pool: Pool) -> int:
    async with pool.acquire() as connection:
        return int(await connection.fetchval("SELECT count(*) FROM claims"))


async def test_results_that_come_together_are_written_together(pool: Pool) -> None:
    """Fifty results that are ready at once take one statement."""
    ids = await accepted(pool, *(a_mail() for _ in range(50)))
    batch = await claimed(pool)
    steps = Steps()
    async with completing(pool, steps) as ledger:
        ledger.expect(batch[0].claim_id, len(batch))
        for result in finished(batch):
            ledger.add(result)
        await asyncio.wait_for(ledger.drain(), 60)
    assert steps.heard == ["completed"]
    assert {await state_of(pool, delivery) for delivery in ids} == {DeliveryState.SENT}


async def test_results_that_come_during_a_write_wait_for_others(pool: Pool) -> None:
    """A statement for one result costs nearly as much as for fifty: the first to come is not written alone."""
    await accepted(pool, *(a_mail() for _ in range(100)))
    batch = await claimed(pool)
    first, second = finished(batch)[:50], finished(batch)[50:]
    steps = Steps()

    def come(_written: list[Outgoing]) -> None:
        ledger.on_written = lambda _written: None
        ledger.add(second[0])
        for result in second[1:]:
            asyncio.get_running_loop().call_soon(ledger.add, result)

    async with completing(pool, steps) as ledger:
        ledger.on_written = come
        ledger.expect(batch[0].claim_id, len(batch))
        for result in first:
            ledger.add(result)
        await asyncio.wait_for(ledger.drain(), 60)
    assert steps.heard == ["completed", "completed"]


async def test_a_claim_is_closed_when_its_last_result_is_written(pool: Pool) -> None:
    """A claim stays open while an attempt is in flight and needs its lease."""
    await accepted(pool, a_mail(), a_mail())
    first, second = await claimed(pool)
    async with completing(pool) as ledger:
        ledger.expect(first.claim_id, 2)
        ledger.add(finished([first])[0])
        await ledger.drain()
        assert (await claims(pool), ledger.held()) == (1, [first.claim_id])
        ledger.add(finished([second])[0])
        await ledger.drain()
        assert (await claims(pool), ledger.held()) == (0, [])


async def test_giving_back_closes_the_claim_too(pool: Pool) -> None:
    """A claim half written and half released is closed, and the rest is due unchanged."""
    await accepted(pool, a_mail(), a_mail())
    first, second = await claimed(pool)
    async with completing(pool) as ledger:
        ledger.expect(first.claim_id, 2)
        ledger.add(finished([first])[0])
        await ledger.drain()
        await ledger.give_back(first.claim_id, [second.id])
    assert await claims(pool) == 0
    assert [outgoing.id for outgoing in await claimed(pool)] == [second.id]


async def test_a_lost_claim_changes_nothing(pool: Pool) -> None:
    """A result that comes after recovery is dropped; the ledger holds what recovery wrote."""
    hands = Hands()
    await accepted(pool, now=hands())
    [outgoing] = await claimed(pool, now=hands())
    hands.forward(minutes=2)
    async with pool.acquire() as connection:
        await store.recover_claims(connection, held_lanes=[], batch_limit=10, now=hands())
    async with completing(pool) as ledger:
        ledger.expect(outgoing.claim_id, 1)
        ledger.add(finished([outgoing])[0])
        await ledger.drain()
    assert await state_of(pool, outgoing.id) is DeliveryState.QUEUED
    assert await attempts_of(pool, outgoing.id) == []


def with_outcome(outgoing: Outgoing, outcome: RecipientOutcome, state: str) -> AttemptResult:
    told = tuple(Recipient(r.kind, r.position, r.address, r.name, outcome) for r in outgoing.recipients)
    return AttemptResult(outgoing=outgoing, outcome="failed", state=state, reason="test", recipients=told)


@pytest.mark.parametrize("order", [1, -1], ids=["old first", "new first"])
async def test_two_results_of_one_delivery_in_one_batch_do_not_mix(pool: Pool, order: int) -> None:
    """Only the result with the valid claim counts if one delivery has two."""
    hands = Hands()
    await accepted(pool, now=hands())
    [old] = await claimed(pool, now=hands())
    hands.forward(minutes=2)
    async with pool.acquire() as connection:
        await store.recover_claims(connection, held_lanes=[], batch_limit=10, now=hands())
    [new] = await claimed(pool, now=hands())
    results = [
        with_outcome(old, RecipientOutcome.REFUSED, "failed"),
        with_outcome(new, RecipientOutcome.DELIVERED, "sent"),
    ]
    async with completing(pool) as ledger:
        for each in (old, new):
            ledger.expect(each.claim_id, 1)
        for result in results[::order]:
            ledger.add(result)
        await ledger.drain()
    assert await state_of(pool, new.id) is DeliveryState.SENT
    assert await outcomes_of(pool, new.id) == {"ada@example.org": "delivered"}


async def test_results_wait_for_a_database_that_is_away(pool: Pool) -> None:
    """A result is kept while its row is locked and its statement cancelled, and written afterwards."""
    await accepted(pool)
    [outgoing] = await claimed(pool)
    async with pool.acquire() as blocker, completing(pool) as ledger:
        transaction = blocker.transaction()
        await transaction.start()
        await blocker.execute("SELECT FROM deliveries WHERE id = $1 FOR UPDATE", outgoing.id)
        ledger.expect(outgoing.claim_id, 1)
        ledger.add(finished([outgoing])[0])
        async with asyncio.timeout(60):
            while not await blocker.fetchval(
                "SELECT count(pg_cancel_backend(pid)) FROM pg_locks WHERE NOT granted AND pid <> pg_backend_pid()"
            ):
                pass
        await transaction.rollback()
        await asyncio.wait_for(ledger.drain(), 60)
    assert [attempt.outcome for attempt in await attempts_of(pool, outgoing.id)] == ["sent"]


FAILING = """
    CREATE TABLE failure (state text);
    CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$
    DECLARE v_state text := (SELECT state FROM failure);
    BEGIN
        IF v_state IS NOT NULL THEN
            RAISE EXCEPTION 'not now' USING ERRCODE = v_state;
        END IF;
        RETURN NULL;
    END $$;
    CREATE TRIGGER fail BEFORE INSERT ON attempts FOR EACH STATEMENT EXECUTE FUNCTION fail();
"""


@pytest.mark.parametrize("state", ["25006", "53100", "55P03", "58030", "42501", "XX000"])
async def test_a_known_result_survives_every_error_that_is_not_about_it(pool: Pool, state: str) -> None:
    """Read-only server, full disk, lock timeout, broken device, missing right: the result waits and is written."""
    [delivery] = await accepted(pool)
    batch = await claimed(pool)
    async with pool.acquire() as connection:
        await connection.execute(FAILING)
        await connection.execute("INSERT INTO failure VALUES ($1)", state)
    with capture_logs() as logs:
        async with completing(pool) as ledger:
            ledger.expect(batch[0].claim_id, 1)
            ledger.add(finished(batch)[0])
            async with pool.acquire() as connection, asyncio.timeout(60):
                while not any(entry["event"] == "completion_postponed" for entry in logs):
                    await connection.fetchval("SELECT 1")
                await connection.execute("DELETE FROM failure")
            await asyncio.wait_for(ledger.drain(), 60)
    assert [attempt.outcome for attempt in await attempts_of(pool, delivery)] == ["sent"]


async def test_result_with_unstorable_text_is_written_without_it(pool: Pool) -> None:
    """The database cannot store a transport's name: outcome and code are kept, and the worker goes on."""

    class Wrong(Recording):
        name = "half a \0 name"

    [delivery] = await accepted(pool)
    await asyncio.wait_for(a_worker(pool, Wrong(BUSY)).run_once(Lane.TRANSACTIONAL), 60)
    [attempt] = await attempts_of(pool, delivery)
    assert (attempt.outcome, attempt.code, attempt.transport) == ("deferred", 451, "unknown")


async def test_rejected_result_does_not_fail_the_others(pool: Pool) -> None:
    """Nine of ten are written. The tenth keeps its claim, so that recovery does not send it again meanwhile."""
    ids = await accepted(pool, *(a_mail() for _ in range(10)))
    batch = await claimed(pool)
    results = finished(batch)
    results[3] = finished([batch[3]], state="lost")[0]
    async with completing(pool) as ledger:
        ledger.expect(batch[0].claim_id, 10)
        for result in results:
            ledger.add(result)
        await asyncio.wait_for(ledger.drain(), 60)
        assert ledger.held() == [batch[0].claim_id]
    states = [await state_of(pool, delivery) for delivery in ids]
    assert states == [DeliveryState.SENT] * 3 + [DeliveryState.SENDING] + [DeliveryState.SENT] * 6


async def test_the_database_refuses_a_transition_that_is_not_drawn(pool: Pool) -> None:
    """An unknown state raises, and nothing of its batch is written."""
    await accepted(pool)
    batch = await claimed(pool)
    async with pool.acquire() as connection:
        with pytest.raises(asyncpg.PostgresError):
            await store.complete(connection, worker_id=1, now=None, **complete_columns(finished(batch, state="lost")))
    assert await state_of(pool, batch[0].id) is DeliveryState.SENDING


async def test_a_lane_of_its_own(pool: Pool) -> None:
    """The ledger writes all lanes and records the lane of each result."""
    [delivery] = await accepted(pool, a_mail(lane=Lane.BULK))
    await a_worker(pool, Recording()).run_once(Lane.BULK)
    async with pool.acquire() as connection:
        assert await connection.fetchval("SELECT lane::text FROM attempts WHERE delivery_id = $1", delivery) == "bulk"
