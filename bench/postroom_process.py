"""Postroom's own programs, as an operator would start them: which commands, which variables."""

import contextlib
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from bench.workers import PATIENCE_S, REPOSITORY, Command, environment_for, start, stop

ENTRY = "from postroom.cli import main; main()"
MADE_UP_SECRET = "00" * 32
START_PATIENCE_S = 30


def postroom(url: str, templates: Path, *arguments: str, **settings: str) -> Command:
    """A `postroom` command in the room of that database; settings are POSTROOM_* variables in lower case."""
    chosen = {"database_url": url, "template_dir": str(templates), "secret_key": MADE_UP_SECRET, **settings}
    environment: Mapping[str, str] = {f"POSTROOM_{name.upper()}": value for name, value in chosen.items()}
    return Command([sys.executable, "-c", ENTRY, *arguments], environment)


def ask(command: Command) -> str:
    """Run to the end and return what it printed."""
    answered = subprocess.run(
        command.arguments,
        env=environment_for(command),
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    if answered.returncode:
        raise RuntimeError((answered.stderr or answered.stdout)[-2000:])
    return answered.stdout


def create_api_key(url: str, templates: Path) -> str:
    """A new key that may send. Each round has its own name, because a room accepts a name once."""
    name = f"bench-{time.monotonic_ns()}"
    return find_api_key(ask(postroom(url, templates, "keys", "create", name, "--scope", "deliveries:write")))


def find_api_key(printed: str) -> str:
    """The key among what the command printed; keys start with `pr_`."""
    words = [word.strip("\"',") for word in printed.split()]
    return next(word for word in words if word.startswith("pr_"))


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@contextlib.contextmanager
def running(command: Command, *, port: int | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """The command in the background for the length of the block; with a port, only once that answers."""
    process = start(command)
    try:
        if port is not None:
            wait_for_port(process, port)
        yield process
    finally:
        stop([process])


def wait_for_port(process: subprocess.Popen[bytes], port: int) -> None:
    deadline = time.monotonic() + START_PATIENCE_S
    while process.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.05)
    raise RuntimeError(f"nothing listens on port {port}")
