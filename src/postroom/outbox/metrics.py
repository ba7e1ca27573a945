"""Prometheus metrics of the outbox.

Every instance exports every pair, including those led by other instances or by none: a pair without a leader must stay
visible. Across instances use the `max` of a gauge and the `sum` of a counter.

| metric                            | value                                                                            |
|-----------------------------------|----------------------------------------------------------------------------------|
| postroom_outbox_published_total   | messages published by this process, by topic and publisher                       |
| postroom_outbox_errors_total      | batches that this process failed to publish                                      |
| postroom_outbox_leader            | 1 for a pair that this process leads, 0 for any other                            |
| postroom_outbox_status            | 1 for the current status of a pair (ACTIVE, PAUSED, FAILED), 0 for the others    |
| postroom_outbox_lag_events        | unpublished events of a pair, counted up to a bound                              |
| postroom_outbox_lag_seconds       | age of the oldest of them by its `occurred_at`, which applications may set       |
| postroom_outbox_stalled_seconds   | how long the transaction `pid` has held back committed events, or 0              |
"""

from collections.abc import Iterable

from prometheus_client import Counter, Gauge

from postroom.outbox.model import ProgressLine, PublisherStatus, Stall, Subscription
from postroom.runtime.metrics import REGISTRY

_PAIR = ["topic", "publisher"]

PUBLISHED = Counter("postroom_outbox_published", "Messages published by the outbox", _PAIR, registry=REGISTRY)
ERRORS = Counter("postroom_outbox_errors", "Batches that could not be published", _PAIR, registry=REGISTRY)
LEADER = Gauge(
    "postroom_outbox_leader", "1 for a pair that this process leads, 0 for any other", _PAIR, registry=REGISTRY
)
STATUS = Gauge(
    "postroom_outbox_status",
    "1 for the current status of a pair, 0 for the others",
    ["topic", "publisher", "status"],
    registry=REGISTRY,
)
LAG_EVENTS = Gauge(
    "postroom_outbox_lag_events", "Unpublished events of a pair, counted up to a bound", _PAIR, registry=REGISTRY
)
LAG_SECONDS = Gauge(
    "postroom_outbox_lag_seconds",
    "Age of the oldest unpublished event by its `occurred_at`; an import of old events shows a lag of years",
    _PAIR,
    registry=REGISTRY,
)
STALLED_SECONDS = Gauge(
    "postroom_outbox_stalled_seconds",
    "Seconds for which an open transaction has held back committed events; 0 if none does",
    ["pid"],
    registry=REGISTRY,
)


def show_progress(lines: Iterable[ProgressLine], led: Iterable[Subscription], stall: Stall | None) -> None:
    """Export the existing pairs and remove the series of deleted ones."""
    ours = set(led)
    for gauge in (LEADER, STATUS, LAG_EVENTS, LAG_SECONDS, STALLED_SECONDS):
        gauge.clear()
    for line in lines:
        pair = Subscription(line.topic, line.publisher)
        LEADER.labels(*pair).set(pair in ours)
        LAG_EVENTS.labels(*pair).set(line.lag_events)
        LAG_SECONDS.labels(*pair).set(line.lag_seconds)
        for status in PublisherStatus:
            STATUS.labels(*pair, status).set(status is line.status)
    STALLED_SECONDS.labels(str(stall.pid) if stall and stall.pid else "").set(stall.seconds if stall else 0)
