"""URLs with several hosts: the first one that accepts writes is used, by connections and by programs."""

import asyncio
import socket
import subprocess
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from tests.conftest import SCHEMA, TestServer
from tests.support.builders import until
from tests.support.embedded import FAST, ask
from tests.support.freezing_proxy import FreezingProxy
from tests.support.patience import PATIENCE_S
from tests.support.ports import free_port

from postroom.cli.database import psql_command, room_url
from postroom.db import connection, primary
from postroom.db.errors import DatabaseUnreachable
from postroom.db.faults import INTERRUPTIONS
from postroom.db.pool import Pool, connect, open_pool, session_options
from postroom.db.room import open_room
from postroom.db.url import Host, for_programs, hosts_of
from postroom.embedded.binaries import find_client
from postroom.embedded.data_directory import DataDirectory, ServerState
from postroom.embedded.server import EmbeddedServer
from postroom.errors import SettingInvalid
from postroom.settings import Settings


@pytest.mark.parametrize(
    "url, hosts",
    [
        ("postgresql:///d", []),
        ("postgresql://h/d", [Host("h", 5432)]),
        ("postgresql://u:p@a:1,b:2/d", [Host("a", 1), Host("b", 2)]),
        ("postgresql://a,b:2/d", [Host("a", 5432), Host("b", 2)]),
        ("postgresql:///d?host=a,b&port=1,2", [Host("a", 1), Host("b", 2)]),
        ("postgresql:///d?host=a,b&port=7", [Host("a", 7), Host("b", 7)]),
        ("postgresql://u@/d?host=/run/pg&port=7", [Host("/run/pg", 7)]),
        ("postgresql://%2Frun%2Fpg/d", [Host("/run/pg", 5432)]),
        ("postgresql://[::1]:7,[fe80::1]/d", [Host("::1", 7), Host("fe80::1", 5432)]),
    ],
)
def test_hosts_are_read_from_both_forms(url: str, hosts: list[Host]) -> None:
    """Hosts may be before the path or among the parameters."""
    assert hosts_of(url) == hosts


def test_local_hosts_are_recognised() -> None:
    """Sockets and loopback are local; a name that looks similar is not."""
    names = ("/run/pg", "localhost", "127.0.0.1", "127.9.9.9", "::1", "localhost.example.org", "10.0.0.1", "db")
    assert [name for name in names if Host(name, 1).is_local] == [
        "/run/pg",
        "localhost",
        "127.0.0.1",
        "127.9.9.9",
        "::1",
    ]


@pytest.mark.parametrize(
    "url, address",
    [
        ("postgresql://u:p@127.0.0.1/d", "postgresql://u@127.0.0.1/d"),
        (
            "postgresql://localhost:1,localhost:2/d",
            "postgresql://localhost:1,localhost:2/d?target_session_attrs=read-write",
        ),
        ("postgresql://db/d?sslmode=require", "postgresql://db/d?sslmode=require"),
        ("postgresql://db/d?sslrootcert=/ca", "postgresql://db/d?sslrootcert=/ca&sslmode=verify-full"),
    ],
)
def test_programs_use_the_same_host_and_tls(url: str, address: str) -> None:
    """Psql and pg_dump would otherwise take any host, without TLS."""
    assert for_programs(url)[0] == address


async def test_wrong_number_of_ports_is_an_invalid_setting() -> None:
    """Two hosts with three ports are rejected."""
    with pytest.raises(SettingInvalid, match="2 hosts and 3 ports"):
        await connect("postgresql:///d?host=a,b&port=1,2,3", SCHEMA)


@pytest.fixture
async def read_only(tmp_path: Path, server: TestServer) -> AsyncIterator[str]:
    """A second real server with the same login, which is read-only."""
    password = urlsplit(server.url).password
    assert password is not None
    home = tmp_path / "standby"
    home.mkdir(mode=0o700)
    DataDirectory(home).write_state(ServerState(0, "", password))
    async with EmbeddedServer(home, FAST) as standby:
        await ask(standby.admin_url, "ALTER DATABASE postroom SET default_transaction_read_only = on")
        yield standby.url


def _together(first: int, second: int, database_url: str, form: str) -> str:
    parts = urlsplit(database_url)
    login = f"{parts.username}:{parts.password}"
    if form == "hosts":
        return f"postgresql://{login}@127.0.0.1:{first},127.0.0.1:{second}{parts.path}"
    return f"postgresql://{login}@{parts.path}?host=127.0.0.1,127.0.0.1&port={first},{second}"


@pytest.mark.parametrize("form", ["hosts", "parameters"])
async def test_host_that_is_down_is_skipped(form: str, database_url: str) -> None:
    """Pool, room and psql use the second host; if all are down, the error names each."""
    port = urlsplit(database_url).port
    assert port is not None
    url = _together(free_port(), port, database_url, form)
    async with open_room(Settings(database_url=url)) as room:
        assert await room.pool.fetchval("SELECT 1") == 1
    command, environment = psql_command(find_client("psql", url), room_url(url, SCHEMA), ["-Atc", "SELECT 2"])
    said = await asyncio.to_thread(subprocess.check_output, command, env=environment, text=True)
    assert said == "2\n"
    with pytest.raises(DatabaseUnreachable, match=r"127\.0\.0\.1:1: .*; 127\.0\.0\.1:2: "):
        await open_pool(_together(1, 2, database_url, form), SCHEMA)


