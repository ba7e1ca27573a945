"""The embedded server: shared, durable, robust against kills."""

import asyncio
import gc
import os
import signal
import socket
import sys
import threading
import warnings
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import asyncpg
import pytest
from tests.support.embedded import FAST, USER, ask, command_line, mode, postmaster

from postroom.embedded import data_directory
from postroom.embedded import server as embedded
from postroom.embedded.binaries import Binaries, find_binaries, programs_for
from postroom.embedded.data_directory import DataDirectory
from postroom.embedded.errors import EmbeddedServerError
from postroom.embedded.server import EmbeddedServer, ServerOptions, running_url

StartUser = Callable[..., Awaitable[Process]]


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """A data directory that does not exist."""
    return tmp_path / "data"


@pytest.fixture(scope="module")
def used_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory with a cluster, shared because creating one takes most of a test's time.

    Every test leaves its server stopped; the first one creates the cluster.
    """
    return tmp_path_factory.mktemp("used") / "data"


@pytest.fixture
async def start_user() -> AsyncIterator[StartUser]:
    """Starts client processes, and ends them after the test."""
    started: list[Process] = []

    async def start(directory: Path, **environment: str) -> Process:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", USER, str(directory)),
            stdin=PIPE,
            stdout=PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environment},
            start_new_session=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.returncode is None:
            process.kill()
        await process.communicate()


def with_initdb(directory: Path, script: str) -> Path:
    """PostgreSQL's programs, with initdb replaced by a script."""
    directory.mkdir()
    (directory / "postgres").symlink_to(find_binaries().tool("postgres"))
    (directory / "initdb").write_text(f"#!/bin/sh\n{script}\n")
    (directory / "initdb").chmod(0o755)
    return directory


async def said_url(user: Process) -> str:
    assert user.stdout is not None
    return (await user.stdout.readline()).decode().strip()


@pytest.mark.parametrize("major", [18, 16])
async def test_a_new_directory_becomes_a_working_server(data_dir: Path, major: int) -> None:
    """A UTF-8 server of the requested major version, reachable from Python and psql."""
    async with EmbeddedServer(data_dir, ServerOptions(fsync=False, major=major)) as server:
        assert await ask(server.url, "SELECT current_setting('server_version_num')::int / 10000") == major
        assert await ask(server.url, "SELECT current_setting('server_encoding')") == "UTF8"
        assert await ask(server.url, "SELECT upper('straße ä')") in ("STRASSE Ä", "STRAßE Ä")
        process = await asyncio.create_subprocess_exec(
            *(find_binaries(major).tool("psql"), server.url, "-XAtc", "SELECT current_user"), stdout=PIPE
        )
        said, _ = await process.communicate()
        assert said == b"postroom\n"


async def test_the_role_owns_its_database_and_may_clone_it_but_is_no_superuser(used_dir: Path) -> None:
    """The application's role has only the privileges it needs; the superuser can connect over the socket only."""
    async with EmbeddedServer(used_dir, FAST) as server:
        await ask(server.url, "CREATE DATABASE copy TEMPLATE postroom")  # the first, while no other process uses it
        role = "SELECT (rolsuper, rolcreatedb, rolcanlogin)::text FROM pg_roles WHERE rolname = current_user"
        assert await ask(server.url, role) == "(f,t,t)"
        assert await ask(server.admin_url, "SELECT rolsuper FROM pg_roles WHERE rolname = current_user") is True
        port = server.url.rpartition(":")[2].partition("/")[0]
        with pytest.raises(asyncpg.InvalidAuthorizationSpecificationError):
            await ask(f"postgresql://postgres@127.0.0.1:{port}/postgres", "SELECT 1")
        with pytest.raises(asyncpg.InvalidPasswordError):
            await ask(f"postgresql://postroom:wrong@127.0.0.1:{port}/postroom", "SELECT 1")


async def test_password_is_in_no_log_or_command_line(data_dir: Path) -> None:
    """Files are private, and repr, log, command line and errors do not contain the password."""
    async with EmbeddedServer(data_dir, ServerOptions(fsync=False, extra=(("log_statement", "all"),))) as server:
        home = DataDirectory(data_dir)
        state = home.read_state()
        assert state is not None
        assert [mode(data_dir), mode(home.cluster), mode(Path(state.socket_dir))] == [0o700] * 3
        assert [mode(home.state), mode(home.log)] == [0o600] * 2
        log = home.log.read_text()
        assert "CREATE DATABASE postroom" in log
        command = command_line(postmaster(data_dir))
        assert str(home.cluster) in command
        for text in (repr(server), repr(state), log, command):
            assert state.password not in text
            assert "SCRAM-SHA-256$" not in text


