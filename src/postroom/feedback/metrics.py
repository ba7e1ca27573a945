"""Metrics of feedback."""

from postroom.runtime.metrics import counter

REPORTS = counter("postroom_feedback_messages", "Received messages by source and kind", ["origin", "kind"])
NOT_KEPT = counter(
    "postroom_feedback_not_kept",
    "Messages that are not reports and were not stored: duplicates, or over the limit per hour",
)
WEBHOOKS = counter(
    "postroom_feedback_webhooks", "Events of providers: recorded, repeated, ignored, rejected", ["provider", "result"]
)
