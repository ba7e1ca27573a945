"""A bug in one loop of a worker is reported and retried; the worker and its other loops go on."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest
from tests.support.builders import Recording, Steps, a_mail, a_worker, accepted, attempts_of, claimed, finished, until
from tests.support.silence import let_pass

from postroom.db.pool import Pool
from postroom.delivery import attempt as attempt_module
from postroom.delivery import ledger as ledger_module
from postroom.delivery import store
from postroom.delivery.decision import AttemptResult, complete_columns
from postroom.delivery.ledger import PATIENCE, Ledger
from postroom.delivery.model import Lane
from postroom.delivery.slots import WorkerSlots
from postroom.delivery.worker import WorkerOptions
from postroom.runtime.clock import database_time
from postroom.runtime.loop import FIRST_PAUSE_S, unheard
from postroom.runtime.metrics import REGISTRY

OPTIONS = WorkerOptions(lease=timedelta(hours=1), lanes=(Lane.TRANSACTIONAL,))
PAUSE_S = PATIENCE * FIRST_PAUSE_S
ALL_SENT = "NOT EXISTS (SELECT FROM deliveries WHERE state <> 'sent')"


class Bug:
    """Replaces a function; its first call raises, and the others do what it did."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, *, times: int = 1) -> None:
        self._real: Callable[..., Any] = getattr(owner, name)
        self._left = times
        monkeypatch.setattr(owner, name, self._call)

    def _call(self, *arguments: Any, **named: Any) -> Any:
        if self._left:
            self._left -= 1
            raise RuntimeError("a bug")
        return self._real(*arguments, **named)


class Failures:
    """Records the failures that a worker reports, and skips the pause after each."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.happened = asyncio.Event()

    async def __call__(self, name: str, error: Exception) -> None:
        assert str(error) == "a bug"
        self.names.append(name)
        self.happened.set()
        asyncio.get_running_loop().call_soon(let_pass, PAUSE_S)


@asynccontextmanager
async def running(pool: Pool) -> AsyncIterator[Failures]:
    """A worker with mail to send, while the block runs."""
    failures = Failures()
    worker = a_worker(pool, Recording(), options=OPTIONS, failed=failures)
    task = asyncio.create_task(worker.run())
    try:
        yield failures
    finally:
        worker.stop()
        await asyncio.wait_for(task, 60)


def count_failures(loop: str) -> float:
    return REGISTRY.get_sample_value("postroom_loop_failures_total", {"loop": loop}) or 0


@pytest.mark.parametrize("statement", ["claim_due", "list_claim_recipients", "mark_started", "put_to_sleep"])
async def test_a_bug_in_a_lane_is_retried(pool: Pool, monkeypatch: pytest.MonkeyPatch, statement: str) -> None:
    """The claim is released at once, and the mail is sent by the next one, at its first attempt."""
    Bug(monkeypatch, store, statement)
    before = count_failures("lane-transactional")
    [delivery] = await accepted(pool, a_mail("ada@example.org", "bob@example.org"))
    async with running(pool) as failures:
        await asyncio.wait_for(failures.happened.wait(), 60)
        await until(pool, ALL_SENT)
    assert failures.names == ["lane-transactional"]
    assert count_failures("lane-transactional") == before + 1
    assert [attempt.attempt_no for attempt in await attempts_of(pool, delivery)] == [1]


@pytest.mark.parametrize(
    "owner, name, loop", [(store, "renew_claims", "leases"), (WorkerSlots, "take_silent", "slots")]
)
async def test_a_bug_beside_the_lanes_is_retried(
    pool: Pool, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, loop: str
) -> None:
    """Mail is sent although the renewal of leases or the watch over transports failed once."""
    Bug(monkeypatch, owner, name)
    await accepted(pool)
    async with running(pool) as failures:
        await until(pool, ALL_SENT)
        let_pass(OPTIONS.lease.total_seconds() / 3)  # the leases are renewed for the first time
        await asyncio.wait_for(failures.happened.wait(), 60)
        await accepted(pool)
        await until(pool, ALL_SENT)
    assert failures.names == [loop]


async def test_a_bug_in_the_ledger_loses_no_result(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The result waits for the next try, and is written with its texts."""
    Bug(monkeypatch, store, "complete")
    [delivery] = await accepted(pool)
    async with running(pool) as failures:
        await until(pool, ALL_SENT)
    assert failures.names == ["ledger"]
    assert [attempt.reply_text for attempt in await attempts_of(pool, delivery)] == ["queued as 7"]


async def test_a_result_that_raises_does_not_take_the_others_with_it(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a few tries the ledger finds the result that our code cannot write, and writes the others."""
    ids = await accepted(pool, *(a_mail() for _ in range(8)))
    batch = await claimed(pool)

    def columns(results: list[AttemptResult]) -> dict[str, list[Any]]:
        if ids[3] in {result.outgoing.id for result in results}:
            raise RuntimeError("a bug")
        return complete_columns(results)

    monkeypatch.setattr(ledger_module, "complete_columns", columns)
    failures, steps = Failures(), Steps()
    ledger = Ledger(pool, worker_id=lambda: 1, clock=database_time, signal=steps)
    writing = asyncio.create_task(ledger.loop().run(asyncio.Event(), failures))
    ledger.expect(batch[0].claim_id, len(batch))
    for result in finished(batch):
        ledger.add(result)
    await asyncio.wait_for(ledger.drain(), 60)
    writing.cancel()
    assert failures.names == ["ledger"] * (PATIENCE - 1)
    assert (steps.heard, ledger.held()) == (["completed"], [batch[0].claim_id])
    async with pool.acquire() as connection:
        left = await connection.fetch("SELECT id FROM deliveries WHERE state = 'sending'")
    assert [row["id"] for row in left] == [ids[3]]


async def test_a_bug_around_an_attempt_is_ambiguous(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message may have left; the other mails of the chunk are not affected."""
    first, second = await accepted(pool, a_mail(), a_mail())
    Bug(monkeypatch, attempt_module, "accepted")
    before = count_failures("attempt")
    await asyncio.wait_for(a_worker(pool, Recording(), signal=unheard).run_once(Lane.TRANSACTIONAL), 60)
    assert [attempt.outcome for attempt in await attempts_of(pool, first)] == ["ambiguous"]
    assert [attempt.outcome for attempt in await attempts_of(pool, second)] == ["sent"]
    assert count_failures("attempt") == before + 1
