"""Read, attribute and record received messages. Every source of reports ends here.

Messages are parsed outside the transaction and the event loop; messages of strangers in child processes (`reading`). A
message that is not a report is stored truncated for an operator, up to a limit per hour; an automatic reply is only
counted.
"""

import asyncio
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from postroom.db.pool import Pool
from postroom.db.queries import Connection
from postroom.feedback import record, store
from postroom.feedback.attribution import Candidates, Incoming, ReturnPaths, attribute, find_candidates
from postroom.feedback.metrics import NOT_KEPT, REPORTS
from postroom.feedback.model import Feedback, report_identity
from postroom.post.report import Failure, Report, ReportKind, read_report

READ_ASIDE_BYTES = 16 * 1024  # smaller messages are parsed in less time than a child process needs
KEPT_BYTES = 64 * 1024  # of an unread report: headers and the first part, for a person
MOST_KEPT, MOST_KEPT_PER_PEER = 500, 20
"""Messages per hour that are not reports: at most 32 MB. Messages in an operator's files are all stored."""

Read = Callable[[bytes], Awaitable[Report]]
_ACTING = (ReportKind.BOUNCE, ReportKind.COMPLAINT, ReportKind.UNSUBSCRIBE)


@dataclass(frozen=True, slots=True)
class Ingested:
    """The result of an ingest: messages by kind, new reports, and unverified reports."""

    messages: int = 0
    recorded: int = 0
    unverified: int = 0
    kinds: Counter[str] = field(default_factory=Counter)

    def __add__(self, other: "Ingested") -> "Ingested":
        return Ingested(
            self.messages + other.messages,
            self.recorded + other.recorded,
            self.unverified + other.unverified,
            self.kinds + other.kinds,
        )


async def ingest(
    pool: Pool,
    messages: Sequence[Incoming],
    *,
    paths: ReturnPaths,
    read: Read | None = None,
    now: datetime | None = None,
) -> Ingested:
    """Read messages and record their reports in one transaction. `read` is for messages of strangers."""
    reports = [await (read or _read)(message.raw) for message in messages]
    candidates = [
        find_candidates(report, message.envelope_to, paths) for message, report in zip(messages, reports, strict=True)
    ]
    async with pool.acquire() as connection, connection.transaction():
        feedback = await _attributed(connection, messages, reports, candidates, paths)
        recorded = await record.record(connection, feedback, now=now)
        await _keep_unread(connection, messages, reports, now=now)
    kinds = Counter(report.kind.value for report in reports)
    for message, report in zip(messages, reports, strict=True):
        REPORTS.labels(message.origin, report.kind.value).inc()
    return Ingested(len(messages), recorded, sum(not each.is_verified for each in feedback), kinds)


async def _read(raw: bytes) -> Report:
    if len(raw) < READ_ASIDE_BYTES:
        return read_report(raw)
    return await asyncio.to_thread(read_report, raw)


async def _attributed(
    connection: Connection,
    messages: Sequence[Incoming],
    reports: Sequence[Report],
    candidates: Sequence[Candidates],
    paths: ReturnPaths,
) -> list[Feedback]:
    ids = sorted({delivery_id for each in candidates for delivery_id in each.ids})
    known = await store.find_sent(connection, delivery_ids=ids) if ids else {}
    reports = await _without_erased(connection, reports, ids) if ids else reports
    return [
        feedback
        for message, report, found in zip(messages, reports, candidates, strict=True)
        if report.kind in _ACTING
        for feedback in attribute(report, message.origin, found, known, keys=paths.keys)
    ]


async def _without_erased(connection: Connection, reports: Sequence[Report], ids: Sequence[int]) -> list[Report]:
    """Replace addresses that were erased after the mail was sent by their pseudonyms."""
    failures = [failure for report in reports for failure in report.failures]
    named = {each for failure in failures for each in (failure.address, failure.original) if each is not None}
    erased = await store.find_erased(connection, addresses=sorted(named), delivery_ids=ids)

    def renamed(failure: Failure) -> Failure:
        text = failure.text
        for address, pseudonym in erased.items():
            text = re.sub(re.escape(address), pseudonym, text, flags=re.IGNORECASE)
        there = {name: erased.get(name or "", name) for name in (failure.address, failure.original)}
        return replace(failure, address=there[failure.address], original=there[failure.original], text=text)

    if not erased:
        return list(reports)
    return [replace(report, failures=tuple(map(renamed, report.failures))) for report in reports]


async def _keep_unread(
    connection: Connection, messages: Sequence[Incoming], reports: Sequence[Report], *, now: datetime | None
) -> None:
    unread = [
        (message, report) for message, report in zip(messages, reports, strict=True) if report.kind is ReportKind.OTHER
    ]
    if unread:
        kept = await store.keep_unread(
            connection,
            now=now,
            most=MOST_KEPT,
            most_per_peer=MOST_KEPT_PER_PEER,
            peer=[message.peer for message, _ in unread],
            origin=[message.origin for message, _ in unread],
            reason=[report.feedback_type or "no_report" for _, report in unread],
            report_id=[report_identity("unread", report.identity) for _, report in unread],
            raw=[message.raw[:KEPT_BYTES] for message, _ in unread],
        )
        NOT_KEPT.inc(len(unread) - kept)
