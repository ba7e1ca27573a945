"""Processes of Postroom as a chaos run starts them: each with a log, all in one temporary directory."""

import asyncio
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.support.command_line import COMMAND, environment
from tests.support.forked import Forked, Streams, start
from tests.support.patience import PATIENCE_S

_MEMORY = Path("/dev/shm")


class Fleet:
    """The processes of Postroom, with a log each."""

    def __init__(self, directory: Path, settings: dict[str, str]) -> None:
        self._directory, self._settings = directory, settings
        self._numbers = count(1)
        self._all: list[Forked] = []

    @property
    def api(self) -> str:
        return f"http://{self._settings['POSTROOM_HTTP_ADDR']}"

    def start(self, command: str) -> Forked:
        log = self._directory / f"{command}-{next(self._numbers)}.log"
        with log.open("w") as output, Path(os.devnull).open() as nothing:
            streams = Streams(nothing, output, output)
            process = start(COMMAND, command, environment=environment(**self._settings), streams=streams)
        self._all.append(process)
        return process

    def logs(self) -> list[str]:
        return [path.read_text() for path in sorted(self._directory.glob("*.log"))]

    @property
    def running(self) -> list[Forked]:
        return [process for process in self._all if process.poll() is None]

    async def stop(self) -> list[int]:
        """Stop all that run; returns their exit codes."""
        running = self.running
        for process in running:
            process.send_signal(signal.SIGTERM)
        return [await asyncio.to_thread(process.wait, PATIENCE_S) for process in running]

    def kill(self) -> None:
        for process in self.running:
            process.send_signal(signal.SIGKILL)
            process.wait(PATIENCE_S)


def sending_settings(url: str, smtp_port: int, **more: str) -> dict[str, str]:
    """The settings of processes that send through a server on loopback."""
    return {
        "POSTROOM_DATABASE_URL": url,
        "POSTROOM_SECRET_KEY": "0" * 64,
        "POSTROOM_TRANSPORT": "smtp",
        "POSTROOM_SMTP_RELAY": f"smtp://127.0.0.1:{smtp_port}",
        "POSTROOM_FROM": "post@example.org",
        "POSTROOM_PUBLIC_URL": "https://post.example.org",
        "POSTROOM_LOG_FORMAT": "json",
        **more,
    }


@contextmanager
def workplace(name: str, *, logs: Path | None = None) -> Iterator[Path]:
    """A directory in memory for servers and processes; their logs are copied to `logs`."""
    in_memory = _MEMORY if _MEMORY.is_dir() and os.access(_MEMORY, os.W_OK) else None
    with TemporaryDirectory(prefix=f"postroom-{name}-", dir=in_memory) as directory:
        os.environ.setdefault("POSTROOM_DATA_DIR", f"{directory}/unused")
        try:
            yield Path(directory)
        finally:
            _keep_logs(Path(directory), logs)


def _keep_logs(directory: Path, target: Path | None) -> None:
    """Copy every log; under Patroni those of PostgreSQL are part of its own."""
    if target is None:
        return
    for log in directory.rglob("*.log"):
        copy = target / log.relative_to(directory)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(log, copy)


def say(line: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
