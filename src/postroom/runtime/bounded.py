"""Call functions on untrusted input in child processes with limits.

Parsers of mail and template engines can use seconds of CPU and gigabytes of memory for a few kilobytes of input. In a
thread they hold the interpreter lock meanwhile: three threads that parse 120 kB with 60 boundaries kept the event loop
waiting for 264 ms. A child process has an address-space limit, a CPU limit per call and a timeout by the clock. It has
no secret in its environment, writes no file, dumps no core, and has a lower priority than its parent. A child that
exceeds a limit is killed and replaced; the caller gets `Exceeded`.

A call is the module and name of a function and its arguments, in MessagePack; the function's annotations say how to
decode arguments and result. `BadInput` reaches the caller; any other exception ends the child. Children start when they
are needed, stay warm, and end when their parent ends, because their standard input ends.
"""

import asyncio
import importlib
import inspect
import math
import os
import resource
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from typing import Any, BinaryIO, ParamSpec, TypeVar, get_type_hints

import msgspec

from postroom.errors import BadInput, FieldError

_LENGTH = 4  # bytes of the length before each message
_NOTE, _RESULT, _REFUSED = b"n", b"r", b"b"
_INHERITED = ("PATH", "PYTHONPATH", "PYTHONHOME", "LD_LIBRARY_PATH", "LANG", "TZ")
_NICENESS = 5
"""If both need a whole core, a child gets a quarter and the process that serves clients gets the rest."""
_TIMEOUT_S = 60.0
"""Wall-clock timeout, for children that wait; the CPU limit ends the others, on a loaded machine much later."""

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
_Answer = tuple[bytes, bytes]
_encode = msgspec.msgpack.Encoder().encode


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one child."""

    memory_bytes: int = 512 * 1024 * 1024
    cpu_s: int = 10  # of one call


class Exceeded(Exception):  # noqa: N818 - a condition of the call, which callers turn into their own error
    """The child died during the call or timed out. `note` is its last note."""

    def __init__(self, note: str) -> None:
        super().__init__(note)
        self.note = note


@dataclass(frozen=True, slots=True)
class _Job:
    key: str | None
    task: bytes
    answer: "Future[_Answer]" = field(default_factory=Future)


class Children:
    """A few processes for one kind of call, for any event loop. `close` ends them; else they end with this process.

    Calls with the same key use at most one process less than the total, so that one client cannot occupy them all.
    """

    def __init__(self, *, processes: int, timeout_s: float = _TIMEOUT_S, limits: Limits | None = None) -> None:
        self._processes, self._timeout_s, self._limits = processes, timeout_s, limits or Limits()
        self._threads: ThreadPoolExecutor | None = None
        self._lock = threading.Lock()  # guards the next two, because threads dispatch too
        self._waiting: list[_Job] = []
        self._working: Counter[str | None] = Counter()
        self._idle: list[subprocess.Popen[bytes]] = []
        self._busy: set[subprocess.Popen[bytes]] = set()

    @property
    def busy(self) -> int:
        """The number of processes that work on a call."""
        return len(self._busy)

    async def call(
        self,
        key: str | None,
        function: Callable[Arguments, Result],
        *arguments: Arguments.args,
        **named: Arguments.kwargs,
    ) -> Result:
        """The function's result, or `Exceeded`. A cancelled caller does not stop the child's call."""
        given = inspect.signature(function).bind(*arguments, **named).arguments
        job = _Job(key, _encode((function.__module__, function.__qualname__, given)))
        with self._lock:
            self._waiting.append(job)
        self._dispatch()
        kind, answer = await asyncio.wrap_future(job.answer)
        if kind == _REFUSED:
            raise BadInput(msgspec.msgpack.decode(answer, type=list[FieldError]))
        result: Result = msgspec.msgpack.decode(answer, type=_hints(function)["return"])
        return result

    def close(self) -> None:
        """End the processes and cancel waiting calls."""
        with self._lock:
            threads, self._threads = self._threads, None
            waiting, self._waiting = self._waiting, []
        for job in waiting:
            job.answer.cancel()
        if threads is not None:
            threads.shutdown(wait=False)
        for child in tuple(self._busy):
            child.kill()  # its thread waits for it
        while self._idle:
            _end(self._idle.pop())

    def _dispatch(self) -> None:
        with self._lock:
            for job in tuple(self._waiting):
                if self._working.total() < self._processes and self._may_start(job.key):
                    self._waiting.remove(job)
                    self._working[job.key] += 1
                    self._threads = self._threads or ThreadPoolExecutor(self._processes, thread_name_prefix="bounded")
                    self._threads.submit(self._work, job)

    def _may_start(self, key: str | None) -> bool:
        return key is None or self._working[key] < max(1, self._processes - 1)

    def _work(self, job: _Job) -> None:
        try:
            if job.answer.set_running_or_notify_cancel():
                job.answer.set_result(self._run(job.task))
        except BaseException as error:  # noqa: BLE001 - the caller raises it
            job.answer.set_exception(error)
        finally:
            with self._lock:
                self._working[job.key] -= 1
                self._working += Counter()  # drops keys without work
            self._dispatch()

    def _run(self, task: bytes) -> _Answer:
        child = self._idle.pop() if self._idle else _start(self._limits)
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


def _start(limits: Limits) -> subprocess.Popen[bytes]:
    # Not `-m`: a function that calls `note` would import this module a second time, with another `note`.
    code = f"from postroom.runtime.bounded import Limits, serve; serve({limits!r})"
    return subprocess.Popen(  # noqa: S603 - a fixed command
        [sys.executable, "-P", "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={name: os.environ[name] for name in _INHERITED if name in os.environ},
        # Ctrl-C does not reach it. A session of its own would be a scheduling group of its own, where niceness
        # has no effect on the parent's share (Linux autogroups).
        process_group=0,
    )


def _exchange(child: subprocess.Popen[bytes], task: bytes) -> _Answer:
    assert child.stdin is not None
    assert child.stdout is not None
    last_note = ""
    with suppress(OSError):  # it has already ended; the read detects that
        child.stdin.write(len(task).to_bytes(_LENGTH) + task)
        child.stdin.flush()
    while kind := child.stdout.read(1):
        size = int.from_bytes(child.stdout.read(_LENGTH))
        data = child.stdout.read(size)
        if len(data) == size and kind != _NOTE:
            return kind, data
        last_note = data.decode(errors="replace")
    raise Exceeded(last_note)


def _end(child: subprocess.Popen[bytes]) -> None:
    child.kill()
    for pipe in (child.stdin, child.stdout):
        with suppress(OSError):
            assert pipe is not None
            pipe.close()
    child.wait()


@cache
def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    return get_type_hints(function)


# ── the child ─────────────────────────────────────────────────────────────────────────────────────────────────────


def note(text: str) -> None:
    """In a child: report the current part of the work, for `Exceeded`. No effect elsewhere."""
    if _sink is not None:
        _send(_sink, _NOTE, text.encode())


_sink: BinaryIO | None = None


def serve(limits: Limits) -> None:
    """Serve calls from standard input until it ends."""
    global _sink
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends its children
    os.nice(_NICENESS)
    resource.setrlimit(resource.RLIMIT_AS, (limits.memory_bytes, limits.memory_bytes))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    source, _sink = sys.stdin.buffer, sys.stdout.buffer
    while head := source.read(_LENGTH):
        task = source.read(int.from_bytes(head))
        used = resource.getrusage(resource.RUSAGE_SELF)
        allowed = math.ceil(used.ru_utime + used.ru_stime) + limits.cpu_s
        resource.setrlimit(resource.RLIMIT_CPU, (allowed, resource.getrlimit(resource.RLIMIT_CPU)[1]))
        _send(_sink, *_answer(task))


def _answer(task: bytes) -> _Answer:
    module, name, given = msgspec.msgpack.decode(task)
    function = getattr(importlib.import_module(module), name)
    hints = _hints(function)
    try:
        return _RESULT, _encode(function(**{key: msgspec.convert(value, hints[key]) for key, value in given.items()}))
    except BadInput as refused:
        return _REFUSED, _encode(refused.errors)


def _send(sink: BinaryIO, kind: bytes, data: bytes) -> None:
    sink.write(kind + len(data).to_bytes(_LENGTH) + data)
    sink.flush()
