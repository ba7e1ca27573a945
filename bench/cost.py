"""The cost of a measurement beside its time: CPU of PostgreSQL and of Python, write-ahead log, transactions.

CPU time hardly moves on a busy machine where rates halve, so changes are judged by these figures.

PostgreSQL's CPU is that of the postmaster and all its children: backends, WAL writer, checkpointer, autovacuum. Live
processes are read in nanoseconds; the postmaster has added up those that ended. The server's binaries have no
pg_stat_statements, so transactions are counted instead of statements: those that wrote, by their ids.
"""

import os
import resource
import time
from collections.abc import Awaitable, Mapping
from dataclasses import astuple, dataclass
from pathlib import Path

import asyncpg

TICKS = os.sysconf("SC_CLK_TCK")
READ_COUNTERS = """
    SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn AS wal_bytes,
        pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS transactions
"""
FIND_POSTMASTER = "SELECT split_part(pg_read_file('postmaster.pid'), chr(10), 1)::int"


@dataclass(frozen=True)
class Usage:
    """Counters that only grow. Seconds of CPU, bytes, transactions."""

    postgresql: float
    clients: float
    workers: float
    wal_bytes: float
    transactions: float

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
            transactions=self.usage.transactions,
        )
        return {row: self.operations / self.seconds, **{name: each / self.operations for name, each in costs.items()}}


def cost_readings(row: str, **costs: float) -> dict[str, float]:
    return {f"{row}-{name}": value for name, value in costs.items()}


class Meter:
    """Reads the counters of one server and of this process."""

    def __init__(self, connection: asyncpg.Connection, postmaster: int) -> None:
        self._connection = connection
        self._postmaster = postmaster

    @classmethod
    async def of(cls, connection: asyncpg.Connection) -> "Meter":
        """A meter of the superuser's server."""
        return cls(connection, await connection.fetchval(FIND_POSTMASTER))

    async def read(self) -> Usage:
        counters: Mapping[str, float] = await self._connection.fetchrow(READ_COUNTERS)
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        return Usage(
            postgresql=cpu_of_server(self._postmaster),
            clients=time.process_time(),
            workers=children.ru_utime + children.ru_stime,
            wal_bytes=float(counters["wal_bytes"]),
            transactions=float(counters["transactions"]),
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
    except FileNotFoundError:
        return 0.0


def cpu_of_tree(pid: int) -> float:
    """Seconds of CPU of a process, its threads and its live descendants; 0 without /proc."""
    try:
        threads = [int(entry.name) for entry in Path(f"/proc/{pid}/task").iterdir()]
        return sum(map(cpu_of, threads)) + sum(cpu_of_tree(child) for child in children_of(pid))
    except FileNotFoundError:
        return 0.0


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text("ascii").split()]


def cpu_of(thread: int) -> float:
    """Seconds that a thread has run; 0 for one that has ended."""
    try:
        return int(Path(f"/proc/{thread}/schedstat").read_text("ascii").split()[0]) / 1e9
    except FileNotFoundError:
        return 0.0


def cpu_of_ended_children(pid: int) -> float:
    """`cutime` and `cstime`, which the kernel counts in ticks of usually 10 ms."""
    fields = Path(f"/proc/{pid}/stat").read_text("ascii", "replace").rpartition(")")[2].split()
    return (int(fields[13]) + int(fields[14])) / TICKS
