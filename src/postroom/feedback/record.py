"""Record reports in the caller's transaction: store, count, append facts, suppress.

Everything is set-based: one statement for any number of reports. A known report changes nothing.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from postroom.db.queries import Connection, arrays
from postroom.feedback import store
from postroom.feedback.model import (
    LONGEST_TEXT,
    SESSION,
    Feedback,
    FeedbackKind,
    NewSuppression,
    RefusedRecipient,
    classify,
    report_identity,
    scope_of,
)
from postroom.post.text import storable


async def record(connection: Connection, feedback: Sequence[Feedback], *, now: datetime | None = None) -> int:
    """Store bounces, complaints and unsubscribes, and suppress their addresses; returns the number of new reports."""
    return await store.record_feedback(connection, now=now, **_columns(feedback)) if feedback else 0


async def record_acceptances(
    connection: Connection, accepted: Sequence[tuple[int, str]], *, now: datetime | None = None
) -> int:
    """Record the deliveries and addresses of accepted mail; returns the number of ended holds removed, usually 0."""
    if not accepted:
        return 0
    delivery_ids, addresses = zip(*accepted, strict=True)
    return await store.record_acceptances(connection, delivery_id=delivery_ids, address=addresses, now=now)


async def record_refusals(
    connection: Connection,
    refusals: Sequence[RefusedRecipient],
    *,
    accepted: Sequence[tuple[int, str]] = (),
    now: datetime | None = None,
) -> int:
    """Record the recipients that a session accepted and those that it rejected, in the ledger's transaction."""
    await record_acceptances(connection, accepted, now=now)
    return await record(connection, bounces_of(refusals), now=now)


def bounces_of(refusals: Iterable[RefusedRecipient]) -> list[Feedback]:
    """Rejections in the SMTP session as bounces. They need no proof: Postroom received the replies itself. Pure."""
    return [
        Feedback(
            kind=FeedbackKind.BOUNCE,
            classification=classify(refusal.code, refusal.enhanced, refusal.text, stage=refusal.stage),
            address=refusal.address,
            origin=SESSION,
            report_id=report_identity(SESSION, refusal.delivery_id, refusal.attempt_no, refusal.address.lower()),
            is_verified=True,
            delivery_id=refusal.delivery_id,
            code=refusal.code,
            enhanced=refusal.enhanced,
            text=storable(refusal.text, LONGEST_TEXT),
        )
        for refusal in refusals
    ]


def _columns(feedback: Sequence[Feedback]) -> dict[str, list[Any]]:
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
