"""Prometheus metrics of accounts."""

from postroom.accounts.model import CollectorStall
from postroom.runtime.metrics import counter, gauge

WRONG_CODES = gauge("postroom_codes_wrong", "Wrong codes within a day, over all addresses")
COLLECTED = counter("postroom_tokens_collected", "Tokens collected: mailed, known, conflict, unmailable", ["result"])
STALLED_SECONDS = gauge(
    "postroom_tokens_stalled_seconds",
    "Time for which a running transaction has delayed committed tokens, or 0",
    ["pid"],
)


def show_stall(stall: CollectorStall) -> None:
    """Set the gauge for the current holder and clear previous holders."""
    STALLED_SECONDS.clear()
    holder = str(stall.holder_pid) if stall.is_stalled and stall.holder_pid else ""
    STALLED_SECONDS.labels(holder).set(stall.seconds if stall.is_stalled else 0)
