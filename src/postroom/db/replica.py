"""Reads from a replica.

Listings, statistics and exports may be read from a streaming replica. Once a second the process notes the position of
the primary's log and the position that the replica has replayed. The replica has every commit that was acknowledged
before the newest noted position it has passed; the time since then is its lag. A replica that does not answer, or whose
lag exceeds POSTROOM_DATABASE_REPLICA_LAG, is not read: the primary is.

The lag needs no clock of the servers, and it grows if replication or replay stops while the replica still answers.

A process with many rooms follows the replica of a server once, for all rooms of that server.
"""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from typing import TypeVar

import asyncpg
import structlog

from postroom.db.connection import reason_of
from postroom.db.errors import DatabaseUnreachable
from postroom.db.faults import DATABASE_ERRORS, is_connection_lost
from postroom.db.pool import Pool, Session, open_pool
from postroom.db.queries import load
from postroom.db.settings import DatabaseSettings
from postroom.db.url import parameters_of, with_parameter
from postroom.runtime.loop import Loop
from postroom.runtime.metrics import REPLICA_READS

CHECK = timedelta(seconds=1)  # well below the shortest limit of the lag
CHECK_TIMEOUT_S = 3.0  # then the replica counts as lost, and its statements are ended
MARKS = 600  # ten minutes: a replica that is further behind has an unknown lag

_QUERIES = load("postroom.db")
_log = structlog.get_logger()

Value = TypeVar("Value")


Connections = Pool | Session
OpenCopy = Callable[[], Awaitable[Pool]]
PoolOf = Callable[[Pool], Pool]
"""The part of a pool that a room uses."""


def itself(pool: Pool) -> Pool:
    return pool


class ReplicaFollower:
    """Measures how far a read-only copy of the database is behind.

    `checks` is the part of the copy's pool that the measurement uses.
    """

    def __init__(
        self,
        primary: Connections,
        limit: timedelta,
        open_copy: OpenCopy,
        *,
        checks: PoolOf = itself,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._primary, self._limit_s, self._monotonic = primary, limit.total_seconds(), monotonic
        self._open_copy, self._checks = open_copy, checks
        self.pool: Pool | None = None
        self._marks: deque[tuple[float, int]] = deque(maxlen=MARKS)  # times, and the primary's position then
        self._current_at: float | None = None  # it has every commit before this time
        self._logged: str | None = None
        self._fault: str | None = "it has not been checked yet"

    @property
    def lag_s(self) -> float | None:
        """Seconds since the newest state that the replica is known to have; None if it is unknown."""
        return None if self._current_at is None else self._monotonic() - self._current_at

    @property
    def is_faulty(self) -> bool:
        """True if it does not answer, or is a copy of another database."""
        return self._fault is not None

    @property
    def problem(self) -> str | None:
        """Why it is not read at the moment; None if it is."""
        if self._fault is not None:
            return self._fault
        lag_s, limit_s = self.lag_s, self._limit_s
        if lag_s is None:
            return "its lag is not known yet"
        return f"it is {lag_s:.1f} s behind, more than {limit_s:g} s" if lag_s > limit_s else None

    async def check(self) -> None:
        """Measure the lag; connect if the connection is lost."""
        source = await self._mark()
        try:
            async with asyncio.timeout(CHECK_TIMEOUT_S):
                copy = await self._describe()
        except (DatabaseUnreachable, *DATABASE_ERRORS) as error:
            self._lose(error.message if isinstance(error, DatabaseUnreachable) else reason_of(error))
        else:
            self._compare(source, copy)
        self._log_change()

    def close(self) -> None:
        if self.pool is not None:
            self.pool.terminate()
        self.pool = None

    async def _mark(self) -> asyncpg.Record | None:
        """Note the primary's position; without an answer of the primary the lag grows."""
        at = self._monotonic()
        try:
            async with asyncio.timeout(CHECK_TIMEOUT_S):
                row = await _QUERIES["describe_source"].one(self._primary)
        except DATABASE_ERRORS:
            return None
        self._marks.append((at, row["position"]))
        return row

    async def _describe(self) -> asyncpg.Record:
        if self.pool is None:
            self.pool = await self._open_copy()
        return await _QUERIES["describe_copy"].one(self._checks(self.pool))

    def _compare(self, source: asyncpg.Record | None, copy: asyncpg.Record) -> None:
        self._fault = None
        if source is not None and (copy["system"], copy["database"]) != (source["system"], source["database"]):
            self._fault = "it is not a replica of this database"
        while self._marks and self._marks[0][1] <= copy["position"]:
            self._current_at = self._marks.popleft()[0]

    def _lose(self, reason: str) -> None:
        """End its statements, so that their callers read the primary."""
        self.close()
        self._fault = reason

    def _log_change(self) -> None:
        problem = None if self.problem is None else (self._fault or "lag")
        if problem == self._logged:
            return
        self._logged = problem
        if problem is None:
            _log.info("replica_read")
        else:
            _log.warning("replica_not_read", reason=self.problem)


class Replica:
    """The copy of the database as one room reads it."""

    def __init__(self, follower: ReplicaFollower, primary: Pool, pool_of: PoolOf = itself) -> None:
        self._follower, self._primary, self._pool_of = follower, primary, pool_of

    @property
    def lag_s(self) -> float | None:
        return self._follower.lag_s

    @property
    def problem(self) -> str | None:
        return self._follower.problem

    async def read(self, read: Callable[[Pool], Awaitable[Value]]) -> Value:
        """Read from the replica; from the primary while the replica is not read, and if it fails."""
        if self._follower.pool is not None and self.problem is None:
            try:
                value = await read(self._pool_of(self._follower.pool))
            except Exception as error:
                if not is_replica_fault(error):
                    raise
            else:
                REPLICA_READS.labels("replica").inc()
                return value
        REPLICA_READS.labels("primary").inc()
        return await read(self._primary)


def follower_of(
    primary: Connections, settings: DatabaseSettings, *, monotonic: Callable[[], float] = time.monotonic
) -> ReplicaFollower:
    """Follows the replica of one room's settings."""
    open_copy = partial(
        open_pool,
        replica_url(settings),
        settings.schema,
        size=settings.pool_size,
        timeout=settings.database_timeout,
    )
    return ReplicaFollower(primary, settings.replica_lag, open_copy, monotonic=monotonic)


def replica_url(settings: DatabaseSettings) -> str:
    """The URL with which a connection to a server that is not a replica fails, unless the URL names another choice."""
    url, name = settings.replica_url or "", "target_session_attrs"
    return url if name in parameters_of(url) else with_parameter(url, name, "standby")


def is_replica_fault(error: BaseException) -> bool:
    """True if the primary may answer what the replica did not: it was lost, or replay cancelled the statement."""
    refused = (asyncpg.SerializationError, asyncpg.ReadOnlySQLTransactionError, asyncpg.FeatureNotSupportedError)
    return is_connection_lost(error) or isinstance(error, (DatabaseUnreachable, *refused))


@asynccontextmanager
async def replica_followed(primary: Pool, settings: DatabaseSettings) -> AsyncIterator[Replica | None]:
    """The replica of the settings, checked during the block; None without one."""
    if settings.replica_url is None:
        yield None
        return
    follower = follower_of(primary, settings)
    async with following(follower):
        yield Replica(follower, primary)


@asynccontextmanager
async def following(follower: ReplicaFollower) -> AsyncIterator[None]:
    """Check the replica during the block."""
    await follower.check()
    try:
        async with Loop("replica", follower.check, rest=CHECK).beside():
            yield
    finally:
        follower.close()
