"""Processes of Postroom that start at once: forked from a process that has already imported it.

An interpreter needs a second of CPU time to import a command of Postroom. `start` is for tests that run a command as a
separate process, with its own arguments, environment, streams, signals and exit code; `write_command` makes a program
`postroom` for shells. Tests about the start of the interpreter itself use `subprocess`.
"""

import asyncio
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
from tempfile import TemporaryDirectory, TemporaryFile
from typing import IO, Any, NamedTuple

from pydantic import TypeAdapter

import postroom

# Not imported ahead: pytest would rewrite its assertions, Django wants a configured site.
MODULE_S = 600.0  # thousands of deliveries on a machine that stalls
STANDARD_ERROR = 2
NUMBER = struct.Struct("!i")
# The program for shells: passes its streams on, forwards signals, and ends as the forked process does.
CLIENT = """#!{python} -IS
import json, os, signal, socket, sys
channel = socket.socket(socket.AF_UNIX)
channel.connect({path!r})
socket.send_fds(channel, [b"x"], [0, 1, 2])
order = {{
    "program": ["-m", "postroom.cli"],
    "arguments": sys.argv[1:],
    "environment": dict(os.environ),
    "directory": os.getcwd(),
}}
channel.sendall(json.dumps(order).encode() + b"\\n")
pid = int.from_bytes(channel.recv(4, socket.MSG_WAITALL), "big")
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, lambda number, frame: os.kill(pid, number))
code = int.from_bytes(channel.recv(4, socket.MSG_WAITALL), "big", signed=True)
sys.exit(code if code >= 0 else 128 - code)
"""
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
    channel = socket.socket(socket.AF_UNIX)
    channel.connect(_fork_server())
    handles = [stream if isinstance(stream, int) else stream.fileno() for stream in streams]
    socket.send_fds(channel, [b"x"], handles)
    channel.sendall(json.dumps(order).encode() + b"\n")
    return Forked(channel)


async def run_module(name: str, *arguments: str) -> tuple[int, str]:
    """Run a module to its end while the event loop goes on; its exit code and output."""
    with TemporaryFile("w+") as given, TemporaryFile("w+") as output:
        streams = Streams(given, output, STANDARD_ERROR)
        process = start(("-m", name), *arguments, environment=os.environ, streams=streams)
        try:
            code = await asyncio.to_thread(process.wait, MODULE_S)
        finally:
            process.send_signal(signal.SIGKILL)
        output.seek(0)
        return code, output.read()


def write_command(path: Path) -> None:
    """Write a program that does what the installed `postroom` does."""
    path.write_text(CLIENT.format(python=sys.executable, path=_fork_server()))
    path.chmod(0o755)


@cache
def _fork_server() -> str:
    """Start the server; returns the path of its socket. It ends when its standard input is closed."""
    directory = TemporaryDirectory(prefix="postroom-fork-")
    path = f"{directory.name}/socket"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        command = [sys.executable, "-u", "-m", "tests.support.forked", str(listener.fileno())]
        process = subprocess.Popen(command, pass_fds=[listener.fileno()], stdin=subprocess.PIPE)

    @atexit.register
    def stop() -> None:
        process.communicate()
        directory.cleanup()

    return path


# ── the fork server ───────────────────────────────────────────────────────────────────────────────────────────────


def _serve(listener: socket.socket) -> None:
    """Fork for each order; only a process that carries out an order returns."""
    while True:
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:  # keepers that have ended
                pass
        ready, _, _ = select.select([listener, sys.stdin], [], [])
        if sys.stdin in ready:
            os._exit(0)
        channel, _address = listener.accept()
        if os.fork() == 0:
            listener.close()
            return _keep(channel)
        channel.close()


def _keep(channel: socket.socket) -> None:
    """Report process id and exit code of a forked process, which returns with everything set up."""
    _, handles, _flags, _address = socket.recv_fds(channel, 1, 3)
    with channel, channel.makefile() as lines:
        order = json.loads(lines.readline())
        pid = os.fork()
        if pid != 0:
            for handle in (0, *handles):
                os.close(handle)
            channel.sendall(NUMBER.pack(pid))
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            with suppress(BrokenPipeError):
                channel.sendall(NUMBER.pack(code))
            os._exit(0)
    for number, handle in enumerate(handles):
        os.dup2(handle, number)
        os.close(handle)
    _carry_out(order)


def _carry_out(order: dict[str, Any]) -> None:
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
