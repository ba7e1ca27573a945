"""Metrics of tracking.

| metric                                   | value                                                                     |
|------------------------------------------|---------------------------------------------------------------------------|
| postroom_tracking_hits_total             | opens and clicks written, by hit and by machine or person                 |
| postroom_tracking_hits_dropped_total     | hits lost: the buffer was full (full), or the database rejected (refused) |
| postroom_tracking_hits_waiting           | hits in memory, not yet written                                           |
| postroom_unsubscribes_total              | new unsubscribes, by origin                                               |
"""

from prometheus_client import Counter, Gauge

from postroom.runtime.metrics import REGISTRY

HITS = Counter(
    "postroom_tracking_hits", "Opens and clicks written; `machine` is yes or no", ["hit", "machine"], registry=REGISTRY
)
HITS_DROPPED = Counter(
    "postroom_tracking_hits_dropped",
    "Hits lost: the buffer was full (full), or the database rejected them (refused)",
    ["cause"],
    registry=REGISTRY,
)
HITS_WAITING = Gauge("postroom_tracking_hits_waiting", "Hits in memory, not yet written", registry=REGISTRY)
UNSUBSCRIBES = Counter("postroom_unsubscribes", "New unsubscribes, by origin", ["origin"], registry=REGISTRY)
