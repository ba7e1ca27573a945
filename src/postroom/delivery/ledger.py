"""Writes the results of attempts in batches, with their effects on accounts and recipients.

Results are collected while the previous batch is written, and for a short delay, so the batch grows with the load.
The ledger retries after every database error, however long the outage lasts: a known result is never dropped. If the
database rejects the data itself, or our own code fails repeatedly, the ledger halves the batch until it has found the
invalid result, writes that one without its texts, and all others unchanged. A result that cannot be written even then
keeps its claim: its delivery is recovered as ambiguous after this process has ended, not before. A result whose claim
was lost changes nothing, and is counted.
"""

import asyncio
import math
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from time import monotonic
from typing import TypeVar

import structlog
from msgspec.structs import replace

from postroom.db.faults import DATABASE_ERRORS, is_about_data
from postroom.db.pool import Pool, Session
from postroom.delivery import store
from postroom.delivery.decision import (
    NO_TIME,
    NOWHERE,
    AttemptResult,
    complete_columns,
    erased_columns,
    is_uncounted,
    unwritable_columns,
)
from postroom.delivery.model import Channel, ClaimId, DeliveryId, Outgoing, RecipientOutcome
from postroom.feedback import record as feedback
from postroom.feedback.model import RefusedRecipient
from postroom.post.reply import Reply, Stage
from postroom.runtime.clock import Clock
from postroom.runtime.loop import Backoff, Loop, Signal
from postroom.runtime.metrics import ATTEMPTS, CLAIMS_LOST
from postroom.senders.health import AttemptKind, HealthResult, judge
from postroom.senders.model import HealthPolicy, StartSlot
from postroom.senders.record import record_outcomes

_log = structlog.get_logger()

T = TypeVar("T")

LINGER_S = 0.02
"""Longest delay to collect `enough` results: no caller waits for one, and a transaction for few costs nearly as much as
for fifty."""

PATIENCE = 3
"""Failures of our own code in a row before the ledger looks for the result that causes them."""


