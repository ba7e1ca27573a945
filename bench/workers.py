"""Worker processes: start them, wait until they have emptied their queue, report time, cost and memory.

Every subject's workers are commands that drain a queue and exit. Starting an interpreter and importing a library is not
draining, so each drain is preceded by the same commands on an empty queue; their time and their CPU are subtracted.
"""

import asyncio
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.cost import Meter, Spent, Usage

REPOSITORY = Path(__file__).resolve().parent.parent
LOOK_INTERVAL_S = 0.02
PATIENCE_S = 600
IDLE_RUNS = 2  # the quicker counts, so that a busy moment of the machine is never credited to a subject

Fill = Callable[[int], Awaitable[None]]
"""Puts that many jobs into the queue."""


class WorkerError(RuntimeError):
    """A worker process exited with an error."""


@dataclass(frozen=True)
class Command:
    """The command and its additional environment variables."""

    arguments: Sequence[str]
    environment: Mapping[str, str]


@dataclass(frozen=True)
class Effort:
    """How long the workers took together and the peak resident memory of the largest process among them."""

    seconds: float
    peak_megabytes: float


@dataclass(frozen=True)
class Drained:
    """A drained queue: the cost per job and the peak memory of the largest worker."""

    spent: Spent
    peak_megabytes: float

    def readings(self, row: str) -> dict[str, float]:
        return {**self.spent.readings(row), f"{row}-memory": self.peak_megabytes}


def python_command(module: str, *arguments: str, environment: Mapping[str, str] | None = None) -> Command:
    return Command([sys.executable, "-m", module, *arguments], environment or {})


def environment_for(command: Command) -> dict[str, str]:
    """Ours, with the repository and its `src` importable and the command's own variables on top."""
    path = os.pathsep.join([str(REPOSITORY), str(REPOSITORY / "src")])
    return {**os.environ, "PYTHONPATH": path, **command.environment}


async def run_workers(commands: Sequence[Command]) -> Effort:
    """Run the commands side by side until all have exited."""
    unwanted = threading.Event()
    try:
        return await asyncio.to_thread(_run_and_watch, commands, unwanted)
    finally:
        unwanted.set()


async def drain(meter: Meter, commands: Sequence[Command], fill: Fill, count: int) -> Drained:
    """Start on an empty queue, fill it, drain it. Returns the drain without the cost of starting and stopping."""
    idle = min([await _metered(meter, commands) for _ in range(IDLE_RUNS)], key=lambda run: run[0].seconds)
    await fill(count)
    busy = await _metered(meter, commands)
    usage = busy[1] - idle[1]
    seconds = net_seconds(busy[0].seconds, idle[0].seconds)
    return Drained(Spent(count, seconds, usage, usage.workers), busy[0].peak_megabytes)


async def _metered(meter: Meter, commands: Sequence[Command]) -> tuple[Effort, Usage]:
    before = await meter.read()
    effort = await run_workers(commands)
    return effort, await meter.read() - before


def net_seconds(busy: float, idle: float) -> float:
    """The time spent draining. If starting was most of it, half is charged: too slow beats absurdly fast."""
    return max(busy - idle, busy / 2)


def start(command: Command, *, errors: int = subprocess.DEVNULL) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command.arguments,
        env=environment_for(command),
        cwd=REPOSITORY,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=errors,
    )


def _run_and_watch(commands: Sequence[Command], unwanted: threading.Event) -> Effort:
    with tempfile.TemporaryFile() as errors:
        began = time.monotonic()
        processes = [start(command, errors=errors.fileno()) for command in commands]
        peak = 0.0
        try:
            while any(process.poll() is None for process in processes):
                peak = max([peak, *(peak_of_tree(process.pid) for process in processes)])
                if time.monotonic() - began > PATIENCE_S:
                    raise WorkerError(f"workers still busy after {PATIENCE_S} s")
                if unwanted.wait(LOOK_INTERVAL_S):
                    raise WorkerError("the workers are no longer awaited")
        finally:
            stop(processes)
        seconds = time.monotonic() - began
        if any(process.returncode for process in processes):
            errors.seek(0)
            raise WorkerError(errors.read()[-2000:].decode("utf-8", "replace"))
        return Effort(seconds, peak)


def stop(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """Ask those still running to end, then wait for them."""
    for process in processes:
        if process.poll() is None:
            process.terminate()
    for process in processes:
        process.wait(timeout=30)


def peak_of_tree(pid: int) -> float:
    """Peak resident megabytes of the largest process among this one and its descendants; 0 off Linux."""
    try:
        status = Path(f"/proc/{pid}/status").read_text("ascii", "replace")
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text("ascii").split()
    except OSError:
        return 0.0
    own = next((int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith("VmHWM")), 0.0)
    return max([own, *(peak_of_tree(int(child)) for child in children)])
