"""Steps of deliveries by minute for the last hour, counted from their log in memory.

The first read counts the newest steps backwards; each later one adds the steps since the last, and continues backwards
until the hour is complete. A read takes at most `CHUNK` steps in each direction, so it stays cheap at any rate of mail:
at 10,000 mails a minute, a read every two seconds adds about 700 steps.
"""

from collections import Counter
from collections.abc import Mapping
from datetime import datetime, timedelta

from postroom.db.queries import Connection
from postroom.events.model import Place
from postroom.stats import store
from postroom.stats.model import StepCounts

CHUNK = 20_000  # steps of one statement: two minutes of mail at 10,000 a minute
KEPT = timedelta(minutes=60)  # the overview shows an hour


class RecentSteps:
    """The counts of one process. Concurrent reads must be serialised by the caller."""

    def __init__(self, *, chunk: int = CHUNK) -> None:
        self._chunk = chunk
        self._forget()

    def _forget(self) -> None:
        self._counts: Counter[tuple[datetime, str]] = Counter()
        self._first: Place | None = None
        self._last: Place | None = None
        self.is_complete = False

    @property
    def counts(self) -> Mapping[tuple[datetime, str], int]:
        """Steps by minute and name."""
        return self._counts

    @property
    def since(self) -> datetime | None:
        """The first counted minute; earlier ones are not counted yet unless the counts are complete."""
        return min((minute for minute, _step in self._counts), default=None)

    async def refresh(self, connection: Connection, *, now: datetime) -> None:
        if self._last is not None:
            await self._forwards(connection, self._last)
        if not self.is_complete:
            await self._backwards(connection, now)
        kept_from = now - KEPT
        self._counts = Counter({key: count for key, count in self._counts.items() if key[0] >= kept_from})

    async def _forwards(self, connection: Connection, last: Place) -> None:
        found = await store.count_steps_after(
            connection, transaction_id=last.transaction_id, position=last.position, bound=self._chunk
        )
        if found is None:
            return
        if found.total >= self._chunk:  # far behind: the newest minutes matter more than those between
            self._forget()
            return
        self._add(found)
        self._last = found.last

    async def _backwards(self, connection: Connection, now: datetime) -> None:
        first = self._first
        found = await store.count_steps_before(
            connection,
            transaction_id=first.transaction_id if first else None,
            position=first.position if first else None,
            bound=self._chunk,
        )
        if found is None:
            self.is_complete = first is not None
            return
        self._add(found)
        self._first, self._last = found.first, self._last or found.last
        oldest = min(minute for minute, _step in found.counts)
        self.is_complete = found.total < self._chunk or oldest < now - KEPT

    def _add(self, found: StepCounts) -> None:
        self._counts.update(found.counts)
