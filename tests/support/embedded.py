"""Helpers of tests of the embedded server: a client process, and properties of processes."""

import os
import stat
import subprocess
from pathlib import Path

import asyncpg
import pytest

from postroom.embedded.data_directory import DataDirectory
from postroom.embedded.server import ServerOptions

ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user; plain tests cover this")
FAST = ServerOptions(fsync=False)

# A client of the server in a process of its own: it prints the URL and leaves when its input ends. It drops root after
# all imports, because another user may not be able to read root's interpreter.
USER = """
import asyncio, concurrent.futures.thread, os, signal, sys
from pathlib import Path
from postroom.embedded import binaries
from postroom.embedded import server as embedded
from postroom.embedded.server import EmbeddedServer, ServerOptions

binaries.VERSION_TIMEOUT_S = embedded.CONNECT_TIMEOUT_S = embedded.RETRY_S = embedded.STOP_TIMEOUT_S = 60

async def main():
    server = EmbeddedServer(Path(sys.argv[1]), ServerOptions(fsync=False))
    print(await server.start(), flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    await server.stop()

signal.signal(signal.SIGINT, signal.SIG_DFL)
for user in sys.argv[2:]:
    os.setgroups([])
    os.setgid(int(user))
    os.setuid(int(user))
asyncio.run(main())
"""


async def ask(url: str, sql: str) -> object:
    connection = await asyncpg.connect(url)
    try:
        return await connection.fetchval(sql)
    finally:
        await connection.close()


def command_line(pid: int) -> str:
    command = ["ps", "-ww", "-o", "command=", "-p", str(pid)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def owner_of_process(pid: int) -> int:
    return Path(f"/proc/{pid}").stat().st_uid


def owners(directory: Path) -> set[int]:
    return {path.stat().st_uid for path in directory.iterdir()}


def postmaster(directory: Path) -> int:
    pid = DataDirectory(directory).find_postmaster()
    assert pid is not None
    return pid
