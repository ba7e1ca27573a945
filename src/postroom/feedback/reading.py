"""Reading reports in processes of their own: a hostile message costs its sender's connection and nothing else.

The parser of mail is pure Python, so a thread would still stop the event loop: 59 boundaries in 1 MB took 13 s of the
interpreter lock. A child process has no secret in its environment, 512 MB of addresses, 10 s of CPU for a message and
30 s by the clock. A child that exceeds them is killed and replaced; its message counts as unreadable and is kept.

Children read a length and a message from standard input and write a length and a report to standard output. They end
when their parent does, because their standard input ends.
"""

import asyncio
import hashlib
import os
import resource
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import BinaryIO

import msgspec
import structlog

from postroom.feedback.report import LARGEST, Report, ReportKind, read_report

MEMORY_BYTES = 512 * 1024 * 1024
CPU_S = 10
TIMEOUT_S = 30.0
PROCESSES = 2
_LENGTH = 4
_INHERITED = ("PATH", "PYTHONPATH", "PYTHONHOME", "LD_LIBRARY_PATH", "LANG", "TZ")
_FAILED = (OSError, asyncio.IncompleteReadError, TimeoutError, msgspec.MsgspecError)

_log = structlog.get_logger()
_decode = msgspec.msgpack.Decoder(Report).decode


class ReportReaders:
    """Some processes that read reports, started when they are needed. Close it to end them."""

    def __init__(
        self, *, processes: int = PROCESSES, timeout_s: float = TIMEOUT_S, command: Sequence[str] | None = None
    ) -> None:
        self._command = list(command or (sys.executable, "-m", "postroom.feedback.reading"))
        self._timeout_s = timeout_s
        self._places = asyncio.Semaphore(processes)
        self._idle: list[asyncio.subprocess.Process] = []
        self._busy: set[asyncio.subprocess.Process] = set()

    @property
    def busy(self) -> int:
        """How many processes read a message right now."""
        return len(self._busy)

    async def read(self, raw: bytes) -> Report:
        """What a message reports; one that ends its reader is `other`, with the reason `unreadable`."""
        async with self._places:
            child = self._idle.pop() if self._idle else await self._start()
            self._busy.add(child)
            try:
                async with asyncio.timeout(self._timeout_s):
                    report = await _ask(child, raw[:LARGEST])
            except _FAILED as error:
                _log.warning("report_unreadable", bytes=len(raw), error=type(error).__name__)
                await _end(child)
                return unreadable(raw)
            except BaseException:  # cancelled: its answer would be taken for that of the next message
                await _end(child)
                raise
            finally:
                self._busy.discard(child)
            self._idle.append(child)
            return report

    async def close(self) -> None:
        """End the processes."""
        for child in (*self._idle, *self._busy):
            await _end(child)
        self._idle.clear()

    async def _start(self) -> asyncio.subprocess.Process:
        environment = {name: os.environ[name] for name in _INHERITED if name in os.environ}
        return await asyncio.create_subprocess_exec(
            *self._command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env=environment,
            start_new_session=True,
        )


def unreadable(raw: bytes) -> Report:
    """The report of a message that could not be read."""
    return Report(ReportKind.OTHER, hashlib.sha256(raw[:LARGEST]).hexdigest(), feedback_type="unreadable")


async def _ask(child: asyncio.subprocess.Process, raw: bytes) -> Report:
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write(len(raw).to_bytes(_LENGTH) + raw)
    await child.stdin.drain()
    size = int.from_bytes(await child.stdout.readexactly(_LENGTH))
    return _decode(await child.stdout.readexactly(size))


async def _end(child: asyncio.subprocess.Process) -> None:
    with suppress(ProcessLookupError):
        child.kill()
    await child.wait()


# ── the child ─────────────────────────────────────────────────────────────────────────────────────────────────────


def serve(source: BinaryIO, sink: BinaryIO) -> None:
    """Read messages until the source ends."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    encode = msgspec.msgpack.Encoder().encode
    while head := source.read(_LENGTH):
        raw = source.read(int.from_bytes(head))
        used = resource.getrusage(resource.RUSAGE_SELF)
        allowed = int(used.ru_utime + used.ru_stime) + CPU_S
        resource.setrlimit(resource.RLIMIT_CPU, (allowed, resource.getrlimit(resource.RLIMIT_CPU)[1]))
        answer = encode(read_report(raw))
        sink.write(len(answer).to_bytes(_LENGTH) + answer)
        sink.flush()


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends its children
    serve(sys.stdin.buffer, sys.stdout.buffer)