async def test_fsync_is_off_only_on_request(used_dir: Path) -> None:
    """The default server syncs; the test server does not."""
    async with EmbeddedServer(used_dir) as durable:
        assert await ask(durable.url, "SELECT current_setting('fsync')") == "on"
    async with EmbeddedServer(used_dir, FAST) as volatile:
        assert await ask(volatile.url, "SELECT current_setting('fsync')") == "off"


async def test_two_objects_share_one_server_and_the_last_stops_it(used_dir: Path) -> None:
    """A server with another user keeps running."""
    first, second = EmbeddedServer(used_dir, FAST), EmbeddedServer(used_dir, FAST)
    url = await first.start()
    assert await second.start() == url == await first.start() == await running_url(used_dir)
    await first.stop()
    assert await ask(second.url, "SELECT 1") == 1
    await second.stop()
    await second.stop()
    assert await running_url(used_dir) is None
    assert not DataDirectory(used_dir).is_alive()


async def test_server_survives_the_exit_of_its_starter(used_dir: Path, start_user: StartUser) -> None:
    """A second process keeps using it."""
    starter = await start_user(used_dir)
    url = await said_url(starter)
    async with EmbeddedServer(used_dir, FAST) as server:
        assert server.url == url
        await starter.communicate(b"\n")
        assert starter.returncode == 0
        assert await ask(url, "SELECT 1") == 1
    assert await running_url(used_dir) is None


async def test_concurrent_starts_share_one_server(data_dir: Path, start_user: StartUser) -> None:
    """Four processes and a new directory give one cluster, one server and one URL; none is left at the end."""
    users = [await start_user(data_dir) for _ in range(4)]
    urls = await asyncio.gather(*(said_url(user) for user in users))
    assert len(set(urls)) == 1
    await asyncio.gather(*(user.communicate(b"\n") for user in users))
    assert [user.returncode for user in users] == [0, 0, 0, 0]
    assert DataDirectory(data_dir).log.read_text().count("ready to accept connections") == 1
    assert not DataDirectory(data_dir).is_alive()


async def test_a_killed_server_starts_again_with_its_data(used_dir: Path) -> None:
    """SIGKILL loses no committed data; the same object starts the server again."""
    async with EmbeddedServer(used_dir) as server:
        await ask(server.url, "CREATE TABLE kept AS SELECT 42 AS answer")
        os.kill(postmaster(used_dir), signal.SIGKILL)
        await server.start()
        assert await ask(server.url, "SELECT answer FROM kept") == 42


async def test_a_server_killed_under_another_process_starts_again(used_dir: Path, start_user: StartUser) -> None:
    """The dead server is a zombie of its starter, which does not prevent a new start."""
    starter = await start_user(used_dir)
    old_url, old_pid = await said_url(starter), postmaster(used_dir)
    os.kill(old_pid, signal.SIGKILL)
    async with EmbeddedServer(used_dir, FAST) as server:
        assert server.url == old_url
        assert postmaster(used_dir) != old_pid
        assert await ask(server.url, "SELECT 1") == 1
        await starter.communicate(b"\n")
        assert await ask(server.url, "SELECT 1") == 1


async def test_restart_by_another_process_is_detected(used_dir: Path) -> None:
    """After a crash and a restart by another process, `start` returns the new URL."""
    first, second = EmbeddedServer(used_dir, FAST), EmbeddedServer(used_dir, FAST)
    await first.start()
    await second.start()
    os.kill(postmaster(used_dir), signal.SIGKILL)
    new_url = await first.start()
    assert await second.start() == new_url
    await first.stop()
    await second.stop()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
async def test_a_server_outlives_its_killed_starter(
    used_dir: Path, start_user: StartUser, number: signal.Signals
) -> None:
    """After a kill or Ctrl-C of its starter the server runs on, and the next start adopts it."""
    starter = await start_user(used_dir)
    url = await said_url(starter)
    os.killpg(starter.pid, number)
    await starter.wait()
    pid = postmaster(used_dir)
    async with EmbeddedServer(used_dir, FAST) as server:
        assert (server.url, postmaster(used_dir)) == (url, pid)
        assert await ask(url, "SELECT 1") == 1
    assert not DataDirectory(used_dir).is_alive()


