"""Reports and suppressions as columns of one statement."""

from collections.abc import Sequence
from typing import Any

from postroom.db.queries import arrays
from postroom.feedback.model import Feedback, FeedbackKind, NewSuppression, scope_of


def feedback_columns(feedback: Sequence[Feedback]) -> dict[str, list[Any]]:
    """The arguments of `record_feedback`."""
    bounces = [each if each.kind is FeedbackKind.BOUNCE else None for each in feedback]
    return {
        **arrays(
            feedback, "kind", "delivery_id", "address", "text", "is_verified", "origin", "report_id", "reported_at"
        ),
        "class": [each and each.classification for each in bounces],
        "code": [each and each.code for each in bounces],
        "enhanced": [each and each.enhanced for each in bounces],
    }


def suppression_columns(suppressions: Sequence[NewSuppression]) -> dict[str, list[Any]]:
    """The arguments of `merge_suppressions`."""
    return {
        **arrays(suppressions, "reason", "campaign_id", "detail", address="email"),
        "scope": [each.scope or scope_of(each.reason) for each in suppressions],
        "origin": [each.origin or "api" for each in suppressions],
    }
