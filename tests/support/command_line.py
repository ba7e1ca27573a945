"""Helpers for tests of the command line: the real `postroom` in a separate process, see `forked`."""

import asyncio
import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any

from tests.support.forked import Forked, Streams, start
from tests.support.patience import PATIENCE_S

COMMAND = ("-m", "postroom.cli")
# The same, where a database or a store must not be called silent because this machine stands still for a while.
PATIENT = (
    "-c",
    """
from postroom.cli import doctor, host_checks, main
from postroom.embedded import binaries
from postroom.embedded import server as embedded
doctor._PATIENCE_S = host_checks.CONNECT_TIMEOUT_S = binaries.VERSION_TIMEOUT_S = 60
embedded.CONNECT_TIMEOUT_S = embedded.RETRY_S = embedded.STOP_TIMEOUT_S = 60
main()
""",
)


def environment(**settings: str) -> dict[str, str]:
    """The environment of the tests without its POSTROOM_ variables, plus these."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("POSTROOM_")}
    ours = {"POSTROOM_SMTP_ADDR": "127.0.0.1:0", "POSTROOM_DATA_DIR": os.environ["POSTROOM_DATA_DIR"]}
    return {**kept, "PYTHONUNBUFFERED": "1", "COLUMNS": "200", **ours, **settings}


def postroom(
    *arguments: str,
    stdin: str | None = None,
    settings: dict[str, str] | None = None,
    command: tuple[str, str] = COMMAND,
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    with TemporaryFile("w+") as given, TemporaryFile("w+") as output, TemporaryFile("w+") as errors:
        given.write(stdin or "")
        given.seek(0)
        streams = Streams(given, output, errors)
        process = start(command, *arguments, environment=environment(**(settings or {})), streams=streams)
        try:
            code = process.wait(PATIENCE_S)
        except TimeoutError:
            process.send_signal(signal.SIGKILL)
            raise
        output.seek(0)
        errors.seek(0)
        return subprocess.CompletedProcess(arguments, code, output.read(), errors.read())


async def outcome(
    *arguments: str,
    stdin: str | None = None,
    settings: dict[str, str] | None = None,
    command: tuple[str, str] = COMMAND,
) -> tuple[int, str, str]:
    """Run a command while the event loop goes on; its exit code, output and errors."""
    done = await asyncio.to_thread(postroom, *arguments, stdin=stdin, settings=settings, command=command)
    return done.returncode, done.stdout, done.stderr


def answer(done: subprocess.CompletedProcess[str]) -> Any:
    """The JSON a successful command printed."""
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


class Running:
    """A long-running command, read line by line."""

    def __init__(self, process: Forked, output: IO[str]) -> None:
        self.process = process
        self._output = output

    def line(self, wanted: Callable[[str], bool]) -> str:
        """Wait for a line on its output; fails when the command ends before it comes."""
        seen = []
        for line in self._output:
            seen.append(line)
            if wanted(line):
                return line.rstrip("\n")
        raise AssertionError(f"ended with {self.process.wait()} after saying:\n{''.join(seen)}")

    def event(self, name: str) -> dict[str, Any]:
        """Wait for a log line about this event."""
        found: dict[str, Any] = json.loads(self.line(lambda line: f'"event": "{name}"' in line))
        return found

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Send a signal and wait for the end; returns the exit code."""
        self.process.send_signal(number)
        return self.wait()

    def wait(self) -> int:
        return self.process.wait(timeout=PATIENCE_S)

    def rest(self) -> str:
        return self._output.read()


@contextmanager
def running(
    *arguments: str, settings: dict[str, str], directory: Path | None = None, command: tuple[str, str] = COMMAND
) -> Iterator[Running]:
    """Start a command; stop it at the end, whatever the test does."""
    reading, writing = os.pipe()
    with os.fdopen(reading) as output:
        with os.fdopen(writing, "w") as both, Path(os.devnull).open() as nothing:
            streams = Streams(nothing, both, both)
            given = environment(**settings)
            process = start(command, *arguments, environment=given, streams=streams, directory=directory)
        try:
            yield Running(process, output)
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(PATIENCE_S)
            except TimeoutError:
                process.send_signal(signal.SIGKILL)
                process.wait()
