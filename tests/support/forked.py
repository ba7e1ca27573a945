"""Processes of Postroom that start at once: forked from a process that has already imported it.

An interpreter needs a second of CPU time to import a command of Postroom. `start` is for tests that run a command as a
separate process, with its own arguments, environment, streams, signals and exit code; tests about the start of the
interpreter itself use `subprocess`.
"""

import atexit
import gc
import json
import os
import pkgutil
import runpy
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import IO, NamedTuple

from pydantic import TypeAdapter

import postroom

# Not imported ahead: pytest would rewrite its assertions, Django wants a configured site.
NUMBER = struct.Struct("!i")
SKIPPED = ("postroom.inbox.pytest_plugin", "postroom.dropins.django")


class Streams(NamedTuple):
    """Files with a descriptor, or descriptors."""

    stdin: IO[str] | int
    stdout: IO[str] | int
    stderr: IO[str] | int


class Forked:
    """A process that the fork server started; the part of `subprocess.Popen` that tests use."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self.pid = self._read_number()
        self.returncode: int | None = None

    def poll(self, timeout: float | None = 0) -> int | None:
        """The exit code, negative for a signal; None while the process runs."""
        if self.returncode is None and select.select([self._channel], [], [], timeout)[0]:
            self.returncode = self._read_number()
            self._channel.close()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        code = self.poll(timeout)
        if code is None:
            raise TimeoutError
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def _read_number(self) -> int:
        number: int = NUMBER.unpack(self._channel.recv(NUMBER.size, socket.MSG_WAITALL))[0]
        return number


def start(
    program: Sequence[str],
    *arguments: str,
    environment: Mapping[str, str],
    streams: Streams,
    directory: Path | None = None,
) -> Forked:
    """Start `python -m module` or `python -c code` with these arguments."""
    order = {
        "program": list(program),
        "arguments": arguments,
        "environment": dict(environment),
        "directory": str(directory or Path.cwd()),
    }
    ours, theirs = socket.socketpair()
    with theirs:
        handles = [stream if isinstance(stream, int) else stream.fileno() for stream in streams]
        socket.send_fds(_fork_server(), [b"x"], [theirs.fileno(), *handles])
    ours.sendall(json.dumps(order).encode() + b"\n")
    return Forked(ours)


@cache
def _fork_server() -> socket.socket:
    """The socket that takes orders; the fork server ends when it is closed."""
    ours, theirs = socket.socketpair()
    with theirs:
        command = [sys.executable, "-u", "-m", "tests.support.forked", str(theirs.fileno())]
        process = subprocess.Popen(command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL)

    @atexit.register
    def stop() -> None:
        ours.close()
        process.wait()

    return ours


# ── the fork server ───────────────────────────────────────────────────────────────────────────────────────────────


def _serve(orders: socket.socket) -> None:
    """Fork for each order; only a process that carries out an order returns."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the keepers
    while True:
        found, handles, _flags, _address = socket.recv_fds(orders, 1, 4)
        if not found:
            os._exit(0)
        if os.fork() == 0:
            orders.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            return _keep(*handles)
        for handle in handles:
            os.close(handle)


def _keep(channel: int, *handles: int) -> None:
    """Report process id and exit code of a forked process, which returns with everything set up."""
    with socket.socket(fileno=channel) as answers, answers.makefile() as lines:
        order = json.loads(lines.readline())
        pid = os.fork()
        if pid != 0:
            for handle in handles:
                os.close(handle)
            answers.sendall(NUMBER.pack(pid))
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            with suppress(BrokenPipeError):
                answers.sendall(NUMBER.pack(code))
            os._exit(0)
    for handle, number in zip(handles, (0, 1, 2), strict=True):
        os.dup2(handle, number)
        os.close(handle)
    os.chdir(order["directory"])
    os.environ.clear()
    os.environ.update(order["environment"])
    sys.argv[1:] = order["arguments"]
    kind, program = order["program"]
    if kind == "-m":
        runpy.run_module(program, run_name="__main__", alter_sys=True)
    else:
        exec(program, {"__name__": "__main__"})


def _import_ahead() -> None:
    for module in pkgutil.walk_packages(postroom.__path__, "postroom."):
        if not module.name.startswith(SKIPPED) and not module.name.endswith("__main__"):
            __import__(module.name)
    TypeAdapter(int)  # typer imports this part of pydantic for the first argument of a command: 0.2 s
    assert threading.active_count() == len(list(Path("/proc/self/task").iterdir())) == 1  # a fork copies one thread
    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    _import_ahead()
    _serve(socket.socket(fileno=int(sys.argv[1])))
