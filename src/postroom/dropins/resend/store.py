"""One function per statement of `queries.sql`."""

from datetime import datetime

import asyncpg

from postroom.db.queries import load
from postroom.delivery.model import DeliveryState, Lane, Recipient, RecipientKind, RecipientOutcome
from postroom.dropins.resend.model import ListedEmail
from postroom.post.address import Address

QUERIES = load("postroom.dropins.resend")


def _email(row: asyncpg.Record) -> ListedEmail:
    parts = zip(row["kinds"] or (), row["emails"] or (), row["outcomes"] or (), strict=True)
    return ListedEmail(
        id=row["id"],
        state=DeliveryState(row["state"]),
        lane=Lane(row["lane"]),
        attempt_count=row["attempt_count"],
        next_attempt_at=row["next_attempt_at"],
        created_at=row["created_at"],
        sender=Address(row["from_email"], row["from_name"]) if row["from_email"] else None,
        subject=row["subject"],
        recipients=tuple(
            Recipient(RecipientKind(kind), position, email, None, RecipientOutcome(outcome))
            for position, (kind, email, outcome) in enumerate(parts)
        ),
    )


def _send_time(row: asyncpg.Record) -> datetime:
    moment: datetime = row["dated_at"]
    return moment


find_send_time = QUERIES["find_send_time"].maybe_as(_send_time)
list_emails = QUERIES["list_emails"].many_as(_email)
