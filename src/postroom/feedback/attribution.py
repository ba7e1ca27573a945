"""Find the delivery that a report is about, and decide whether to trust the report. Pure.

A report is trusted if it carries the return path or the Message-ID of a delivery (both contain an HMAC), and only about
recipients of that delivery. Every recipient of a mail knows both, so a report about one of several recipients only
holds an address until a second delivery says the same (`functions/report_effects.sql`). A report about a forwarded mail
names an address that Postroom never wrote to; if it carries the return path and the delivery had one recipient, it is
about that recipient. A Message-ID is not sufficient for that: every reply to the mail quotes it. Untrusted reports are
stored and change nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from postroom.feedback.model import LONGEST_TEXT, Feedback, FeedbackKind, classify, report_identity
from postroom.post.keyed_hash import RoomKey
from postroom.post.message_id import find_message_ids, is_message_id_of
from postroom.post.report import Failure, Report
from postroom.post.return_path import find_return_paths
from postroom.post.text import storable

MOST_CANDIDATES = 50  # bounds the lookups that a hostile report can cause


@dataclass(frozen=True, slots=True)
class Incoming:
    """A received message: its bytes, its envelope recipients, its source, and its network."""

    raw: bytes = field(repr=False)
    origin: str
    envelope_to: tuple[str, ...] = ()
    peer: str | None = None


@dataclass(frozen=True, slots=True)
class ReturnPaths:
    """Verifies the return paths and Message-IDs of this room; without a key it accepts none."""

    domain: str | None = None
    keys: tuple[RoomKey, ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True)
class SentDelivery:
    """A delivery that is still stored: its time of acceptance and its recipients."""

    delivery_id: int
    created_at: datetime
    recipients: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Candidates:
    """Candidate deliveries of a report: those proven by a return path, and Message-IDs that are not verified yet."""

    proved: tuple[int, ...]
    message_ids: tuple[tuple[int, str, str], ...]

    @property
    def ids(self) -> list[int]:
        return [*self.proved, *(message_id[0] for message_id in self.message_ids)]


def find_candidates(report: Report, envelope_to: Sequence[str], paths: ReturnPaths) -> Candidates:
    """Every return path and Message-ID of ours in the report, the envelope's first."""
    proved: list[int] = []
    if paths.domain is not None:
        text = "\n".join((*envelope_to, report.evidence))
        proved = find_return_paths(text, domain=paths.domain, keys=paths.keys)
    message_ids = find_message_ids(report.evidence) if paths.keys else []
    return Candidates(tuple(proved[:MOST_CANDIDATES]), tuple(message_ids[:MOST_CANDIDATES]))


def attribute(
    report: Report, origin: str, candidates: Candidates, known: Mapping[int, SentDelivery], *, keys: Sequence[RoomKey]
) -> list[Feedback]:
    """The report's statements, tied to deliveries and recipients as far as they can be trusted."""
    proved = [known[delivery_id] for delivery_id in candidates.proved if delivery_id in known]
    named = [
        known[message_id[0]]
        for message_id in candidates.message_ids
        if message_id[0] in known and is_message_id_of(known[message_id[0]].created_at, message_id, keys=keys)
    ]
    return [
        _feedback(
            report, failure, origin, *_owner(failure, proved, named, candidates, is_only=len(report.failures) == 1)
        )
        for failure in report.failures
    ]


def _owner(
    failure: Failure,
    proved: Sequence[SentDelivery],
    named: Sequence[SentDelivery],
    candidates: Candidates,
    *,
    is_only: bool,
) -> tuple[int | None, str | None, bool]:
    """The delivery, the recipient, and whether both are certain."""
    believed = [*proved, *named]
    for position, sent in enumerate(believed):
        recipient = _recipient(failure, sent, is_only=is_only and position < len(proved))
        if recipient is not None:
            return sent.delivery_id, recipient, True
    if believed:  # one of that delivery's recipients; the report does not name it
        return believed[0].delivery_id, None, True
    # The tag may outlive its delivery; then the report cannot be compared with a list of recipients.
    return (candidates.proved[0] if candidates.proved else None), failure.original or failure.address, False


def _recipient(failure: Failure, sent: SentDelivery, *, is_only: bool) -> str | None:
    by_lower = {recipient.lower(): recipient for recipient in sent.recipients}
    for named in (failure.original, failure.address):
        if named is not None and named.lower() in by_lower:
            return by_lower[named.lower()]
    return sent.recipients[0] if is_only and len(by_lower) == 1 else None


def _feedback(
    report: Report,
    failure: Failure,
    origin: str,
    delivery_id: int | None,
    address: str | None,
    is_verified: bool,  # noqa: FBT001 - a column among columns
) -> Feedback:
    named = failure.address or failure.original or ""
    identity = report_identity("report", report.identity, delivery_id, (address or named).lower())
    return Feedback(
        kind=FeedbackKind(report.kind.value),
        classification=classify(failure.code, failure.enhanced, failure.text),
        code=failure.code,
        enhanced=failure.enhanced,
        address=address,
        origin=origin,
        report_id=identity,
        is_verified=is_verified,
        delivery_id=delivery_id,
        text=storable(failure.text, LONGEST_TEXT),
    )
