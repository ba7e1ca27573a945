"""Metrics of feedback.

| metric                               | value                                                                |
|--------------------------------------|----------------------------------------------------------------------|
| postroom_feedback_messages_total     | received messages, by source and kind                                |
| postroom_feedback_not_kept_total     | messages that are not reports and were not stored: known or too many |
| postroom_feedback_webhooks_total     | events of providers, by provider and result                          |
"""

from prometheus_client import Counter

from postroom.runtime.metrics import REGISTRY

REPORTS = Counter(
    "postroom_feedback_messages",
    "Received messages by source and kind",
    ["origin", "kind"],
    registry=REGISTRY,
)
NOT_KEPT = Counter(
    "postroom_feedback_not_kept",
    "Messages that are not reports and were not stored: duplicates, or over the limit per hour",
    registry=REGISTRY,
)
WEBHOOKS = Counter(
    "postroom_feedback_webhooks",
    "Events of providers: recorded, repeated, ignored, rejected",
    ["provider", "result"],
    registry=REGISTRY,
)
