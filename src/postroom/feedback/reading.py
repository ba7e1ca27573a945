"""Reading reports in processes of their own, with limits: see `postroom.runtime.bounded`.

The parser of mail is pure Python, so a thread would still stop the event loop: 59 boundaries in 1 MB took 13 s of the
interpreter lock. A child has 512 MB of addresses, 10 s of CPU for a message and 30 s by the clock. A message that
exceeds them counts as unreadable and is kept.
"""

import hashlib
import sys
from collections.abc import Sequence
from typing import BinaryIO

import msgspec
import structlog

from postroom.post.report import LARGEST, Report, ReportKind, read_report
from postroom.runtime import bounded
from postroom.runtime.bounded import Children, Exceeded, Limits

TIMEOUT_S = 30.0
PROCESSES = 2

_log = structlog.get_logger()
_decode = msgspec.msgpack.Decoder(Report).decode
_encode = msgspec.msgpack.Encoder().encode


class ReportReaders:
    """Some processes that read reports, started when they are needed. Close it to end them."""

    def __init__(
        self, *, processes: int = PROCESSES, timeout_s: float = TIMEOUT_S, command: Sequence[str] | None = None
    ) -> None:
        command = command or (sys.executable, "-m", "postroom.feedback.reading")
        self._children = Children(command, processes=processes, timeout_s=timeout_s)

    @property
    def busy(self) -> int:
        """How many processes read a message right now."""
        return self._children.busy

    async def read(self, raw: bytes) -> Report:
        """What a message reports; one that ends its reader is `other`, with the reason `unreadable`."""
        try:
            return _decode(await self._children.ask(raw[:LARGEST]))
        except (Exceeded, OSError) as error:
            _log.warning("report_unreadable", bytes=len(raw), error=type(error).__name__)
            return unreadable(raw)

    async def close(self) -> None:
        """End the processes."""
        self._children.close()


def unreadable(raw: bytes) -> Report:
    """The report of a message that could not be read."""
    return Report(ReportKind.OTHER, hashlib.sha256(raw[:LARGEST]).hexdigest(), feedback_type="unreadable")


def serve(source: BinaryIO | None = None, sink: BinaryIO | None = None) -> None:
    """Read messages from standard input until it ends."""
    bounded.serve(lambda raw, _note: _encode(read_report(raw)), Limits(), source=source, sink=sink)


if __name__ == "__main__":
    serve()
