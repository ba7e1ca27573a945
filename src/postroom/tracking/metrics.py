"""What Prometheus may ask about tracking.

| metric                                   | says                                                                      |
|------------------------------------------|---------------------------------------------------------------------------|
| postroom_tracking_hits_total             | opens and clicks written, by kind of hit and by whether a machine asked   |
| postroom_tracking_hits_dropped_total     | hits lost: too many waited (full), or the database refused them (refused) |
| postroom_tracking_hits_waiting           | hits in memory, not yet written                                           |
| postroom_unsubscribes_total              | unsubscriptions that were news, by origin                                 |
"""

from prometheus_client import Counter, Gauge

from postroom.runtime.metrics import REGISTRY

HITS = Counter(
    "postroom_tracking_hits", "Opens and clicks written; `machine` is yes or no", ["hit", "machine"], registry=REGISTRY
)
HITS_DROPPED = Counter(
    "postroom_tracking_hits_dropped",
    "Hits lost: too many waited (full), or the database refused them (refused)",
    ["cause"],
    registry=REGISTRY,
)
HITS_WAITING = Gauge("postroom_tracking_hits_waiting", "Hits in memory, not yet written", registry=REGISTRY)
UNSUBSCRIBES = Counter("postroom_unsubscribes", "Unsubscriptions that were news", ["origin"], registry=REGISTRY)
