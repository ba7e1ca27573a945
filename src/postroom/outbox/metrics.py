"""Prometheus metrics of the outbox.

Every instance exports every pair, including those led by other instances or by none: a pair without a leader must stay
visible. Across instances use the `max` of a gauge and the `sum` of a counter.
"""

from collections.abc import Iterable

from postroom.outbox.model import ProgressLine, PublisherStatus, Stall, Subscription
from postroom.runtime.metrics import counter, gauge

_PAIR = ["topic", "publisher"]

PUBLISHED = counter("postroom_outbox_published", "Messages published by the outbox", _PAIR)
ERRORS = counter("postroom_outbox_errors", "Batches that could not be published", _PAIR)
LEADER = gauge("postroom_outbox_leader", "1 for a pair that this process leads, 0 for any other", _PAIR)
STATUS = gauge(
    "postroom_outbox_status", "1 for the current status of a pair, 0 for the others", ["topic", "publisher", "status"]
)
LAG_EVENTS = gauge("postroom_outbox_lag_events", "Unpublished events of a pair, counted up to a bound", _PAIR)
LAG_SECONDS = gauge(
    "postroom_outbox_lag_seconds",
    "Age of the oldest unpublished event by its `occurred_at`; an import of old events shows a lag of years",
    _PAIR,
)
STALLED_SECONDS = gauge(
    "postroom_outbox_stalled_seconds",
    "Seconds for which an open transaction has held back committed events; 0 if none does",
    ["pid"],
)


def show_progress(lines: Iterable[ProgressLine], led: Iterable[Subscription], stall: Stall | None) -> None:
    """Export the existing pairs and remove the series of deleted ones."""
    ours = set(led)
    for metric in (LEADER, STATUS, LAG_EVENTS, LAG_SECONDS, STALLED_SECONDS):
        metric.clear()
    for line in lines:
        pair = line.pair
        LEADER.labels(*pair).set(pair in ours)
        LAG_EVENTS.labels(*pair).set(line.lag_events)
        LAG_SECONDS.labels(*pair).set(line.lag_seconds)
        for status in PublisherStatus:
            STATUS.labels(*pair, status).set(status is line.status)
    STALLED_SECONDS.labels(str(stall.pid) if stall and stall.pid else "").set(stall.seconds if stall else 0)
