"""What Prometheus may ask about the outbox.

| metric                            | says                                                                             |
|-----------------------------------|----------------------------------------------------------------------------------|
| postroom_outbox_published_total   | messages handed over, by topic and publisher                                     |
| postroom_outbox_errors_total      | batches that could not be published                                              |
| postroom_outbox_leader            | 1 for each pair that this process leads                                          |
| postroom_outbox_lag_events        | events that wait for a pair this process leads, counted up to a bound            |
| postroom_outbox_lag_seconds       | the age of the oldest of them                                                    |
| postroom_outbox_stalled_seconds   | how long the transaction `pid` has held back committed events, or 0              |
"""

from collections.abc import Iterable

from prometheus_client import Counter, Gauge

from postroom.outbox.model import Pair, ProgressLine, Stall
from postroom.runtime.metrics import REGISTRY

_PAIR = ["topic", "publisher"]

PUBLISHED = Counter("postroom_outbox_published", "Messages handed over", _PAIR, registry=REGISTRY)
ERRORS = Counter("postroom_outbox_errors", "Batches that could not be published", _PAIR, registry=REGISTRY)
LEADER = Gauge("postroom_outbox_leader", "Pairs that this process leads", _PAIR, registry=REGISTRY)
LAG_EVENTS = Gauge("postroom_outbox_lag_events", "Events that wait, up to a bound", _PAIR, registry=REGISTRY)
LAG_SECONDS = Gauge("postroom_outbox_lag_seconds", "The age of the oldest event that waits", _PAIR, registry=REGISTRY)
STALLED_SECONDS = Gauge(
    "postroom_outbox_stalled_seconds", "How long a transaction has held back events", ["pid"], registry=REGISTRY
)


def show_progress(lines: Iterable[ProgressLine], led: Iterable[Pair], stall: Stall | None) -> None:
    """Show what is led today, and not what was led yesterday."""
    ours = set(led)
    for gauge in (LEADER, LAG_EVENTS, LAG_SECONDS, STALLED_SECONDS):
        gauge.clear()
    for line in lines:
        pair = Pair(line.topic, line.publisher)
        if pair in ours:
            LEADER.labels(*pair).set(1)
            LAG_EVENTS.labels(*pair).set(line.lag_events)
            LAG_SECONDS.labels(*pair).set(line.lag_seconds)
    STALLED_SECONDS.labels(str(stall.pid) if stall and stall.pid else "").set(stall.seconds if stall else 0)
