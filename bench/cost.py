"""The cost of a measurement beside its time: CPU of PostgreSQL and of Python, write-ahead log, statements.

CPU time hardly moves on a busy machine where rates halve, so changes are judged by these figures.

PostgreSQL's CPU is that of the postmaster and all its children: backends, WAL writer, checkpointer, autovacuum. Live
processes are read in nanoseconds; the postmaster has added up those that ended. The server's binaries have no
pg_stat_statements, so statements are counted in its log. Writing the log costs time: the harness counts in a round of
its own.
"""

import asyncio
import contextlib
import os
import re
import resource
import time
from collections.abc import AsyncIterator, Awaitable
from dataclasses import astuple, dataclass
from pathlib import Path

import asyncpg

TICKS = os.sysconf("SC_CLK_TCK")
READ_WAL = "SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn"
LOG_STATEMENTS = "ALTER SYSTEM SET log_statement = 'all'"
STOP_LOGGING = "ALTER SYSTEM RESET log_statement"
RELOAD = "SELECT pg_conf_load_time() FROM pg_reload_conf()"
READ_LOADED = "SELECT pg_conf_load_time()"
RELOAD_POLL_S = 0.01
STATEMENT = re.compile(rb"^\d{4}-.*? \[\d+\] LOG:  (?:statement: |execute )", re.MULTILINE)
"""The first line of a logged statement, after the prefix '%m [%p] '. Its other lines start with a tab."""
FIND_POSTMASTER = "SELECT split_part(pg_read_file('postmaster.pid'), chr(10), 1)::int"
ENDED = (FileNotFoundError, ProcessLookupError)
"""A process that has ended: its file is gone, or was opened and can no longer be read."""


@dataclass(frozen=True)
class Usage:
    """Counters that only grow. Seconds of CPU, bytes, and statements while `Meter.counting_statements`."""

    postgresql: float
    clients: float
    workers: float
    wal_bytes: float
    statements: float

    def __sub__(self, other: "Usage") -> "Usage":
        return Usage(*(ours - theirs for ours, theirs in zip(astuple(self), astuple(other), strict=True)))


@dataclass(frozen=True)
class Spent:
    """The time and the cost of a number of operations."""

    operations: int
    seconds: float
    usage: Usage
    python: float
    """Seconds of CPU: of this process for its clients, of the processes it started for their workers."""

    def readings(self, row: str) -> dict[str, float]:
        """The rate and the cost of one operation, under the names `rows.by_rate` gives them."""
        costs = cost_readings(
            row,
            postgresql=self.usage.postgresql * 1e6,
            python=self.python * 1e6,
            wal=self.usage.wal_bytes,
            statements=self.usage.statements,
        )
        return {row: self.operations / self.seconds, **{name: each / self.operations for name, each in costs.items()}}


def cost_readings(row: str, **costs: float) -> dict[str, float]:
    return {f"{row}-{name}": value for name, value in costs.items()}


class Meter:
    """Reads the counters of one server and of this process."""

    def __init__(self, connection: asyncpg.Connection, postmaster: int, log: Path) -> None:
        self._connection = connection
        self._postmaster = postmaster
        self._log = log
        self._counted_from: int | None = None

    @classmethod
    async def of(cls, connection: asyncpg.Connection, log: Path) -> "Meter":
        """A meter of the superuser's server, which writes this log. The connection's own statements are not counted."""
        await connection.execute("SET log_statement = 'none'")
        return cls(connection, await connection.fetchval(FIND_POSTMASTER), log)

    @contextlib.asynccontextmanager
    async def counting_statements(self) -> AsyncIterator[None]:
        """The server logs all statements, of connections that exist too, until the block ends; `read` counts them."""
        self._counted_from = self._log.stat().st_size
        try:
            await self._configure(LOG_STATEMENTS)
            yield
        finally:
            await self._configure(STOP_LOGGING)
            os.truncate(self._log, self._counted_from)  # the server appends to it
            self._counted_from = None

    async def _configure(self, command: str) -> None:
        """Each session reads the setting before its next statement. This one is the oldest, to be notified last."""
        await self._connection.execute(command)
        before = await self._connection.fetchval(RELOAD)
        while await self._connection.fetchval(READ_LOADED) == before:  # noqa: ASYNC110 - another process
            await asyncio.sleep(RELOAD_POLL_S)

    def _count_statements(self) -> int:
        if self._counted_from is None:
            return 0
        with self._log.open("rb") as log:
            log.seek(self._counted_from)
            return len(STATEMENT.findall(log.read()))

    async def read(self) -> Usage:
        wal_bytes = float(await self._connection.fetchval(READ_WAL))
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        return Usage(
            postgresql=cpu_of_server(self._postmaster),
            clients=time.process_time(),
            workers=children.ru_utime + children.ru_stime,
            wal_bytes=wal_bytes,
            statements=self._count_statements(),
        )

    async def spend(self, operations: int, work: Awaitable[object]) -> Spent:
        """Await the work of this process's clients."""
        before, began = await self.read(), time.perf_counter()
        await work
        seconds = time.perf_counter() - began
        usage = await self.read() - before
        return Spent(operations, seconds, usage, usage.clients)


def cpu_of_server(postmaster: int) -> float:
    """Seconds of CPU of the postmaster, its live children and those that ended; 0 without /proc."""
    try:
        children = children_of(postmaster)
        return cpu_of(postmaster) + sum(cpu_of(child) for child in children) + cpu_of_ended_children(postmaster)
    except ENDED:
        return 0.0


def cpu_of_tree(pid: int) -> float:
    """Seconds of CPU of a process, its threads and its live descendants; 0 without /proc."""
    try:
        threads = [int(entry.name) for entry in Path(f"/proc/{pid}/task").iterdir()]
        return sum(map(cpu_of, threads)) + sum(cpu_of_tree(child) for child in children_of(pid))
    except ENDED:
        return 0.0


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text("ascii").split()]


def cpu_of(thread: int) -> float:
    """Seconds that a thread has run; 0 for one that has ended."""
    try:
        return int(Path(f"/proc/{thread}/schedstat").read_text("ascii").split()[0]) / 1e9
    except ENDED:
        return 0.0


def cpu_of_ended_children(pid: int) -> float:
    """`cutime` and `cstime`, which the kernel counts in ticks of usually 10 ms."""
    fields = Path(f"/proc/{pid}/stat").read_text("ascii", "replace").rpartition(")")[2].split()
    return (int(fields[13]) + int(fields[14])) / TICKS
