"""Two worker hosts, one of them cut off: `./dev chaos two-hosts` in small."""

import asyncio
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest
from tests.support.namespaces import Link, NamespacesDenied, TwoHosts
from tests.support.patience import PATIENCE_S
from tests.support.two_hosts import ROOM, Plan, reachable_room, run, start_worker

from postroom.db.pool import open_pool

IN_A_TRANSACTION = """
import asyncio, sys
from datetime import timedelta
from postroom.db.pool import open_pool

async def main(url, room):
    pool = await open_pool(url, room, size=1, timeout=timedelta(minutes=10))
    async with pool.acquire() as connection, connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock(1)")
        await connection.prepare("SELECT 1")  # the server waits for the next message, in the state `active`
        print("locked", flush=True)
        await asyncio.Event().wait()

asyncio.run(main(*sys.argv[1:]))
"""


async def test_cut_off_host_loses_nothing_and_exceeds_no_quota(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A host loses its links, then the other one only its database: quotas and pace hold, copies are explained."""
    plan = Plan(rounds=2, lease_s=4, mails=120, limit=30, kept=10)
    with _skipped_if_denied(capsys):
        ledger = await run(plan, tmp_path, report=lambda _line: None)
    assert ledger.problems() == []
    assert ledger.used == plan.quota
    assert all(this.takeover_s > 0 for this in ledger.rounds)


async def test_server_ends_the_transaction_of_a_cut_off_host(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A host is cut off in a transaction; the server notices it, and another host gets the lock.

    Only probes of the server can notice it: the session waits between two messages of one statement, where neither
    `statement_timeout` nor `idle_in_transaction_session_timeout` applies.
    """
    with _skipped_if_denied(capsys):
        async with _locked_from(tmp_path) as (network, url):
            await network.cut("a")
            async with asyncio.timeout(PATIENCE_S), await open_pool(url, ROOM, size=1) as pool:
                await pool.execute("SELECT pg_advisory_lock(1)")


async def test_worker_without_a_route_to_the_database_stops_within_its_grace_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Packets to the database are lost without an error; the worker ends by itself, or the watchdog ends it."""
    with _skipped_if_denied(capsys):
        async with TwoHosts() as network, reachable_room(network, tmp_path) as (url, url_there):
            settings = {"POSTROOM_DATABASE_URL": url_there, "POSTROOM_SHUTDOWN_GRACE": "1s"}
            worker = await start_worker(network, "a", settings, tmp_path)
            try:
                async with asyncio.timeout(PATIENCE_S), await open_pool(url, ROOM, size=1) as pool:
                    while not await pool.fetchval("SELECT EXISTS (SELECT FROM workers)"):
                        await pool.execute("SELECT pg_sleep(0.05)")
                await network.cut("a", (Link.DATABASE,))
                worker.terminate()
                code = await asyncio.wait_for(worker.wait(), PATIENCE_S)
            finally:
                if worker.returncode is None:
                    worker.kill()
                    await worker.wait()
    forced = '"shutdown_forced"' in (tmp_path / "work-a.log").read_text()
    assert (code, forced) in ((0, False), (1, False), (1, True))


@asynccontextmanager
async def _locked_from(directory: Path) -> AsyncIterator[tuple[TwoHosts, str]]:
    """Two hosts and the URL of the room, while a process on host a holds a lock."""
    async with TwoHosts() as network, reachable_room(network, directory) as (url, url_there):
        command = (*network.inside("a"), sys.executable, "-c", IN_A_TRANSACTION, url_there, ROOM)
        holder = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        try:
            assert holder.stdout is not None
            assert await asyncio.wait_for(holder.stdout.readline(), PATIENCE_S) == b"locked\n"
            yield network, url
        finally:
            holder.kill()
            await holder.wait()


@contextmanager
def _skipped_if_denied(capsys: pytest.CaptureFixture[str]) -> Iterator[None]:
    """Skip the test, visibly, where network namespaces are not permitted."""
    try:
        yield
    except NamespacesDenied as error:
        with capsys.disabled():
            sys.stderr.write(f"\nNO HOST WAS CUT OFF: {error}\n")
        pytest.skip(f"Network namespaces are not permitted: {error}")
