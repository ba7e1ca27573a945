"""Metrics of tracking."""

from postroom.runtime.metrics import counter, gauge

HITS = counter("postroom_tracking_hits", "Opens and clicks written; `machine` is yes or no", ["hit", "machine"])
HITS_DROPPED = counter(
    "postroom_tracking_hits_dropped",
    "Hits lost: the buffer was full (full), or the database rejected them (refused)",
    ["cause"],
)
HITS_WAITING = gauge("postroom_tracking_hits_waiting", "Hits in memory, not yet written")
UNSUBSCRIBES = counter("postroom_unsubscribes", "New unsubscribes, by origin", ["origin"])
