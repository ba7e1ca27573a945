"""Prometheus metrics of accounts.

| metric                             | meaning                                                                         |
|------------------------------------|---------------------------------------------------------------------------------|
| postroom_codes_wrong               | wrong codes within a day, over all addresses                                    |
| postroom_tokens_collected_total    | tokens collected, by result: mailed, known, conflict, unmailable                |
| postroom_tokens_stalled_seconds    | time for which a transaction (`pid`) has delayed committed tokens, or 0         |
"""

from prometheus_client import Counter, Gauge

from postroom.accounts.model import CollectorStall
from postroom.runtime.metrics import REGISTRY

WRONG_CODES = Gauge("postroom_codes_wrong", "Wrong codes within a day, over all addresses", registry=REGISTRY)
COLLECTED = Counter("postroom_tokens_collected", "Tokens collected, by result", ["result"], registry=REGISTRY)
STALLED_SECONDS = Gauge(
    "postroom_tokens_stalled_seconds",
    "Time for which a running transaction has delayed committed tokens, or 0",
    ["pid"],
    registry=REGISTRY,
)


def show_stall(stall: CollectorStall) -> None:
    """Set the gauge for the current holder and clear previous holders."""
    STALLED_SECONDS.clear()
    holder = str(stall.holder_pid) if stall.is_stalled and stall.holder_pid else ""
    STALLED_SECONDS.labels(holder).set(stall.seconds if stall.is_stalled else 0)