async def test_a_start_killed_while_making_the_cluster_is_repeated(
    data_dir: Path, tmp_path: Path, start_user: StartUser
) -> None:
    """The half-made cluster of a killed start is deleted and created again."""
    trap = with_initdb(tmp_path / "bin", 'mkdir -p "$2" && echo 18 > "$2/PG_VERSION" && kill -9 $PPID')
    starter = await start_user(data_dir, PG_BIN=str(trap))
    assert await starter.wait() == -signal.SIGKILL
    assert (DataDirectory(data_dir).unfinished / "PG_VERSION").exists()
    async with EmbeddedServer(data_dir, FAST) as server:
        assert await ask(server.url, "SELECT 1") == 1
    assert not DataDirectory(data_dir).unfinished.exists()


async def test_start_waits_for_statements_of_a_killed_start(used_dir: Path) -> None:
    """The server finishes a killed start's CREATE DATABASE; the next start waits for it."""
    waiting = "SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted)"
    async with EmbeddedServer(used_dir, FAST) as server, asyncio.timeout(60):
        killed_start = await asyncpg.connect(server.admin_url)
        await embedded.QUERIES["take_turn"].one(killed_start)
        await killed_start.execute("DROP DATABASE postroom WITH (FORCE)")
        next_start = EmbeddedServer(used_dir, FAST)
        starting = asyncio.create_task(next_start.start())
        while not await killed_start.fetchval(waiting):
            assert not starting.done()
        await embedded.QUERIES["create_database"].exec(killed_start)
        await killed_start.close()
        assert await ask(await starting, "SELECT 1") == 1
        await next_start.stop()


async def test_pid_file_with_a_reused_process_id_is_ignored(used_dir: Path) -> None:
    """A process id from before a reboot that now belongs to another process does not prevent a start."""
    async with EmbeddedServer(used_dir, FAST):
        lines = (DataDirectory(used_dir).cluster / "postmaster.pid").read_text().splitlines()
    (DataDirectory(used_dir).cluster / "postmaster.pid").write_text("\n".join([str(os.getppid()), *lines[1:]]) + "\n")
    async with EmbeddedServer(used_dir, FAST) as server:
        assert await ask(server.url, "SELECT 1") == 1


async def test_a_lost_state_file_is_replaced(used_dir: Path) -> None:
    """A running server whose password was lost is adopted with a new password."""
    async with EmbeddedServer(used_dir, FAST) as first:
        DataDirectory(used_dir).state.unlink()
        async with EmbeddedServer(used_dir, FAST) as second:
            assert second.url != first.url
            assert await ask(second.url, "SELECT 1") == 1
            assert await first.start() == second.url


async def test_wrong_major_version_is_rejected(data_dir: Path) -> None:
    """A directory of 16 cannot be opened by 18, stopped or running; without a requested version it opens as 16."""
    wrong = EmbeddedServer(data_dir, ServerOptions(major=18))
    async with EmbeddedServer(data_dir, ServerOptions(fsync=False, major=16)):
        with pytest.raises(EmbeddedServerError, match=r"made by PostgreSQL 16 .* opened by 18"):
            await wrong.start()
    with pytest.raises(EmbeddedServerError, match="Start it with major 16"):
        await wrong.start()
    async with EmbeddedServer(data_dir, FAST) as server:
        assert str(await ask(server.url, "SHOW server_version")).startswith("16")


async def test_long_path_uses_a_short_socket_directory(tmp_path: Path) -> None:
    """The short private directory is removed at the end."""
    async with EmbeddedServer(tmp_path / ("x" * 120), FAST) as server:
        state = DataDirectory(tmp_path / ("x" * 120)).read_state()
        assert state is not None
        assert len(state.socket_dir) < 85
        assert await ask(server.admin_url, "SELECT 1") == 1
    assert not os.access(state.socket_dir, os.F_OK)