class Ledger:
    """Accepts results from any task. `loop` writes them; `drain` waits until all are written."""

    def __init__(  # noqa: PLR0913 - the dependencies of a ledger
        self,
        pool: Pool,
        *,
        worker_id: Callable[[], int],
        clock: Clock,
        signal: Signal,
        batch_limit: int = 1000,
        enough: int = 50,
        policy: HealthPolicy | None = None,
    ) -> None:
        self._pool, self._clock, self._signal, self._batch_limit = pool, clock, signal, batch_limit
        self._worker_id = worker_id  # of the claims; a worker is registered after its ledger was created
        self._policy, self._enough = policy or HealthPolicy(), enough
        self.on_closed: Callable[[list[ClaimId]], None] = lambda _closed: None
        self.on_results: Callable[[list[AttemptResult]], None] = lambda _results: None  # of claims that were still ours
        self.on_written: Callable[[list[Outgoing]], None] = lambda _written: None
        self.on_unsent: Callable[[Sequence[int]], None] = lambda _ids: None  # released, or not to be counted
        self._results: list[AttemptResult] = []
        self._open: Counter[ClaimId] = Counter()
        self._arrived, self._enough_arrived = asyncio.Event(), asyncio.Event()
        self._all_written = asyncio.Event()
        self._all_written.set()
        self._give_up_at = math.inf
        self._failures = 0
        self._given_up: Exception | None = None

    def expect(self, claim_id: ClaimId, count: int) -> None:
        """Open a claim of this many deliveries; it is closed when each has its result or was released."""
        self._open[claim_id] += count

    def held(self) -> list[ClaimId]:
        """The open claims: their leases must be renewed, and their mail may still be rendered."""
        return list(self._open)

    def add(self, result: AttemptResult) -> None:
        if not result.is_plain and is_uncounted(result):
            self.on_unsent([result.outgoing.id])
        self._results.append(result)
        if len(self._results) == 1:
            self._all_written.clear()
            self._arrived.set()
        if len(self._results) >= self._enough:
            self._enough_arrived.set()

    async def give_back(self, claim_id: ClaimId, delivery_ids: Sequence[int], *, wait: timedelta = NO_TIME) -> None:
        """Release deliveries that were never started: no attempt is counted, and their lease need not expire."""
        self.on_unsent(delivery_ids)
        await self._insist(
            lambda connection: store.release(
                connection,
                worker_id=self._worker_id(),
                claim_id=claim_id,
                delivery_ids=delivery_ids,
                wait=wait,
                now=self._clock(),
            )
        )
        await self._close({claim_id: len(delivery_ids)})

    async def report_silence(self, silent: list[Outgoing]) -> None:
        """Count servers that have a message and do not answer as errors of their accounts; not retried."""
        reply = Reply(Stage.FINAL, text="the server has the message and does not answer")
        outcomes = [HealthResult(each.slot, reply, None) for each in silent if each.slot is not None]
        try:
            async with self._pool.acquire() as connection, connection.transaction():
                await record_outcomes(connection, outcomes, policy=self._policy, now=self._clock())
        except DATABASE_ERRORS as error:
            _log.warning("silence_unreported", error=type(error).__name__)

    def hurry(self, patience: timedelta) -> None:
        """Stop retrying after this time: without a database a process must still end, and the leases expire."""
        self._give_up_at = monotonic() + patience.total_seconds()

    async def drain(self) -> None:
        """Wait until all results are written; raises the database's error if `hurry` left no time to do so."""
        await self._all_written.wait()
        if self._given_up is not None:
            raise self._given_up

    def loop(self) -> Loop:
        """Write results until cancelled. A bug leaves them in the list for the next try."""
        return Loop("ledger", self._write_some, more=lambda _: True, ends=bool)

    async def _write_some(self) -> bool:
        """Write the next batch; true if the time to do so is over."""
        if not self._results:
            self._all_written.set()
            self._arrived.clear()
            await self._arrived.wait()
        if len(self._results) < self._enough:
            self._enough_arrived.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(LINGER_S):
                    await self._enough_arrived.wait()
        try:
            await self._write(self._results[: self._batch_limit])
        except DATABASE_ERRORS as error:
            if is_about_data(error) or monotonic() <= self._give_up_at:
                raise
            self._given_up = error
            self._all_written.set()
        return self._given_up is not None

    async def _write(self, batch: list[AttemptResult]) -> None:
        newest = self._newest(batch)
        written, rejected = await self._record(list(newest.values()))
        self._failures = 0
        del self._results[: len(batch)]
        over = [result.outgoing for result in batch if result.outgoing.id not in rejected]
        self.on_written(over)
        self._signal("completed")
        valid = [result for delivery_id, result in newest.items() if delivery_id in written]
        attempts = Counter([(r.outgoing.lane, r.transport or "none", r.outcome) for r in valid if r.outcome])
        for labels, count in attempts.items():
            ATTEMPTS.labels(*labels).inc(count)
        self.on_results(valid)
        if len(valid) < len(batch):
            known = {id(result) for result in valid}
            _report_lost([r for r in batch if id(r) not in known and r.outgoing.id not in rejected])
        await self._close(Counter([outgoing.claim_id for outgoing in over]))

    def _newest(self, batch: Sequence[AttemptResult]) -> dict[DeliveryId, AttemptResult]:
        """One result per delivery: a claim that was lost and repeated yields two, and only the last can be valid.

        In the order in which the claims were opened: ids follow the clock of the server, which may be set back.
        """
        by_id = {result.outgoing.id: result for result in batch}
        if len(by_id) == len(batch):
            return by_id
        place = {claim_id: place for place, claim_id in enumerate(self._open)}
        return {r.outgoing.id: r for r in sorted(batch, key=lambda result: place.get(result.outgoing.claim_id, 0))}

    async def _record(
        self, results: list[AttemptResult], *, is_last_try: bool = False
    ) -> tuple[set[DeliveryId], set[DeliveryId]]:
        """Write results; returns the written ids, and those that cannot be written in any form."""
        try:
            written = await self._insist(
                lambda connection: _record_results(
                    connection, results, worker_id=self._worker_id(), policy=self._policy, now=self._clock()
                )
            )
        except Exception as error:
            self._failures += 1
            if not is_about_data(error) and (self._failures < PATIENCE or isinstance(error, DATABASE_ERRORS)):
                raise
            return await self._isolate(results, error, is_last_try=is_last_try)
        return written, set()

    async def _isolate(
        self, results: list[AttemptResult], error: Exception, *, is_last_try: bool
    ) -> tuple[set[DeliveryId], set[DeliveryId]]:
        """Find the result that the database rejects: write the others, and that one without its texts."""
        middle = len(results) // 2
        if middle:
            first, second = await self._record(results[:middle]), await self._record(results[middle:])
            return first[0] | second[0], first[1] | second[1]
        [result] = results
        _log.error(
            "result_rejected",
            delivery_id=result.outgoing.id,
            outcome=result.outcome,
            error=repr(error),
            held=is_last_try,
        )
        if is_last_try:
            return set(), {result.outgoing.id}
        return await self._record([_without_texts(result)], is_last_try=True)

    async def _close(self, counts: dict[ClaimId, int] | Counter[ClaimId]) -> None:
        for claim_id, count in counts.items():
            self._open[claim_id] -= count
        finished = [claim_id for claim_id in counts if self._open[claim_id] <= 0]
        if finished:
            await self._insist(partial(store.close_claims, claim_ids=finished))
            for claim_id in finished:
                del self._open[claim_id]
            self.on_closed(finished)

    async def _insist(self, step: Callable[[Session], Awaitable[T]]) -> T:
        """Run a step; retry after every database error that is not about the data."""
        backoff = Backoff(0.05, 2)
        while True:
            try:
                async with self._pool.acquire() as connection:
                    return await step(connection)
            except DATABASE_ERRORS as error:
                if is_about_data(error) or monotonic() > self._give_up_at:
                    raise
                pause_s = backoff.fail()
                _log.warning("completion_postponed", error=type(error).__name__, retry_in_s=round(pause_s, 2))
                await asyncio.sleep(pause_s)


