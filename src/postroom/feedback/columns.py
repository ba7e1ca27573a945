"""Reports and suppressions as columns of one statement."""

from collections.abc import Sequence
from typing import Any

from postroom.feedback.model import Bounce, Complaint, Feedback, FeedbackKind, NewSuppression, scope_of


def feedback_columns(feedback: Sequence[Feedback]) -> dict[str, list[Any]]:
    """The arguments of `record_feedback`."""
    bounces = [each if isinstance(each, Bounce) else None for each in feedback]
    return {
        "kind": [_kind(each).value for each in feedback],
        "class": [each.classification.value if each else None for each in bounces],
        "delivery_id": [each.delivery_id for each in feedback],
        "address": [each.address for each in feedback],
        "code": [each.code if each else None for each in bounces],
        "enhanced": [each.enhanced if each else None for each in bounces],
        "text": [each.text for each in feedback],
        "is_verified": [each.is_verified for each in feedback],
        "origin": [each.origin for each in feedback],
        "report_id": [each.report_id for each in feedback],
        "reported_at": [each.reported_at for each in feedback],
    }


def suppression_columns(suppressions: Sequence[NewSuppression]) -> dict[str, list[Any]]:
    """The arguments of `merge_suppressions`."""
    return {
        "address": [each.email for each in suppressions],
        "scope": [(each.scope or scope_of(each.reason)).value for each in suppressions],
        "reason": [each.reason.value for each in suppressions],
        "origin": [each.origin or "api" for each in suppressions],
        "campaign_id": [each.campaign_id for each in suppressions],
        "detail": [each.detail for each in suppressions],
    }


def _kind(feedback: Feedback) -> FeedbackKind:
    if isinstance(feedback, Bounce):
        return FeedbackKind.BOUNCE
    return FeedbackKind.COMPLAINT if isinstance(feedback, Complaint) else FeedbackKind.UNSUBSCRIBE
