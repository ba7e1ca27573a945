"""What Prometheus may ask about what comes back.

| metric                               | says                                                                 |
|--------------------------------------|----------------------------------------------------------------------|
| postroom_feedback_messages_total     | messages that came in, by way and by what they turned out to be       |
| postroom_feedback_not_kept_total     | messages that are no reports and were not kept: known, or too many   |
| postroom_feedback_webhooks_total     | events of providers, by provider and what was made of them            |
"""

from prometheus_client import Counter

from postroom.runtime.metrics import REGISTRY

REPORTS = Counter(
    "postroom_feedback_messages",
    "Messages that came back, by way and by what they turned out to be",
    ["origin", "kind"],
    registry=REGISTRY,
)
NOT_KEPT = Counter(
    "postroom_feedback_not_kept",
    "Messages that are no reports and were not kept: already known, or over the bound of the hour",
    registry=REGISTRY,
)
WEBHOOKS = Counter(
    "postroom_feedback_webhooks",
    "Events of providers: recorded, repeated, ignored, refused",
    ["provider", "result"],
    registry=REGISTRY,
)
