"""The history of one delivery in chronological order: acceptance, attempts, operators, opens, clicks and reports."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from postroom.dashboard.page import PageRequest
from postroom.delivery import service
from postroom.delivery.decision import NOWHERE
from postroom.delivery.model import Attempt, Delivery
from postroom.events.audit import list_audit
from postroom.events.kept import AuditEntry
from postroom.feedback.model import FeedbackKind, ReceivedReport
from postroom.feedback.service import ReportFilter, list_reports
from postroom.tracking.model import DeliveryEngagement
from postroom.tracking.service import find_engagement

AUDIT = "audit:read"
MOST_ENTRIES = 50
"""Reports and actions that are shown."""

_REPORTS = {
    FeedbackKind.BOUNCE: "Bounced",
    FeedbackKind.COMPLAINT: "Reported as spam",
    FeedbackKind.UNSUBSCRIBE: "Unsubscribed",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineEntry:
    """One event of a delivery; `hue` is the state whose colour it has."""

    at: datetime
    title: str
    hue: str = "queued"
    text: str | None = None  # a server's or a person's own words
    facts: Sequence[tuple[str, str]] = ()
    seconds: float | None = None  # duration of an attempt
    next_at: datetime | None = None


async def read_timeline(request: PageRequest, delivery: Delivery) -> list[TimelineEntry]:
    """All entries, oldest first. Actions of operators are shown to keys that may read the audit log."""
    attempts = await service.list_attempts(request.pool, delivery.id)
    reports, _more = await list_reports(request.pool, ReportFilter(delivery_id=delivery.id), limit=MOST_ENTRIES)
    actions: list[AuditEntry] = []
    if request.may(AUDIT):
        actions, _more = await list_audit(request.pool, subject=f"delivery:{delivery.id}", limit=MOST_ENTRIES)
    entries = [
        *_beginning(delivery, attempts),
        *map(_attempt, attempts),
        *_end(delivery, attempts),
        *engagement_entries(await find_engagement(request.pool, delivery.id)),
        *map(_report, reports),
        *map(_action, actions),
    ]
    return sorted(entries, key=lambda entry: entry.at)


def _beginning(delivery: Delivery, attempts: Sequence[Attempt]) -> Iterator[TimelineEntry]:
    """The acceptance and the rendering, which is the first step of an attempt that reaches a transport."""
    facts = [("lane", delivery.lane.value)]
    if delivery.idempotency_key:
        facts.append(("idempotency key", delivery.idempotency_key))
    yield TimelineEntry(at=delivery.created_at, title=f"Accepted from {delivery.source}", facts=facts)
    left_at = next((each.started_at for each in attempts if each.transport not in {None, NOWHERE}), None)
    rendered_at = delivery.rendered_at or left_at
    if rendered_at and (delivery.template_id or delivery.rendered_at):
        source = (("template", delivery.template_id), ("locale", delivery.locale))
        facts = [(name, value) for name, value in source if value]
        yield TimelineEntry(at=rendered_at, title="Rendered", facts=facts)


def _attempt(attempt: Attempt) -> TimelineEntry:
    said = [attempt.code, attempt.enhanced_code, attempt.reply_text]
    facts = {
        "stage": attempt.stage,
        "host": attempt.remote_host,
        "TLS": attempt.tls,
        "transport": attempt.transport,
    }
    return TimelineEntry(
        at=attempt.finished_at,
        title=f"Attempt {attempt.attempt_no}: {attempt.outcome}",
        hue=attempt.outcome,
        text=" ".join(str(part) for part in said if part) or None,
        facts=[(name, value) for name, value in facts.items() if value],
        seconds=(attempt.finished_at - attempt.started_at).total_seconds(),
        next_at=attempt.next_attempt_at,
    )


def _end(delivery: Delivery, attempts: Sequence[Attempt]) -> Iterator[TimelineEntry]:
    """The end, unless the last attempt shows it; and the next attempt of a waiting delivery.

    A delivery that could not be rendered for a retry has failed, and its last attempt was deferred.
    """
    state = delivery.state.value
    is_shown = bool(attempts) and (state == "sent" or state == attempts[-1].outcome == "failed")
    if delivery.finished_at and not is_shown:
        title = state.replace("_", " ").capitalize()
        reason = (delivery.reason or "").replace("_", " ")
        text = ": ".join(part for part in (reason, delivery.detail) if part)
        yield TimelineEntry(at=delivery.finished_at, title=title, hue=state, text=text or None)
    elif delivery.next_attempt_at:
        at = max(delivery.next_attempt_at, delivery.created_at)  # due at once: the clock went on while it was accepted
        yield TimelineEntry(at=at, title="Next attempt", hue="coming")


def engagement_entries(found: DeliveryEngagement | None) -> Iterator[TimelineEntry]:
    """First open and click. One by a machine, such as a mail scanner, is named as such."""
    if found is None:
        return
    pairs = (("Opened", found.first_open_at, found.first_human_open_at),
             ("Clicked", found.first_click_at, found.first_human_click_at))  # fmt: skip
    for title, any_at, human_at in pairs:
        if any_at is not None and any_at != human_at:
            yield TimelineEntry(at=any_at, title=f"{title} by a machine", hue="cancelled")
        if human_at is not None:
            yield TimelineEntry(at=human_at, title=title, hue="sent")


def _report(report: ReceivedReport) -> TimelineEntry:
    said = [report.code, report.enhanced, report.text]
    facts = [("origin", report.origin), ("verified", "yes" if report.verified else "no, without effect")]
    if report.classification:
        facts.append(("class", report.classification.value.replace("_", " ")))
    return TimelineEntry(
        at=report.reported_at,
        title=_REPORTS[report.kind],
        hue="failed",
        text=" ".join(str(part) for part in said if part) or None,
        facts=facts,
    )


def _action(entry: AuditEntry) -> TimelineEntry:
    return TimelineEntry(at=entry.at, title=f"{entry.action} by {entry.actor}", hue="person")
