"""The reads of the dashboard, and how long they are cached.

Every viewer of the overview sees the same figures: they are read once for all, at most every `FRESH_S` seconds, and the
count of a whole day at most every `DAY_FRESH_S`.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta

from postroom.dashboard import store
from postroom.dashboard.model import EndedCount, OverviewFigures
from postroom.dashboard.session import DashboardSession
from postroom.db.pool import Pool
from postroom.delivery import service as deliveries
from postroom.delivery import store as queue
from postroom.http.model import ApiKey

COUNTED = 10_000
"""Waiting deliveries are counted up to this many per lane."""

DAY_COUNTED = 200_000
"""Limit of steps that are read to count the deliveries that ended in a day; the newest are read."""

HOURS = 24
FRESH_S = 1.5
DAY_FRESH_S = 15.0
SHOWN_LETTERS = 5
SHOWN_WORKERS = 20


async def find_key(pool: Pool, session: DashboardSession) -> ApiKey | None:
    """The key behind a session; None once it is revoked, or the session was signed out."""
    key = await store.find_session_key(pool, key_id=session.key_id, nonce=session.nonce)
    return key if key is not None and session.is_of(key) else None


async def end_session(pool: Pool, session: DashboardSession) -> None:
    """Refuse the session from now on, in every process."""
    async with pool.acquire() as connection:
        expires_at = datetime.fromtimestamp(session.expires, UTC)
        await store.end_session(connection, nonce=session.nonce, expires_at=expires_at)


def first_hour(now: datetime) -> datetime:
    """Where the last day begins: this hour and the 23 before it."""
    return now.replace(minute=0, second=0, microsecond=0) - timedelta(hours=HOURS - 1)


class FigureReader:
    """Reads the overview's figures, once for all concurrent viewers."""

    def __init__(self, pool: Pool, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._pool, self._monotonic = pool, monotonic
        self._lock = asyncio.Lock()
        self._figures: tuple[float, OverviewFigures] | None = None
        self._day: tuple[float, Sequence[EndedCount]] | None = None

    async def read(self) -> OverviewFigures:
        async with self._lock:
            if self._figures is None or self._figures[0] <= self._monotonic():
                figures = await self._read_now()
                self._figures = (self._monotonic() + FRESH_S, figures)
            return self._figures[1]

    async def _read_now(self) -> OverviewFigures:
        now = datetime.now(UTC)
        letters, _cursor = await deliveries.list_dead_letters(self._pool, limit=SHOWN_LETTERS)
        async with self._pool.acquire() as connection:
            if self._day is None or self._day[0] <= self._monotonic():
                ended = await store.count_ended(connection, since=first_hour(now), bound=DAY_COUNTED)
                self._day = (self._monotonic() + DAY_FRESH_S, ended)
            return OverviewFigures(
                at=now,
                lanes=await queue.measure_queue(connection, bound=COUNTED),
                sending=await store.count_sending(connection, bound=COUNTED),
                ended=self._day[1],
                dead_letters=letters,
                workers=await store.list_workers(connection, page_limit=SHOWN_WORKERS),
            )
