"""Claims are limited by the size of their content, which is in memory only while it is sent."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from tests.support.builders import Recording, Steps, a_mail, a_worker, accepted, suppress, until
from tests.support.senders import an_account

from postroom.db.pool import Pool
from postroom.delivery import store
from postroom.delivery.check import MAX_DATA_BYTES, MAX_VARIABLES_BYTES
from postroom.delivery.lane import chunks
from postroom.delivery.model import DeliveryState, Lane
from postroom.delivery.worker import WorkerOptions
from postroom.post.mime import Attachment
from postroom.post.reply import Content, Envelope, Reply

MB = 2**20


SIZES = {"text": MB, "html": MB, "attachments": MB, "variables": 250_000, "headers": 60_000}
"""A size that each part of a mail may have."""


async def fill(pool: Pool, count: int, *, megabytes: int = 1) -> list[int]:
    return list(await accepted(pool, *(a_mail(f"p{n}@example.org", text="x" * MB * megabytes) for n in range(count))))


def heavy(part: str) -> dict[str, Any]:
    """The fields of a mail that has nearly all of its bytes in this part."""
    content = "x" * SIZES[part]
    fields: dict[str, dict[str, Any]] = {
        "attachments": {"attachments": (Attachment("a.bin", "application/octet-stream", content),)},
        "variables": {"template": "welcome", "variables": {"name": content}},
        "headers": {"headers": {"X-Long": content}},
    }
    return fields.get(part, {part: content})


@pytest.mark.parametrize("part", SIZES)
@pytest.mark.parametrize("use_senders", [False, True])
async def test_a_claim_takes_no_more_content_than_its_limit(pool: Pool, part: str, *, use_senders: bool) -> None:
    """Five equal mails and a limit of two and a half: the claim ends with the mail that passes the limit."""
    if use_senders:
        await an_account(pool)
    ids = await accepted(pool, *(a_mail(f"p{n}@example.org", **heavy(part)) for n in range(5)))
    async with pool.acquire() as connection:
        claimed = await store.claim_due(
            connection,
            lane=Lane.TRANSACTIONAL,
            batch_limit=500,
            worker_id=1,
            lease=timedelta(minutes=1),
            now=None,
            use_senders=use_senders,
            byte_limit=5 * SIZES[part] // 2,
        )
    assert [outgoing.id for outgoing in claimed] == ids[:3]
    [size] = {outgoing.size for outgoing in claimed}
    assert SIZES[part] <= size < SIZES[part] + 200


async def test_a_chunk_of_the_largest_variables_is_within_the_limit_of_a_claim() -> None:
    """Even a value that weighs nothing, because it is stored compressed, cannot exceed the memory of a worker."""
    options = WorkerOptions()
    assert options.chunk * (MAX_VARIABLES_BYTES + MAX_DATA_BYTES) <= options.byte_limit


async def test_a_mail_larger_than_the_limit_is_claimed_alone(pool: Pool) -> None:
    ids = await fill(pool, 3, megabytes=2)
    transport = Recording()
    await a_worker(pool, transport, options=WorkerOptions(byte_limit=MB, until_empty=True)).run()
    assert transport.delivery_ids == ids


class Holding(Recording):
    """A transport that holds its messages until `free` is set; `now` is their number."""

    def __init__(self) -> None:
        super().__init__()
        self.now, self.free = 0, asyncio.Event()

    async def send(self, envelope: Envelope, content: Content) -> Reply:
        self.now += 1
        await self.free.wait()
        return await super().send(envelope, content)


async def test_content_in_memory_is_bounded(pool: Pool) -> None:
    """With a limit of four megabytes, four mails of one megabyte are in flight; the fifth of the claim waits."""
    ids = await fill(pool, 20)
    transport = Holding()
    worker = a_worker(pool, transport, options=WorkerOptions(byte_limit=4 * MB + 1000, until_empty=True))
    running = asyncio.create_task(worker.run())
    async with pool.acquire() as connection, asyncio.timeout(60):
        while transport.now < 4:
            await connection.fetchval("SELECT 1")
        for _ in range(200):  # round trips enough to start and claim everything
            await connection.fetchval("SELECT 1")
            await asyncio.sleep(0)
    assert transport.now == 4
    transport.free.set()
    await asyncio.wait_for(running, 60)
    assert sorted(transport.delivery_ids) == ids


async def test_a_lease_counts_from_when_the_claim_is_written(pool: Pool) -> None:
    """A claim whose rows took long to find is valid for a whole lease."""
    await accepted(pool)
    lease = timedelta(minutes=1)
    async with pool.acquire() as connection, connection.transaction():
        began = await connection.fetchval("SELECT clock_timestamp()")
        [_] = await store.claim_due(
            connection, lane=Lane.TRANSACTIONAL, batch_limit=1, worker_id=1, lease=lease, now=None
        )
        assert await connection.fetchval("SELECT expires_at FROM claims") >= began + lease


class Suppressing(Recording):
    """A transport that suppresses an address during its first message."""

    def __init__(self, pool: Pool, address: str) -> None:
        super().__init__()
        self._pool, self._left, self._one_by_one = pool, [address], asyncio.Lock()

    async def send(self, envelope: Envelope, content: Content) -> Reply:
        async with self._one_by_one:
            if self._left:
                await suppress(self._pool, self._left.pop())
            return await super().send(envelope, content)


async def test_a_suppression_counts_until_a_chunk_starts(pool: Pool) -> None:
    """An address suppressed while an earlier mail of the claim is sent gets nothing."""
    ids = await accepted(pool, *(a_mail(f"p{n}@example.org") for n in range(3)))
    transport, steps = Suppressing(pool, "p2@example.org"), Steps()
    await a_worker(pool, transport, signal=steps, options=WorkerOptions(chunk=1, until_empty=True)).run()
    assert steps.heard.count("claimed") == 1
    assert sorted(transport.delivery_ids) == ids[:2]
    await until(pool, f"(SELECT state = '{DeliveryState.SUPPRESSED}' FROM deliveries WHERE id = {ids[2]})")


async def test_a_claim_is_cut_by_count_and_by_size(pool: Pool) -> None:
    """A claim of six mails is cut by count, by size, or not at all."""
    await fill(pool, 6)
    async with pool.acquire() as connection:
        claimed = await store.claim_due(
            connection, lane=Lane.TRANSACTIONAL, batch_limit=6, worker_id=1, lease=timedelta(minutes=1), now=None
        )
    assert [len(chunk) for chunk in chunks(claimed, 2, 100 * MB)] == [2, 2, 2]
    assert [len(chunk) for chunk in chunks(claimed, 100, MB)] == [1] * 6
    assert [len(chunk) for chunk in chunks(claimed, 100, 100 * MB)] == [6]
