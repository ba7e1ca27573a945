"""Combine concurrent appends into one commit.

A commit costs a write to disk, which is most of the cost of an append. `CombiningWriter` collects the appends that wait
at the same time and commits them together; each is still checked separately and in order, and rejected or accepted
alone. A single append does not wait for others.

If another transaction holds a lock that one of them needs, they do not wait for it together: after a short timeout each
is committed separately, and later appends are not delayed.
"""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, TypeAlias

import asyncpg
import msgspec

from postroom.db.faults import translated
from postroom.db.pool import Pool
from postroom.events import store
from postroom.events.columns import append_json, appended, appends_json
from postroom.events.lock_wait import LockWait
from postroom.events.model import Append, AppendCondition, Appended, Event, Query
from postroom.events.retry import retried
from postroom.events.typed import as_events
from postroom.runtime.combiner import Combiner

LARGEST = 200  # appends of one commit, which holds the locks of all of them
SIDE_BY_SIDE = 2
"""Concurrent batches: while one is being committed the next one is already sent."""

Answer: TypeAlias = Mapping[str, Any]


class CombiningWriter:
    """Combines appends; one instance per process and room."""

    def __init__(self, pool: Pool, patience: LockWait | None = None) -> None:
        self._pool, self._patience = pool, patience or LockWait(pool)
        self._tries = asyncio.Semaphore(max(1, pool.get_max_size() // 4))  # as in `LockWait`
        self._combiners: list[Combiner[msgspec.Raw, Answer | asyncio.Task[Answer]]]
        self._combiners = [Combiner(self._flush, largest=LARGEST, weigh=len) for _ in range(SIDE_BY_SIDE)]

    async def append(
        self,
        events: Event | object | Sequence[Event | object],
        condition: AppendCondition | None = None,
        *,
        idempotency: Query | None = None,
        occurred_at: datetime | None = None,
    ) -> Appended:
        """Append as `EventStore.append` does: committed on return, with the same errors."""
        append = Append(as_events(events), condition, idempotency, occurred_at)
        combiner = min(self._combiners, key=len)
        answer = await combiner.submit(append_json(append))
        return appended(await answer if isinstance(answer, asyncio.Task) else answer)

    async def _flush(self, appends: Sequence[msgspec.Raw]) -> "Sequence[Answer | asyncio.Task[Answer]]":
        try:
            return await retried(lambda: self._commit(appends, is_patient=False))
        except asyncpg.LockNotAvailableError:
            return [asyncio.create_task(self._alone(append)) for append in appends]

    async def _alone(self, append: msgspec.Raw) -> Answer:
        async def commit(*, is_patient: bool) -> list[Answer]:
            if is_patient:
                return await self._commit([append], is_patient=True)
            async with self._tries:  # a batch that is split must not occupy every connection, even briefly
                return await self._commit([append], is_patient=False)

        return (await retried(lambda: self._patience.run(commit)))[0]

    async def _commit(self, appends: Sequence[msgspec.Raw], *, is_patient: bool) -> list[Answer]:
        # One statement outside a transaction block is its own transaction: it has committed when the answer arrives.
        with translated():
            async with self._pool.acquire() as connection:
                return await store.append_events_each(connection, appends=appends_json(appends), is_patient=is_patient)
