"""Reads from a replica.

Listings, statistics and exports may be read from a streaming replica. Once a second the process notes the position of
the primary's log and the position that the replica has replayed. The replica has every commit that was acknowledged
before the newest noted position it has passed; the time since then is its lag. A replica that does not answer, or whose
lag exceeds POSTROOM_DATABASE_REPLICA_LAG, is not read: the primary is.

The lag needs no clock of the servers, and it grows if replication or replay stops while the replica still answers.
"""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from typing import TypeVar

import asyncpg
import structlog

from postroom.db.connection import reason_of
from postroom.db.errors import DatabaseUnreachable
from postroom.db.faults import DATABASE_ERRORS, is_connection_lost
from postroom.db.pool import Pool, open_pool
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


class Replica:
    """A read-only copy of the database, and how far it is behind."""

    def __init__(
        self, primary: Pool, settings: DatabaseSettings, *, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._primary, self._settings, self._monotonic = primary, settings, monotonic
        self._pool: Pool | None = None
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
        lag_s, limit_s = self.lag_s, self._settings.replica_lag.total_seconds()
        if lag_s is None:
            return "its lag is not known yet"
        return f"it is {lag_s:.1f} s behind, more than {limit_s:g} s" if lag_s > limit_s else None

    async def read(self, read: Callable[[Pool], Awaitable[Value]]) -> Value:
        """Read from the replica; from the primary while the replica is not read, and if it fails."""
        if self._pool is not None and self.problem is None:
            try:
                value = await read(self._pool)
            except Exception as error:
                if not is_replica_fault(error):
                    raise
            else:
                REPLICA_READS.labels("replica").inc()
                return value
        REPLICA_READS.labels("primary").inc()
        return await read(self._primary)

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
        if self._pool is not None:
            self._pool.terminate()
        self._pool = None

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
        settings = self._settings
        if self._pool is None:
            self._pool = await open_pool(
                replica_url(settings), settings.schema, size=settings.pool_size, timeout=settings.database_timeout
            )
        return await _QUERIES["describe_copy"].one(self._pool)

    def _compare(self, source: asyncpg.Record | None, copy: asyncpg.Record) -> None:
        self._fault = None
        if source is not None and (copy["system"], copy["database"]) != (source["system"], source["database"]):
            self._fault = "it is not a replica of the database of POSTROOM_DATABASE_URL"
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
    replica = Replica(primary, settings)
    await replica.check()
    loop = Loop("replica", replica.check, rest=CHECK)
    task = asyncio.create_task(loop.run(asyncio.Event()), name=loop.name)
    try:
        yield replica
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        replica.close()
