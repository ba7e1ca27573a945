"""What Prometheus may ask about accounts.

| metric                             | says                                                                            |
|------------------------------------|---------------------------------------------------------------------------------|
| postroom_codes_wrong               | wrong codes that were tried within a day, over all addresses                    |
| postroom_tokens_collected_total    | tokens taken from the cursor, by what became of them: mailed, known, unmailable |
| postroom_tokens_stalled_seconds    | how long a running transaction (`pid`) has held back committed tokens, or 0     |
"""

from prometheus_client import Counter, Gauge

from postroom.accounts.model import CollectorStall
from postroom.runtime.metrics import REGISTRY

WRONG_CODES = Gauge(
    "postroom_codes_wrong", "Wrong codes that were tried within a day, over all addresses", registry=REGISTRY
)
COLLECTED = Counter(
    "postroom_tokens_collected", "Tokens taken from the cursor, by what became of them", ["result"], registry=REGISTRY
)
STALLED_SECONDS = Gauge(
    "postroom_tokens_stalled_seconds",
    "How long a running transaction has held back committed tokens; 0 if none has",
    ["pid"],
    registry=REGISTRY,
)


def show_stall(stall: CollectorStall) -> None:
    """Show the holder of today, and not those of yesterday."""
    STALLED_SECONDS.clear()
    holder = str(stall.holder_pid) if stall.is_stalled and stall.holder_pid else ""
    STALLED_SECONDS.labels(holder).set(stall.seconds if stall.is_stalled else 0)
