"""The fence of a claim: no id is given out twice, and a claim is changed by its worker only."""

import asyncio
from datetime import timedelta

import pytest
from msgspec.structs import replace
from tests.delivery.test_ledger_writer import completing
from tests.support.builders import LEASE, NOON, a_mail, accepted, claimed, finished, state_of
from tests.support.sessions import until_blocked

from postroom.db.pool import Pool, Session
from postroom.delivery import store
from postroom.delivery.decision import complete_columns, unwritable, unwritable_columns
from postroom.delivery.model import ClaimId, DeliveryState, Lane, Outgoing

FENCES = {"claims": "claims_id_seq", "workers": "workers_id_seq", "processes": "processes_id_seq"}
"""The tables whose ids fence their holder, and the sequence that gave the ids until release 0.1.0."""


async def lose_claim(pool: Pool) -> Outgoing:
    """A claim of worker 1 that a crash of the server undoes, with the steps of the sequences: neither was on disk."""
    async with pool.acquire() as connection:
        steps = {name: await connection.fetchval(f"SELECT last_value FROM {name}") for name in FENCES.values()}
        transaction = connection.transaction()
        await transaction.start()
        [outgoing] = await store.claim_due(
            connection, lane=Lane.TRANSACTIONAL, batch_limit=1, worker_id=1, lease=LEASE, now=None
        )
        await transaction.rollback()
        for name, value in steps.items():
            await connection.execute("SELECT setval($1::text::regclass, $2, false)", name, value)
    return outgoing


async def test_claim_lost_in_a_crash_and_the_next_claim_have_different_ids(pool: Pool) -> None:
    """A claim that was not on disk is undone with its step of the sequence; the next claim gets another id."""
    await accepted(pool)
    lost = await lose_claim(pool)
    [taken] = await claimed(pool, worker_id=2)
    assert taken.id == lost.id
    assert taken.claim_id != lost.claim_id


@pytest.mark.parametrize("is_same_id", [False, True])
async def test_worker_of_a_lost_claim_cannot_touch_the_next_claim(pool: Pool, *, is_same_id: bool) -> None:
    """Neither does it with the id of another worker's claim: a claim is asked for by its worker, too."""
    await accepted(pool)
    lost = await lose_claim(pool)
    [taken] = await claimed(pool, worker_id=2)
    claim_id = taken.claim_id if is_same_id else lost.claim_id
    async with pool.acquire() as connection:
        assert await start(connection, 1, claim_id) == []
        assert await release(connection, 1, claim_id, taken) == []
        results = finished([taken if is_same_id else lost])
        assert await store.complete(connection, worker_id=1, now=None, **complete_columns(results)) == set()
        columns = unwritable_columns([unwritable(taken if is_same_id else lost, "no such variable")])
        assert await store.fail_unwritable(connection, worker_id=1, now=None, **columns) == []
        assert await connection.fetchval("SELECT attempt_count FROM deliveries") == 1
        assert await state_of(pool, taken.id) is DeliveryState.SENDING
        assert len(await start(connection, 2, taken.claim_id)) == 1
        assert await release(connection, 2, taken.claim_id, taken) == [taken.id]


async def start(connection: Session, worker_id: int, claim_id: ClaimId) -> list[object]:
    return list(
        await store.mark_started(
            connection, worker_id=worker_id, claim_id=claim_id, started_through=1, lease=LEASE, now=None
        )
    )


async def release(connection: Session, worker_id: int, claim_id: ClaimId, outgoing: Outgoing) -> list[int]:
    return list(
        await store.release(connection, worker_id=worker_id, claim_id=claim_id, delivery_ids=[outgoing.id], now=None)
    )


async def test_ids_that_fence_a_holder_come_from_no_sequence(pool: Pool) -> None:
    """Claims, workers and processes: the ids are above those of the sequences, which stay where they were."""
    await accepted(pool)
    async with pool.acquire() as connection:
        before = {name: await connection.fetchval(f"SELECT last_value FROM {name}") for name in FENCES.values()}
        await store.register_worker(connection, pid=7, host="here")
        await connection.execute("SELECT register_sleeper(8, 'here'), wake_sleeper(8, 'here')")
        await connection.execute("SELECT register_process(7, 2, 'here', 'work')")
        await claimed(pool)
        for table, sequence in FENCES.items():
            assert await connection.fetchval(f"SELECT min(id) FROM {table}") > 2**48
            assert await connection.fetchval(f"SELECT last_value FROM {sequence}") == before[sequence]


async def test_clock_set_back_repeats_no_id(pool: Pool) -> None:
    """Two ids of the same moment differ; an id of a later moment is larger."""
    question = "SELECT unrepeatable_id($1), unrepeatable_id($1), unrepeatable_id($2)"
    async with pool.acquire() as connection:
        first, second, later = await connection.fetchrow(question, NOON, NOON + timedelta(milliseconds=2))
    assert first != second
    assert max(first, second) < later


async def test_result_of_the_newer_claim_is_written_after_the_clock_was_set_back(pool: Pool) -> None:
    """A lost claim and its repetition in one process: the newer claim counts, whichever id is larger."""
    await accepted(pool)
    [lost] = await claimed(pool)
    async with pool.acquire() as connection:
        await connection.execute("UPDATE claims SET expires_at = now() - interval '1 second'")
        await store.recover_claims(connection, held_lanes=[], batch_limit=10, now=None)
    [taken] = await claimed(pool)
    async with pool.acquire() as connection:
        await connection.execute("UPDATE deliveries SET claim_id = 5")
        await connection.execute("UPDATE claims SET id = 5")
    newer = replace(taken, claim_id=ClaimId(5))
    async with completing(pool) as ledger:
        for each in (lost, newer):
            ledger.expect(each.claim_id, 1)
        for result in finished([newer, lost]):
            ledger.add(result)
        await asyncio.wait_for(ledger.drain(), 60)
    assert await state_of(pool, taken.id) is DeliveryState.SENT


async def test_claim_lists_only_the_mail_that_its_worker_got(pool: Pool) -> None:
    """Mail that is committed while a claim looks for mail may be locked without being claimed.

    It stood in the claim before mail that was claimed. The worker then recorded a start too few, and recovery sent its
    last mail again without an ambiguous attempt.
    """
    first, last = await accepted(pool, a_mail(), a_mail(), now=NOON)
    async with pool.acquire() as other:
        async with other.transaction():
            await other.execute("LOCK TABLE destination_domains")  # the claim reads it before it looks for mail
            claiming = asyncio.create_task(claimed(pool, now=NOON))
            await until_blocked(pool)
            await accepted(pool, a_mail(), now=NOON - timedelta(minutes=1))
        taken = await claiming
    assert [outgoing.id for outgoing in taken] == [first, last]
    async with pool.acquire() as connection:
        assert await connection.fetchval("SELECT delivery_ids FROM claims") == [first, last]
        claim_id = taken[0].claim_id
        assert await store.mark_started(
            connection, worker_id=1, claim_id=claim_id, started_through=len(taken), lease=LEASE, now=NOON
        )
        expired = NOON + timedelta(days=365)
        found = await store.recover_claims(connection, held_lanes=[], batch_limit=10, now=expired)
    assert {each.id: each.is_ambiguous for each in found} == {first: True, last: True}