async def test_a_taken_port_is_named(used_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the last attempt the error has the server's own message."""
    monkeypatch.setattr(embedded, "RETRY_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        extra = (("port", str(taken.getsockname()[1])),)
        with pytest.raises(EmbeddedServerError, match="Address already in use"):
            await EmbeddedServer(used_dir, ServerOptions(fsync=False, extra=extra)).start()
    async with EmbeddedServer(used_dir, FAST) as server:
        assert await ask(server.url, "SELECT 1") == 1


async def test_server_takes_another_port_if_its_own_is_taken(used_dir: Path) -> None:
    """A restart while another program listens on the old port chooses a new one."""
    async with EmbeddedServer(used_dir, FAST) as server:
        old_url = server.url
    port = int(old_url.rpartition(":")[2].partition("/")[0])
    with socket.create_server(("127.0.0.1", port)):
        async with EmbeddedServer(used_dir, FAST) as server:
            assert server.url != old_url
            assert await ask(server.url, "SELECT 1") == 1


async def test_invalid_setting_fails_at_once_with_the_log(used_dir: Path) -> None:
    """A permanent failure is not retried."""
    server = EmbeddedServer(used_dir, ServerOptions(fsync=False, extra=(("shared_bufers", "1"),)))
    with pytest.raises(EmbeddedServerError, match="shared_bufers"):
        await server.start()
    with pytest.raises(EmbeddedServerError, match="not been started"):
        _ = server.url
    assert not DataDirectory(used_dir).is_alive()


async def test_a_cancelled_start_can_be_repeated(
    data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cancelling during initdb stops initdb; a later start works."""
    endless = with_initdb(tmp_path / "bin", 'mkdir -p "$2" && echo 18 > "$2/PG_VERSION" && exec sleep 300')
    monkeypatch.setenv("PG_BIN", str(endless))
    starting = asyncio.create_task(EmbeddedServer(data_dir, FAST).start())
    while not (DataDirectory(data_dir).unfinished / "PG_VERSION").exists():
        assert not starting.done()
        await asyncio.sleep(data_directory.POLL_S)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    monkeypatch.delenv("PG_BIN")
    assert DataDirectory(data_dir).major() is None
    async with EmbeddedServer(data_dir, FAST) as server:
        assert await ask(server.url, "SELECT 1") == 1


async def test_initdb_cancelled_before_a_thread_reads_it_leaves_no_pipe(tmp_path: Path) -> None:
    """On a busy machine all threads are in use, and the output of initdb is not read yet."""
    endless = Binaries(with_initdb(tmp_path / "bin", 'mkdir -p "$2" && exec sleep 300'), 18)
    free = threading.Event()
    busy = [asyncio.get_running_loop().run_in_executor(None, free.wait) for _ in range(64)]
    with warnings.catch_warnings(record=True) as warned, (tmp_path / "lock").open("w") as held:
        warnings.simplefilter("always")
        programs = programs_for(tmp_path, endless)
        making = asyncio.create_task(programs.make_cluster(tmp_path / "new", sync=False, held=held.fileno()))
        while not (tmp_path / "new").exists():
            assert not making.done()
            await asyncio.sleep(data_directory.POLL_S)
        making.cancel()
        with pytest.raises(asyncio.CancelledError):
            await making
        free.set()
        await asyncio.gather(*busy)
        del making
        gc.collect()
    assert [str(each.message) for each in warned] == []


async def test_foreign_files_are_never_overwritten(data_dir: Path) -> None:
    """A cluster directory with files but no PostgreSQL data is rejected."""
    (data_dir / "postgres").mkdir(parents=True)
    (data_dir / "postgres" / "letter.txt").write_text("precious")
    with pytest.raises(EmbeddedServerError, match="Move it away"):
        await EmbeddedServer(data_dir, FAST).start()
    assert (data_dir / "postgres" / "letter.txt").read_text() == "precious"


async def test_server_log_contains_no_values(used_dir: Path) -> None:
    """The error about a rejected row reaches its sender and not the log."""
    async with EmbeddedServer(used_dir, FAST) as server:
        connection = await asyncpg.connect(server.url)
        try:
            await connection.execute("CREATE TEMP TABLE people (name text CHECK (name <> 'Zerlina'))")
            with pytest.raises(asyncpg.CheckViolationError) as caught:
                await connection.execute("INSERT INTO people VALUES ('Zerlina')")
        finally:
            await connection.close()
    assert "Zerlina" in str(caught.value.detail)
    log = DataDirectory(used_dir).log.read_text()
    assert "people_name_check" in log
    assert "Zerlina" not in log


async def test_data_directory_that_is_a_file_is_rejected(tmp_path: Path) -> None:
    """The `EmbeddedServerError` names the path."""
    (tmp_path / "file").touch()
    with pytest.raises(EmbeddedServerError, match="file cannot be used"):
        await EmbeddedServer(tmp_path / "file").start()


async def test_running_url_creates_nothing(data_dir: Path) -> None:
    """Looking for a server in an empty directory leaves no file."""
    assert await running_url(data_dir) is None
    assert not os.access(data_dir, os.F_OK)


def test_long_log_is_rotated(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new log begins when the old one is too long; one old log is kept."""
    monkeypatch.setattr(data_directory, "LOG_LIMIT_BYTES", 3)
    data_dir.mkdir()
    home = DataDirectory(data_dir)
    home.log.write_text("old")
    assert home.rotate_log() == 3
    home.log.write_text("older")
    assert home.rotate_log() == 0
    assert (data_dir / "postgres.log.1").read_text() == "older"
