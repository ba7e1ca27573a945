"""Work on other people's input in processes with limits: hostile input costs its own request and nothing else.

Parsers of mail and template engines can be made to use seconds of CPU and gigabytes of memory by a few kilobytes of
input, and a thread would hold the interpreter lock meanwhile. A child process has an address-space limit, a CPU limit
per task and a timeout by the clock. It has no secret in its environment, writes no file and dumps no core. A child that
exceeds a limit is killed and replaced; the caller gets `Exceeded`.

A task is a length and bytes on the child's standard input. The child answers on its standard output with notes (which
part it works on; the last one is in `Exceeded`) and one answer. Children are started when they are needed, stay warm,
and end when their parent ends, because their standard input ends.
"""

import asyncio
import math
import os
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import BinaryIO

_LENGTH = 4
_NOTE, _ANSWER = b"n", b"a"
_INHERITED = ("PATH", "PYTHONPATH", "PYTHONHOME", "LD_LIBRARY_PATH", "LANG", "TZ")

Note = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one child."""

    memory_bytes: int = 512 * 1024 * 1024
    cpu_s: int = 10  # of one task


class Exceeded(Exception):  # noqa: N818 - a condition of the task, which callers turn into their own words
    """The child died of the task or did not answer in time. `note` is the last one it sent."""

    def __init__(self, note: str) -> None:
        super().__init__(note)
        self.note = note


class Children:
    """Some processes for one kind of task, for any event loop. `close` ends them; else they end with this process."""

    def __init__(self, command: Sequence[str], *, processes: int, timeout_s: float) -> None:
        self._command, self._processes, self._timeout_s = list(command), processes, timeout_s
        self._threads: ThreadPoolExecutor | None = None
        self._idle: list[subprocess.Popen[bytes]] = []
        self._busy: set[subprocess.Popen[bytes]] = set()

    @property
    def busy(self) -> int:
        """How many processes work on a task right now."""
        return len(self._busy)

    async def ask(self, task: bytes) -> bytes:
        """The answer to a task; `Exceeded` without one. A caller that is cancelled leaves the child its task."""
        if self._threads is None:
            self._threads = ThreadPoolExecutor(self._processes, thread_name_prefix="bounded")
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._run, task)

    def close(self) -> None:
        """End the processes and forget the tasks that wait."""
        threads, self._threads = self._threads, None
        if threads is not None:
            threads.shutdown(wait=False, cancel_futures=True)
        for child in tuple(self._busy):
            child.kill()  # its thread waits for it
        while self._idle:
            _end(self._idle.pop())

    def _run(self, task: bytes) -> bytes:
        child = self._idle.pop() if self._idle else self._start()
        self._busy.add(child)
        alarm = threading.Timer(self._timeout_s, child.kill)
        alarm.daemon = True
        alarm.start()
        try:
            answer = _exchange(child, task)
        except BaseException:
            _end(child)
            raise
        finally:
            alarm.cancel()
            self._busy.discard(child)
        self._idle.append(child)
        return answer

    def _start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(  # noqa: S603 - the command is ours
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={name: os.environ[name] for name in _INHERITED if name in os.environ},
            start_new_session=True,
        )


def _exchange(child: subprocess.Popen[bytes], task: bytes) -> bytes:
    assert child.stdin is not None
    assert child.stdout is not None
    note = ""
    with suppress(OSError):  # it ended already: reading says so
        child.stdin.write(len(task).to_bytes(_LENGTH) + task)
        child.stdin.flush()
    while kind := child.stdout.read(1):
        size = int.from_bytes(child.stdout.read(_LENGTH))
        data = child.stdout.read(size)
        if len(data) == size and kind == _ANSWER:
            return data
        note = data.decode(errors="replace")
    raise Exceeded(note)


def _end(child: subprocess.Popen[bytes]) -> None:
    child.kill()
    for pipe in (child.stdin, child.stdout):
        with suppress(OSError):
            assert pipe is not None
            pipe.close()
    child.wait()


# ── the child ─────────────────────────────────────────────────────────────────────────────────────────────────────


def serve(
    handle: Callable[[bytes, Note], bytes],
    limits: Limits,
    *,
    source: BinaryIO | None = None,
    sink: BinaryIO | None = None,
) -> None:
    """Answer tasks from standard input until it ends. An exception of `handle` ends the process."""
    source, sink = source or sys.stdin.buffer, sink or sys.stdout.buffer
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends its children
    resource.setrlimit(resource.RLIMIT_AS, (limits.memory_bytes, limits.memory_bytes))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    def send(kind: bytes, data: bytes) -> None:
        sink.write(kind + len(data).to_bytes(_LENGTH) + data)
        sink.flush()

    while head := source.read(_LENGTH):
        task = source.read(int.from_bytes(head))
        used = resource.getrusage(resource.RUSAGE_SELF)
        allowed = math.ceil(used.ru_utime + used.ru_stime) + limits.cpu_s
        resource.setrlimit(resource.RLIMIT_CPU, (allowed, resource.getrlimit(resource.RLIMIT_CPU)[1]))
        send(_ANSWER, handle(task, lambda note: send(_NOTE, note.encode())))
