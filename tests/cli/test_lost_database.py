"""Real processes whose database falls silent or moves: work goes on, and a stop ends in time."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import aiohttp
import pytest
from tests.support.command_line import PATIENT, Running, postroom, running
from tests.support.embedded import postmaster
from tests.support.freezing_proxy import FreezingProxy
from tests.support.patience import PATIENCE_S

from postroom.db.pool import Pool, open_pool
from postroom.embedded.data_directory import DataDirectory

HANGING = """
import asyncio, sys
from datetime import timedelta
from postroom.cli.lifetime import live
from postroom.runtime.terminal import run

async def main(life):
    life.running()
    print("running", flush=True)
    await asyncio.Event().wait()

run(live(main, grace=timedelta(milliseconds=50)))
"""

MAIL = ("send", "--to", "a@b.example", "--subject", "x", "--text", "y")


@pytest.fixture
def settings(tmp_path: Path) -> dict[str, str]:
    return {
        "POSTROOM_DATA_DIR": str(tmp_path / "data"),
        "POSTROOM_HTTP_ADDR": "127.0.0.1:0",
        "POSTROOM_POLL_INTERVAL": "50ms",
        "POSTROOM_DATABASE_TIMEOUT": "1s",
        "POSTROOM_LEASE": "3s",
        "POSTROOM_SHUTDOWN_GRACE": "1s",
        "POSTROOM_LOG_FORMAT": "json",
    }


async def _captured(pool: Pool, number: int) -> None:
    """Wait, by asking, until so many mails are in the inbox."""
    async with asyncio.timeout(PATIENCE_S):
        while await pool.fetchval("SELECT count(*) FROM inbox_messages") < number:
            await pool.execute("SELECT pg_sleep(0.02)")


async def _send(pool: Pool) -> None:
    await pool.execute("SELECT send('{a@b.example}', p_subject => 'x', p_text => 'y')")


async def test_a_worker_goes_on_after_its_connections_fell_silent(
    settings: dict[str, str], database_url: str, pool: Pool
) -> None:
    """All connections stay open and silent, as when a host loses power; the next mail leaves by new ones."""
    async with FreezingProxy(database_url) as proxy:
        with running("work", settings={**settings, "POSTROOM_DATABASE_URL": proxy.url}) as work:
            await _send(pool)
            await _captured(pool, 1)
            assert proxy.freeze() > 1
            await _send(pool)
            await _captured(pool, 2)
            assert work.process.poll() is None
            proxy.freeze()
            work.process.send_signal(signal.SIGTERM)
            assert await asyncio.to_thread(work.process.wait, PATIENCE_S) in (0, 1)


FLEET = ("--rooms", "postroom")


@pytest.mark.parametrize(
    "command", [("work",), ("work", "--processes", "1"), ("serve",), ("work", *FLEET), ("serve", *FLEET)]
)
async def test_a_stop_ends_with_the_grace_time_when_the_database_host_has_vanished(
    settings: dict[str, str], database_url: str, pool: Pool, command: tuple[str, ...]
) -> None:
    """No answer of the database prolongs the end: the process ends by itself, or the thread ends it at the limit."""
    async with FreezingProxy(database_url) as proxy:
        with running(*command, settings={**settings, "POSTROOM_DATABASE_URL": proxy.url}) as process:
            await _registered(pool, command, process)
            assert proxy.vanish() > 0
            process.process.send_signal(signal.SIGTERM)
            code = await asyncio.to_thread(process.process.wait, PATIENCE_S)
            forced = [json.loads(line) for line in process.rest().splitlines() if "shutdown_forced" in line]
    assert [(code, entry["after_s"]) for entry in forced] in ([], [(1, 1.0)])


async def _registered(pool: Pool, command: tuple[str, ...], process: Running) -> None:
    """Wait, by asking, until a process works in the room. For many rooms, one serves it after its first request."""
    known = "SELECT count(*) FROM processes WHERE command = $1"
    if command == ("serve", *FLEET):
        said = await asyncio.to_thread(process.line, lambda line: "Postroom answers at" in line)
        url = f"{said.split()[3]}/rooms/postroom/v1/deliveries"
        async with aiohttp.ClientSession() as client, client.get(url) as answer:
            assert answer.status == 401
        return
    if command == ("work", *FLEET):
        known = "SELECT count(*) FROM workers WHERE $1 = 'work'"  # the process that will wake it
    async with asyncio.timeout(PATIENCE_S):
        while not await pool.fetchval(known, command[0]):
            await pool.execute("SELECT pg_sleep(0.02)")


def test_a_process_that_hangs_ends_after_its_grace_time(settings: dict[str, str]) -> None:
    """A thread ends a process that does not stop in time, with a message and exit 1."""
    command = [sys.executable, "-c", HANGING]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "running\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 1
        assert "shutdown_forced" in process.stdout.read()


def test_a_process_that_hangs_while_python_shuts_down_ends_too(settings: dict[str, str]) -> None:
    """While the interpreter is finalized no thread runs; the process ends with exit 1 nevertheless."""
    done = "await life.stop.wait()\n    sys.late = Late()"
    late = "class Late:\n    def __del__(self, sleep=__import__('time').sleep):\n        sleep(3600)\n"
    command = [sys.executable, "-c", late + HANGING.replace("await asyncio.Event().wait()", done)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "running\n"
        process.send_signal(signal.SIGTERM)
        try:
            assert process.wait(PATIENCE_S) == 1
        finally:
            process.kill()


async def test_processes_follow_an_embedded_server_to_another_port(settings: dict[str, str]) -> None:
    """Another program takes the port while the server is down: mail is accepted and delivered on the new one."""
    home = DataDirectory(Path(settings["POSTROOM_DATA_DIR"]))
    with running("up", settings=settings, command=PATIENT) as up:
        up.line(lambda line: "Ctrl-C stops" in line)
        before = home.read_state()
        assert before is not None
        os.kill(postmaster(home.data_dir), signal.SIGKILL)
        with _taken(before.port):
            up.line(lambda line: "embedded_server_runs_again" in line)
            after = home.read_state()
            assert after is not None
            assert after.port != before.port
            assert postroom(*MAIL, settings=settings, command=PATIENT).returncode == 0
            async with await open_pool(after.url, "postroom", size=1) as pool:
                await _captured(pool, 1)


def _taken(port: int) -> socket.socket:
    """A listener on a port that a killed server is about to let go."""
    while True:
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("127.0.0.1", port))
        except OSError:
            listener.close()
            continue
        listener.listen()
        return listener


def test_the_embedded_server_listens_outside_the_ephemeral_range(settings: dict[str, str]) -> None:
    """No outgoing connection of another program can take its port."""
    assert postroom("migrate", settings=settings, command=PATIENT).returncode == 0
    state = DataDirectory(Path(settings["POSTROOM_DATA_DIR"])).read_state()
    assert state is not None
    assert 20_000 <= state.port < 32_000
