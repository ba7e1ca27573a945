"""The reads of the dashboard, and how long they are cached.

Every viewer of the overview sees the same figures: they are read once for all, at most every `FRESH_S` seconds, figures
by the hour at most every `HOURS_FRESH_S`, and the doctor's findings at most every `FINDINGS_FRESH_S`.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Generic, TypeVar

from postroom.dashboard import store
from postroom.dashboard.model import OverviewFigures
from postroom.dashboard.session import DashboardSession
from postroom.db.pool import Pool
from postroom.db.replica import Replica
from postroom.db.room import Room
from postroom.delivery import service as deliveries
from postroom.delivery import store as queue
from postroom.delivery.ways_out.store import measure_oldest
from postroom.http.model import ApiKey, OpenSession, Operator
from postroom.http.sessions import find_method
from postroom.outbox import service as outbox
from postroom.runtime.finding import Finding
from postroom.senders import service as senders
from postroom.stats import service as stats
from postroom.stats.model import Grouping, Selection, StatsRow
from postroom.stats.recent import RecentSteps

COUNTED = 10_000
"""Waiting deliveries are counted up to this many per lane."""

PERIODS = {"day": 24, "week": 168}
"""Periods that are shown by the hour, and their hours."""

FRESH_S = 0.8  # with the time to read and draw, a change is shown within a second
LEAST_REST_S = 0.02  # a read that takes no time must not become a busy loop
HOURS_FRESH_S = 15.0  # a bar of an hour changes slowly
FINDINGS_FRESH_S = 60.0  # the doctor opens connections and reads the disk
REST_FACTOR = 10  # reading takes at most a tenth of a connection's time
SHOWN_LETTERS = 5  # the newest; a page of their own has the rest
SHOWN_WORKERS = 20  # a screen; the page System has more
READ_SENDERS = 200  # they are counted by state in memory

Examine = Callable[[], Awaitable[Sequence[Finding]]]
"""Runs the doctor's checks."""

Value = TypeVar("Value")


async def find_owner(pool: Pool, session: DashboardSession) -> ApiKey | Operator | None:
    """The key or operator of a session; None once it is revoked or disabled, or the session was signed out."""
    owner: ApiKey | Operator | None
    if session.kind == "key":
        owner = await store.find_session_key(pool, key_id=session.owner_id, nonce=session.nonce)
    else:
        owner = await store.find_session_operator(pool, operator_id=session.owner_id, nonce=session.nonce)
    return owner if owner is not None and session.is_of(owner) else None


async def lacks_second_factor(room: Room, owner: ApiKey | Operator, session: DashboardSession) -> bool:
    """True for an operator whose session was opened by a mailed code only, if the settings require more."""
    if room.settings.second_factor != "required" or not isinstance(owner, Operator) or owner.second_factor_since:
        return False
    return await find_method(room.pool, session.nonce) == "code"


async def end_session(pool: Pool, session: DashboardSession) -> bool:
    """Refuse the session from now on, in every process; False if it was ended before."""
    async with pool.acquire() as connection:
        expires_at = datetime.fromtimestamp(session.expires, UTC)
        return await store.end_session(connection, nonce=session.nonce, expires_at=expires_at) > 0


async def end_listed_session(pool: Pool, session: OpenSession) -> bool:
    """Refuse a session of the list from now on; False if it was ended before."""
    async with pool.acquire() as connection:
        return await store.end_session(connection, nonce=session.nonce, expires_at=session.expires_at) > 0


class Cached(Generic[Value]):
    """A value that is read again when it is older than `fresh_s`, once for all concurrent readers.

    A slow read is repeated later: reading takes at most one part in `REST_FACTOR` of the time.
    """

    def __init__(
        self,
        read: Callable[[], Awaitable[Value]],
        *,
        fresh_s: float,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._read, self._fresh_s, self._monotonic = read, fresh_s, monotonic
        self._lock = asyncio.Lock()  # many viewers cause one read
        self._until = 0.0
        self.known: Value | None = None  # the last value, whatever its age

    @property
    def left_s(self) -> float:
        """Seconds until the value is read again."""
        return max(0.0, self._until - self._monotonic())

    async def get(self) -> Value:
        async with self._lock:
            if self.known is None or self._until <= self._monotonic():
                begin = self._monotonic()
                self.known = await self._read()
                end = self._monotonic()
                self._until = end + max(self._fresh_s, REST_FACTOR * (end - begin))
            return self.known


class FigureReader:
    """Reads the overview's figures, once for all concurrent viewers.

    The state of queue, workers, senders and outbox comes from the primary, history from the replica if there is one.
    """

    def __init__(
        self,
        pool: Pool,
        *,
        examine: Examine | None = None,
        examine_live: Examine | None = None,
        replica: Replica | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._pool, self._replica = pool, replica
        self._steps = RecentSteps()
        self._figures = Cached(self._read_now, fresh_s=FRESH_S, monotonic=monotonic)
        self._hours = {
            hours: Cached(partial(self._read_hours, hours), fresh_s=HOURS_FRESH_S, monotonic=monotonic)
            for hours in PERIODS.values()
        }
        # Up to 10,000 events of every publisher that is behind are counted: once for all pages that show it.
        self.outbox = Cached(partial(outbox.list_progress, pool), fresh_s=FRESH_S, monotonic=monotonic)
        self.findings = Cached(examine or _nothing, fresh_s=FINDINGS_FRESH_S, monotonic=monotonic)
        self.live_findings = Cached(examine_live or _nothing, fresh_s=FINDINGS_FRESH_S, monotonic=monotonic)

    async def read(self) -> OverviewFigures:
        return await self._figures.get()

    def left_s(self) -> float:
        """Seconds until the figures are read again.

        Streams wait for it. After an interval of their own, they would show figures that are up to `FRESH_S` old.
        """
        return max(LEAST_REST_S, self._figures.left_s)

    async def read_hours(self, hours: int) -> list[StatsRow]:
        """The figures of each of the last 24 or 168 hours, from the oldest on."""
        return await self._hours[hours].get()

    async def _read_history(self, read: Callable[[Pool], Awaitable[Value]]) -> Value:
        return await (self._replica.read(read) if self._replica else read(self._pool))

    async def _read_hours(self, hours: int) -> list[StatsRow]:
        begin = this_hour(datetime.now(UTC)) - timedelta(hours=hours - 1)
        measure = partial(stats.measure, selection=Selection(begin=begin), groups=[Grouping.HOUR])
        return await self._read_history(measure)

    async def _read_now(self) -> OverviewFigures:
        now = datetime.now(UTC)
        letters, _cursor = await self._read_history(partial(deliveries.list_dead_letters, limit=SHOWN_LETTERS))
        latency = await self._read_history(partial(stats.measure_latency, now=now))
        accounts, _cursor = await senders.list_senders(self._pool, limit=READ_SENDERS)
        async with self._pool.acquire() as connection:
            await self._steps.refresh(connection, now=now)
            return OverviewFigures(
                at=now,
                lanes=await queue.measure_queue(connection, bound=COUNTED),
                oldest=await measure_oldest(connection),
                sending=await store.count_sending(connection),
                latency={each.lane: each for each in latency},
                steps=self._steps.counts,
                steps_since=None if self._steps.is_complete else self._steps.since,
                dead_letters=letters,
                workers=await store.list_workers(connection, page_limit=SHOWN_WORKERS),
                senders=accounts,
                outbox=await self.outbox.get(),
            )


async def _nothing() -> Sequence[Finding]:
    return ()


def this_hour(now: datetime) -> datetime:
    return now.replace(minute=0, second=0, microsecond=0)