async def test_read_only_host_is_skipped(read_only: str, server: TestServer) -> None:
    """After a failover the old primary may be a standby; as the only host it is rejected."""
    first, second = urlsplit(read_only).port, urlsplit(server.url).port
    assert first is not None
    assert second is not None
    async with await open_pool(_together(first, second, server.url, "hosts"), SCHEMA, size=2) as pool:
        assert await pool.fetchval("SELECT inet_server_port()") == second
    with pytest.raises(DatabaseUnreachable, match="it is read-only"):
        await open_pool(_together(first, free_port(), server.url, "hosts"), SCHEMA)


async def test_a_silent_host_does_not_delay_the_next_one(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A host that accepts a connection and never responds has an hour; the next host is used meanwhile."""
    monkeypatch.setattr(connection, "CONNECT_S", 3600.0)
    port = urlsplit(database_url).port
    assert port is not None
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = _together(silent.getsockname()[1], port, database_url, "hosts")
        async with asyncio.timeout(PATIENCE_S), await open_pool(url, SCHEMA, size=1) as pool:
            assert await pool.fetchval("SELECT inet_server_port()") == port


async def test_statements_on_a_vanished_host_fail_when_another_one_is_the_primary(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A statement without a response has an hour; it fails as soon as the other host accepts connections."""
    monkeypatch.setattr(primary, "PING_S", 0.1)
    async with asyncio.timeout(PATIENCE_S), FreezingProxy(database_url) as old, FreezingProxy(database_url) as new:
        first, second = [urlsplit(proxy.url).port or 0 for proxy in (old, new)]
        url = _together(first, second, database_url, "hosts")
        settings = Settings(database_url=url, database_timeout=timedelta(hours=1))
        async with open_room(settings) as room:
            hanging = asyncio.create_task(room.pool.execute("SELECT pg_sleep(3600)"))
            await until(room.pool, "EXISTS (SELECT FROM pg_stat_activity WHERE query = 'SELECT pg_sleep(3600)')")
            assert new.made == 0
            assert old.vanish() > 1
            with pytest.raises(INTERRUPTIONS):
                await hanging
            assert await room.pool.fetchval("SELECT 1") == 1
            assert new.made > 1


@pytest.mark.parametrize("is_watched", [True, False])
async def test_statements_on_a_vanished_host_fail_when_its_address_has_moved(
    database_url: str, monkeypatch: pytest.MonkeyPatch, *, is_watched: bool
) -> None:
    """One host, silent and then moved: statements and attempts that have an hour do not wait, the listener neither."""
    monkeypatch.setattr(connection, "CONNECT_S", 3600.0)
    for name in ("PING_S", "PING_TIMEOUT_S", "CONNECT_S"):
        monkeypatch.setattr(primary, name, 0.5)
    heard = asyncio.Event()
    async with asyncio.timeout(PATIENCE_S), FreezingProxy(database_url) as proxy:
        settings = Settings(database_url=proxy.url, database_timeout=timedelta(hours=1), pool_size=5)
        async with open_room(settings) as room, room.listener.hearing("moved", lambda _payload: heard.set()):
            hanging = [asyncio.create_task(room.pool.execute("SELECT pg_sleep(3600)")) for _ in range(3)]
            await until(room.pool, f"3 = ({_COUNT} query = 'SELECT pg_sleep(3600)')")
            if is_watched:  # it has asked again, so it is no longer in an attempt to connect
                asked = "query ~ 'AS started_at$' AND query_start > backend_start + '1s'"
                await until(room.pool, f"1 = ({_COUNT} {asked})")
            beside, lost = room.listener.connector.beside(session_options(SCHEMA)), asyncio.Event()
            locks = await beside()
            locks.add_termination_listener(lambda _connection: lost.set())
            await heard.wait()
            heard.clear()
            before, _ = proxy.made, proxy.hold()
            # The first one gets the idle connection, the second one has to connect.
            first, second = [asyncio.create_task(room.pool.fetchval("SELECT 1")) for _ in range(2)]
            await proxy.accepted(before + 2)  # that attempt, and one of the connection that watches
            proxy.move("127.0.0.1", urlsplit(database_url).port or 0)
            failed = await asyncio.gather(*hanging, first, return_exceptions=True)
            assert all(isinstance(error, INTERRUPTIONS) for error in failed)
            assert await second == 1
            await heard.wait()
            await lost.wait()
            assert locks.is_closed()


async def test_a_slow_server_is_not_left(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every answer is late, and comes before that of a new connection: no statement of the slow server is ended."""
    monkeypatch.setattr(primary, "PING_S", 0.01)
    monkeypatch.setattr(primary, "PING_TIMEOUT_S", 0.0)
    async with (
        asyncio.timeout(PATIENCE_S),
        FreezingProxy(database_url) as proxy,
        open_room(Settings(database_url=proxy.url)) as room,
        room.pool.acquire() as held,
    ):
        process = await held.fetchval("SELECT pg_backend_pid()")
        while proxy.made < 10:
            await held.execute("SELECT pg_sleep(0.01)")
        assert await held.fetchval("SELECT pg_backend_pid()") == process


_COUNT = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND"


async def test_a_lost_pool_logs_no_traceback(database_url: str, caplog: pytest.LogCaptureFixture, pool: Pool) -> None:
    """The driver would log one whenever it cannot restore a minimum of connections; callers get the error."""
    async with (
        asyncio.timeout(PATIENCE_S),
        FreezingProxy(database_url) as proxy,
        await open_pool(proxy.url, SCHEMA, size=1) as lost,
    ):
        process = await lost.fetchval("SELECT pg_backend_pid()")
        proxy.vanish()
        await pool.execute("SELECT pg_terminate_backend($1, 10000)", process)
        for _ in range(2):  # the first one may find the frozen connection, the second has to open another
            with pytest.raises(INTERRUPTIONS):
                await lost.fetchval("SELECT 1", timeout=0.1)
    assert caplog.records == []
