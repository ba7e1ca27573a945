"""Connections with timeouts: unresponsive servers, lost listeners, several hosts."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import timedelta

import asyncpg
import pytest
from tests.conftest import SCHEMA
from tests.support.freezing_proxy import FreezingProxy
from tests.support.patience import PATIENCE_S

from postroom.db import connection, listen
from postroom.db.connection import Connector
from postroom.db.faults import INTERRUPTIONS
from postroom.db.listen import Listener
from postroom.db.pool import Pool, Session, connect, open_pool

SHORT = timedelta(seconds=1)


@pytest.fixture
async def proxy(database_url: str) -> AsyncIterator[FreezingProxy]:
    async with FreezingProxy(database_url) as made:
        yield made


async def test_statements_continue_after_connections_froze(
    proxy: FreezingProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A frozen connection times out, also inside a transaction, and the pool opens another."""
    monkeypatch.setattr(connection, "END_S", 0.5)
    async with asyncio.timeout(PATIENCE_S):
        pool = await open_pool(proxy.url, SCHEMA, size=1, timeout=SHORT)
        assert await pool.fetchval("SELECT 1") == 1
        assert proxy.freeze() == 1
        with pytest.raises(INTERRUPTIONS):
            async with pool.acquire() as held, held.transaction():
                await held.execute("SELECT 2")
        assert await pool.fetchval("SELECT 3") == 3
        proxy.freeze()
        await pool.close()


async def test_one_timeout_replaces_every_frozen_connection(
    proxy: FreezingProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A vanished host costs one statement timeout, not one for each connection that the pool had open."""
    monkeypatch.setattr(connection, "END_S", 0.5)
    async with asyncio.timeout(PATIENCE_S):
        pool = await open_pool(proxy.url, SCHEMA, size=5, timeout=SHORT)
        async with AsyncExitStack() as held:
            for _ in range(5):
                await (await held.enter_async_context(pool.acquire())).execute("SELECT 1")
        assert proxy.freeze() == 5
        with pytest.raises(INTERRUPTIONS):
            await pool.fetchval("SELECT 2")
        async with AsyncExitStack() as held:
            for number in range(5):
                session = await held.enter_async_context(pool.acquire())
                assert await session.fetchval("SELECT $1::integer", number) == number
        await pool.close()


async def test_acquiring_a_connection_times_out(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pool whose connections are all in use raises an error."""
    monkeypatch.setattr("postroom.db.pool.CONNECT_S", 0.1)
    async with asyncio.timeout(PATIENCE_S):
        pool = await open_pool(database_url, SCHEMA, size=1, timeout=SHORT)
        async with pool.acquire():
            with pytest.raises(TimeoutError):
                await pool.fetchval("SELECT 1")
        await pool.close()


async def test_the_kernel_probes_the_server(database_url: str) -> None:
    """Keepalive and TCP_USER_TIMEOUT are set on the socket of every connection."""
    session = await connect(database_url, SCHEMA)
    try:
        made = session._transport.get_extra_info("socket")
        assert made.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        assert made.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 15
        assert made.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 30_000
    finally:
        await session.close()


async def test_the_server_probes_the_client(database_url: str) -> None:
    """The server ends the session of a vanished host after 30 s, not after the two hours of its defaults."""
    session = await connect(database_url, SCHEMA)
    try:
        found = await session.fetch("SELECT name, setting FROM pg_settings WHERE name LIKE 'tcp_%'")
    finally:
        await session.close()
    assert {row["name"]: int(row["setting"]) for row in found} == {
        "tcp_keepalives_idle": 15,
        "tcp_keepalives_interval": 5,
        "tcp_keepalives_count": 3,
        "tcp_user_timeout": 30_000,
    }


async def test_locks_of_a_vanished_host_are_released(proxy: FreezingProxy, pool: Pool) -> None:
    """A host is cut off in a transaction; the server ends the transaction, and another host gets the lock."""
    async with asyncio.timeout(PATIENCE_S):
        cut_off = await open_pool(proxy.url, SCHEMA, size=1, timeout=SHORT)
        held = await cut_off.acquire()
        await held.execute("BEGIN")
        await held.execute("SELECT pg_advisory_xact_lock(1)")
        proxy.freeze()
        assert await pool.fetchval("SELECT pg_advisory_lock(1) IS NOT NULL")
        cut_off.terminate()


async def test_a_process_that_stood_still_in_a_transaction_retries(database_url: str) -> None:
    """The error of a transaction that the server has ended is an interruption, which loops retry."""
    pool = await open_pool(database_url, SCHEMA, size=1, timeout=SHORT)
    async with asyncio.timeout(PATIENCE_S), pool.acquire() as held:
        ended = asyncio.Event()
        held.add_termination_listener(lambda _: ended.set())
        await held.execute("BEGIN")
        await ended.wait()
        with pytest.raises(INTERRUPTIONS):
            await held.execute("SELECT 1")
    assert await pool.fetchval("SELECT 2") == 2
    await pool.close()


class Heard:
    """Collects notifications and lets a test wait for one."""

    def __init__(self) -> None:
        self.payloads: asyncio.Queue[str] = asyncio.Queue()

    def __call__(self, payload: str) -> None:
        self.payloads.put_nowait(payload)

    async def expect(self, payload: str) -> None:
        while await self.payloads.get() != payload:
            pass


async def test_listener_of_a_frozen_server_reconnects(
    proxy: FreezingProxy, pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A ping times out; the next connection gets the next notification."""
    monkeypatch.setattr(listen, "PING_S", 0.1)
    monkeypatch.setattr(listen, "PING_TIMEOUT_S", 2.0)
    heard = Heard()
    async with asyncio.timeout(PATIENCE_S), Listener(proxy.url, SCHEMA) as it, it.hearing("frozen", heard):
        await heard.expect("")
        proxy.freeze()
        await heard.expect("")
        await pool.execute("NOTIFY frozen, 'after'")
        await heard.expect("after")


async def test_an_error_of_the_driver_does_not_end_a_listener(
    database_url: str, pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver raises InternalClientError when a server ends between two messages; other errors too."""
    errors: list[Exception] = [asyncpg.InternalClientError("cannot switch to state 12"), RuntimeError("a bug")]
    connect_once = Connector.__call__

    async def failing(connector: Connector) -> Session:
        if errors:
            raise errors.pop()
        return await connect_once(connector)

    monkeypatch.setattr(Connector, "__call__", failing)
    heard = Heard()
    async with asyncio.timeout(PATIENCE_S), Listener(database_url, SCHEMA) as it, it.hearing("driver", heard):
        await heard.expect("")
        await pool.execute("NOTIFY driver, 'heard'")
        await heard.expect("heard")
    assert errors == []


async def test_one_connection_listens_for_many_owners(database_url: str, pool: Pool) -> None:
    """Each owner gets its channel, also one that joins later; a channel without an owner is not listened to."""
    first, second = Heard(), Heard()
    async with asyncio.timeout(PATIENCE_S), Listener(database_url, SCHEMA) as it, it.hearing("one", first):
        await first.expect("")
        async with it.hearing("two", second):
            await second.expect("")
            await pool.execute("NOTIFY one, 'for the first'")
            await pool.execute("NOTIFY two, 'for the second'")
            await first.expect("for the first")
            await second.expect("for the second")
        await it.listening.wait()
        await pool.execute("NOTIFY two, 'ignored'")
        await pool.execute("NOTIFY one, 'again'")
        await first.expect("again")
        assert second.payloads.empty()
        sessions = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
        assert await pool.fetchval(f"{sessions} AND query ~ '^(UN)?LISTEN'") == 1
