"""A server of the distribution as a process of the test: it ends with the test, and its output explains a failure."""

import asyncio
import contextlib
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any

from tests.support.patience import PATIENCE_S
from tests.world.packages import SYSTEM_PATH

_POLL_S = 0.02


@asynccontextmanager
async def running(
    command: Sequence[str | Path],
    ports: Sequence[int],
    *,
    environment: Mapping[str, str] | None = None,
    account: int | None = None,
) -> AsyncIterator[int]:
    """Start a server, wait until it listens on these ports of loopback, and stop it at the end; yields its id.

    `account` is the number of the user and group of a server that refuses to run as root.
    """
    with TemporaryFile() as output:
        process = _started(command, output, environment or os.environ, account)
        try:
            try:
                await _listening(process, ports)
            except (RuntimeError, TimeoutError) as error:
                output.seek(0)
                raise AssertionError(f"{error}\n{output.read().decode(errors='replace')}") from error
            yield process.pid
        finally:
            await _stopped(process)


def _started(
    command: Sequence[str | Path], output: IO[bytes], environment: Mapping[str, str], account: int | None
) -> "subprocess.Popen[bytes]":
    identity: dict[str, Any] = {} if account is None else {"user": account, "group": account, "extra_groups": []}
    return subprocess.Popen(
        [str(word) for word in command],
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        env={**environment, "PATH": SYSTEM_PATH},
        start_new_session=True,  # its children end with it
        **identity,
    )


async def _listening(process: "subprocess.Popen[bytes]", ports: Sequence[int]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        for port in ports:
            while not await _accepts(port):
                if process.poll() is not None:
                    raise RuntimeError(f"{process.args!r} ended with {process.returncode}")
                await asyncio.sleep(_POLL_S)


async def _accepts(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    return True


async def _stopped(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        await asyncio.to_thread(process.wait, PATIENCE_S)
    with contextlib.suppress(ProcessLookupError):  # children that outlived it
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
