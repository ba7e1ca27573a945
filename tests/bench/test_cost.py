"""The counters of a server and of this process, on a server of the benchmark."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import pytest
from bench.cost import Spent, Usage
from bench.server import Arena, running_server


@pytest.fixture
async def arena() -> AsyncIterator[Arena]:
    async with running_server() as found:
        yield found


def test_a_cost_is_that_of_one_operation() -> None:
    """CPU in microseconds, bytes and statements, divided by the operations; Python's CPU is that of one side."""
    usage = Usage(postgresql=0.5, clients=9.0, workers=0.2, wal_bytes=2_000, statements=10)
    spent = Spent(operations=1_000, seconds=2.0, usage=usage, python=usage.workers)
    assert spent.readings("drain") == {
        "drain": 500.0,
        "drain-postgresql": 500.0,
        "drain-python": 200.0,
        "drain-wal": 2.0,
        "drain-statements": 0.01,
    }


def is_running(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


async def test_the_meter_counts_the_server_and_its_ended_backends(arena: Arena) -> None:
    """CPU of a backend stays counted after its connection closed; WAL only grows."""
    before = await arena.meter.read()
    connection = await asyncpg.connect(arena.admin_url)
    await connection.execute("CREATE TABLE metered AS SELECT n FROM generate_series(1, 300_000) AS n")
    pid = connection.get_server_pid()
    await connection.close()
    while is_running(pid):  # noqa: ASYNC110 - another process
        await asyncio.sleep(0.01)
    used = await arena.meter.read() - before
    assert used.postgresql > 0.02
    assert used.wal_bytes > 1_000


async def ask_seven_times(connection: asyncpg.Connection) -> None:
    """Seven statements: of both protocols, one of several lines, one with a line as the log has, and a transaction."""
    await connection.execute("SELECT 1;\nSELECT\n    2")
    await connection.execute("SELECT '\n2026-01-01 00:00:00.000 UTC [1] LOG:  statement: SELECT 3'")
    async with connection.transaction():
        for number in range(2):
            await connection.fetchval("SELECT\n    $1::int", number)
    with contextlib.suppress(asyncpg.UndefinedTableError):
        await connection.execute("SELECT FROM missing")


async def test_the_meter_counts_the_statements_of_every_connection(arena: Arena) -> None:
    """Each statement counts once, on connections that were open before too; the meter's own do not count."""
    old = await asyncpg.connect(arena.admin_url)
    async with arena.meter.counting_statements():
        new = await asyncpg.connect(arena.admin_url)
        before = await arena.meter.read()
        for connection in (old, new):
            await ask_seven_times(connection)
        assert (await arena.meter.read() - before).statements == 14
    for connection in (old, new):
        await connection.close()


async def test_the_log_keeps_no_statement_after_the_count(arena: Arena) -> None:
    """After the block, also if it failed, the log has its former size and no connection writes statements into it."""
    log = arena.scratch / "data" / "postgres.log"
    connection = await asyncpg.connect(arena.admin_url)
    former = log.stat().st_size

    async def fail() -> None:
        async with arena.meter.counting_statements():
            await ask_seven_times(connection)
            assert log.stat().st_size > former
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()
    await ask_seven_times(connection)
    await connection.close()
    assert b"SELECT" not in log.read_bytes()
    assert (await arena.meter.read()).statements == 0
