"""Many appends, one commit.

A commit costs a write to disk, and that is most of what an append costs. `CombiningWriter` gathers the appends that
wait at the same moment and commits them together; each is still judged by itself, in order, and refused or accepted
alone. Use it where many tasks of one process append at once; a lone append is as fast without it.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from postroom.db.faults import translated
from postroom.db.pool import Pool
from postroom.events import store
from postroom.events.columns import append_json, appended, appends_json
from postroom.events.model import Append, AppendCondition, Appended, Event, Query
from postroom.events.retry import retried
from postroom.events.typed import as_events
from postroom.runtime.combiner import Combiner

LARGEST = 200


class CombiningWriter:
    """One per process and room."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._combiner: Combiner[msgspec.Raw, Mapping[str, Any]] = Combiner(self._flush, largest=LARGEST, weigh=len)

    async def append(
        self,
        events: Event | object | Sequence[Event | object],
        condition: AppendCondition | None = None,
        *,
        idempotency: Query | None = None,
        occurred_at: datetime | None = None,
    ) -> Appended:
        """As `EventStore.append`: committed on return, and the same errors."""
        append = Append(as_events(events), condition, idempotency, occurred_at)
        return appended(await self._combiner.submit(append_json(append)))

    async def drain(self) -> None:
        """Wait until everything that joined is committed."""
        await self._combiner.drain()

    async def _flush(self, appends: Sequence[msgspec.Raw]) -> list[Mapping[str, Any]]:
        return await retried(lambda: self._commit(appends))

    async def _commit(self, appends: Sequence[msgspec.Raw]) -> list[Mapping[str, Any]]:
        # One statement outside a transaction block is its own transaction: it has committed when the answer is here.
        with translated():
            async with self._pool.acquire() as connection:
                return await store.append_events_each(connection, appends=appends_json(appends))
