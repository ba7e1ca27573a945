"""Read reports in child processes with limits: see `postroom.runtime.bounded`.

A 1 MB message with 59 boundaries took the parser 13 s. A child has 512 MB of address space, 10 s of CPU and 60 s of
wall clock per message. A message that exceeds them counts as unreadable and is stored.
"""

import hashlib
from collections.abc import Callable

import structlog

from postroom.post.report import LARGEST, Report, ReportKind, read_report
from postroom.runtime.bounded import Children, Exceeded

PROCESSES = 2  # parsing needs CPU; more would take it from the workers of a small host

_log = structlog.get_logger()


class ReportReaders(Children):
    """The child processes that read reports. Closing it ends them."""

    def __init__(
        self,
        *,
        processes: int = PROCESSES,
        timeout_s: float = 60.0,
        parse: Callable[[bytes], Report] = read_report,
    ) -> None:
        super().__init__(processes=processes, timeout_s=timeout_s)
        self._parse = parse

    async def read(self, raw: bytes) -> Report:
        """The report in a message; one that exceeds the limits is `other`, with the reason `unreadable`."""
        try:
            return await self.call(None, self._parse, raw[:LARGEST])
        except (Exceeded, OSError) as error:
            _log.warning("report_unreadable", bytes=len(raw), error=type(error).__name__)
            return unreadable(raw)


def unreadable(raw: bytes) -> Report:
    """The report of a message that could not be read."""
    return Report(ReportKind.OTHER, hashlib.sha256(raw[:LARGEST]).hexdigest(), feedback_type="unreadable")
