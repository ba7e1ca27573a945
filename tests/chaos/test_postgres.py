"""Crashes of PostgreSQL under load, as `./dev chaos postgres` makes them many times, and the proxy that makes them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import asyncpg
import pytest
from tests.support.crashing_proxy import UNFLUSHED, Crash, CrashingProxy, Moment, Victim
from tests.support.patience import PATIENCE_S
from tests.support.postgres import run

import postroom
from postroom.db.faults import DATABASE_ERRORS
from postroom.db.migrate import migrate
from postroom.delivery import store
from postroom.delivery.model import Lane, Outgoing
from postroom.embedded.data_directory import DataDirectory
from postroom.embedded.server import EmbeddedServer, ServerOptions

ROOM = "postroom"
CRASHES = [
    Crash("claim_due", Moment.ANSWERED, Victim.BACKEND),
    Crash("mark_started", Moment.COMMITTED, Victim.BACKEND, is_flushed=True),
    Crash("feed_campaign", Moment.RUNNING, Victim.POSTMASTER),
    Crash("complete", Moment.COMMITTED, Victim.BACKEND),
    Crash("release", Moment.ANSWERED, Victim.BACKEND),
    Crash("recover_claims", Moment.BEFORE, Victim.BACKEND),
]


async def test_crashes_of_postgres_lose_nothing_and_hide_no_copy(server_directory: Path) -> None:
    """PostgreSQL crashes at statements of workers under load: all mail is sent or held, and copies are ambiguous."""
    directory = server_directory / "crashes"
    directory.mkdir()
    mail = await run(CRASHES, directory, report=lambda _line: None)
    assert mail.problems() == []
    assert len(mail.acknowledged) > len(CRASHES)
    assert mail.copies


@pytest.mark.parametrize("is_flushed, claims", [(True, 1), (False, 0)])
async def test_a_crash_after_the_answer_loses_a_claim_that_was_not_flushed(
    server_directory: Path, *, is_flushed: bool, claims: int
) -> None:
    """The commit of a claim does not wait for the disk: the worker has it, and the recovered server may not."""
    async with _proxied(server_directory / f"claim-{claims}") as (server, proxy):
        crashed = proxy.crash_at(Crash("claim_due", Moment.ANSWERED, Victim.BACKEND, is_flushed=is_flushed))
        connection = await asyncpg.connect(proxy.url, server_settings={"search_path": ROOM})
        assert len(await _claim(connection)) == 1
        await asyncio.wait_for(crashed.wait(), PATIENCE_S)
        assert await _ask(server, "SELECT count(*) FROM claims") == claims


@pytest.mark.parametrize("moment, claims", [(Moment.BEFORE, 0), (Moment.COMMITTED, 1)])
async def test_a_crash_before_the_answer_takes_the_answer(server_directory: Path, moment: Moment, claims: int) -> None:
    """The client gets an error in both cases; only a statement that ran has an effect."""
    async with _proxied(server_directory / f"answer-{claims}") as (server, proxy):
        crashed = proxy.crash_at(Crash("claim_due", moment, Victim.BACKEND, is_flushed=True))
        connection = await asyncpg.connect(proxy.url, server_settings={"search_path": ROOM})
        with pytest.raises(DATABASE_ERRORS):
            await _claim(connection)
        await asyncio.wait_for(crashed.wait(), PATIENCE_S)
        assert await _ask(server, "SELECT count(*) FROM claims") == claims


@asynccontextmanager
async def _proxied(directory: Path) -> AsyncIterator[tuple[EmbeddedServer, CrashingProxy]]:
    """A server with a room and a waiting mail, and a proxy before it."""
    async with (
        EmbeddedServer(directory, ServerOptions(fsync=False, extra=UNFLUSHED)) as server,
        CrashingProxy(server, DataDirectory(directory), "postroom.delivery") as proxy,
    ):
        await migrate(server.url, ROOM)
        connection = await asyncpg.connect(server.url)
        await postroom.send(connection, to="ada@example.org", subject="Hello", text="Hello, Ada.")
        await connection.close()
        yield server, proxy


async def _claim(connection: asyncpg.Connection) -> list[Outgoing]:
    return await store.claim_due(
        connection, lane=Lane.TRANSACTIONAL, batch_limit=10, worker_id=1, lease=timedelta(minutes=1), now=None
    )


async def _ask(server: EmbeddedServer, question: str) -> object:
    """Ask the server once it has recovered."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                connection = await asyncpg.connect(server.find_url(), server_settings={"search_path": ROOM})
            except DATABASE_ERRORS:
                continue
            try:
                return await connection.fetchval(question)
            finally:
                await connection.close()