def _report_lost(results: Sequence[AttemptResult]) -> None:
    """Count results whose claim was taken over by another worker."""
    for result in results:
        CLAIMS_LOST.inc()
        _log.warning("claim_lost", delivery_id=result.outgoing.id, outcome=result.outcome)


async def _record_results(
    connection: Session, results: Sequence[AttemptResult], *, worker_id: int, policy: HealthPolicy, now: datetime | None
) -> set[DeliveryId]:
    """Write results and, in the same transaction, their effects on accounts and recipients.

    Returns the deliveries whose claim was still valid, or whose recipient was erased meanwhile. A result whose claim
    was lost has no effect.
    """
    if all(result.is_plain and result.outgoing.slot is None for result in results):
        # This statement has all effects: four round trips become one.
        written = await store.complete(connection, worker_id=worker_id, now=now, **complete_columns(results))
        return written | await _add_erased(connection, results, written, worker_id=worker_id, now=now)
    unwritable = [result for result in results if result.outcome is None]
    attempted = [result for result in results if result.outcome is not None] if unwritable else results
    async with connection.transaction():
        written, erased = set[DeliveryId](), set[DeliveryId]()
        if attempted:
            written = await store.complete(connection, worker_id=worker_id, now=now, **complete_columns(attempted))
            erased = await _add_erased(connection, attempted, written, worker_id=worker_id, now=now)
        if unwritable:
            columns = unwritable_columns(unwritable)
            written.update(await store.fail_unwritable(connection, worker_id=worker_id, now=now, **columns))
        ours = [result for result in results if result.outgoing.id in written]
        left = [result for result in results if result.outgoing.id in erased]
        await _update_accounts(connection, [*ours, *left], policy=policy, now=now)
        await _record_feedback(connection, ours, now=now)
    return written | erased


async def _add_erased(
    connection: Session,
    results: Sequence[AttemptResult],
    written: Collection[DeliveryId],
    *,
    worker_id: int,
    now: datetime | None,
) -> set[DeliveryId]:
    """Add the attempts of mail whose recipient was erased while it was sent, which has lost its claim."""
    lost = [result for result in results if result.outgoing.id not in written]
    if not lost:
        return set()
    return set(await store.add_erased_attempts(connection, worker_id=worker_id, now=now, **erased_columns(lost)))


async def _update_accounts(
    connection: Session, results: Sequence[AttemptResult], *, policy: HealthPolicy, now: datetime | None
) -> None:
    """Update the health of the accounts, and return unused quota."""
    outcomes = [_outcome(result, slot) for result in results if (slot := result.outgoing.slot) is not None]
    if not outcomes:
        return
    await record_outcomes(connection, outcomes, policy=policy, now=now)
    untried = [o.slot for o in outcomes if (o.reply is None or o.is_forgiven) and o.slot.account_id is not None]
    if untried:
        await store.return_untried(
            connection,
            account_id=[slot.account_id or 0 for slot in untried],
            claim_id=[slot.claim_id for slot in untried],
        )


async def _record_feedback(connection: Session, results: Sequence[AttemptResult], *, now: datetime | None) -> None:
    """Record rejections, which may suppress an address, and acceptances, which may reset its count of soft bounces.

    `store.complete` has recorded the acceptances of plain results.
    """
    mails = [result for result in results if result.outgoing.channel is Channel.EMAIL and not result.is_plain]
    accepted = [(result.outgoing.id, address) for result in mails for address in _delivered(result)]
    refusals = [refusal for result in mails for refusal in _refusals(result)]
    if accepted or refusals:
        await feedback.record_refusals(connection, refusals, accepted=accepted, now=now)


def _without_texts(result: AttemptResult) -> AttemptResult:
    """Return the result without any text that the other side or a transport wrote."""
    reply = None if result.reply is None else Reply(result.reply.stage, result.reply.code)
    recipients = tuple(replace(recipient, enhanced=None, detail=None) for recipient in result.recipients)
    return replace(result, reply=reply, detail=None, transport="unknown", recipients=recipients)


def _delivered(result: AttemptResult) -> list[str]:
    return [each.address for each in result.recipients if each.outcome is RecipientOutcome.DELIVERED]


def _refusals(result: AttemptResult) -> list[RefusedRecipient]:
    whole = None if result.reply is None else result.reply.stage
    named = {answer.address for answer in result.reply.recipients} if result.reply is not None else set()
    return [
        RefusedRecipient(
            delivery_id=result.outgoing.id,
            attempt_no=result.outgoing.attempt_no,
            address=recipient.address,
            code=recipient.code,
            enhanced=recipient.enhanced,
            text=recipient.detail or "",
            stage=Stage.RECIPIENT if recipient.address in named else whole,
        )
        for recipient in result.recipients
        if recipient.outcome is RecipientOutcome.REFUSED
    ]


def _outcome(result: AttemptResult, slot: StartSlot) -> HealthResult:
    tried = result.reply is not None and result.transport not in (None, NOWHERE)
    return HealthResult(
        slot,
        result.reply if tried else None,
        result.outgoing.domain,
        blames_mail=result.blames_mail,
        is_forgiven=result.is_forgiven or judge(result.reply) is AttemptKind.UNREACHED,
    )
