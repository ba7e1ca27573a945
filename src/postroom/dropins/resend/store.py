"""One function per statement of `queries.sql`."""

from datetime import datetime

import asyncpg

from postroom.db.queries import Connection, load
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


async def find_send_time(connection: Connection, *, source: str, idempotency_key: str | None) -> datetime | None:
    row = await QUERIES["find_send_time"].maybe(connection, source=source, idempotency_key=idempotency_key)
    return row["dated_at"] if row else None


async def list_emails(
    connection: Connection, *, older_than: int | None, newer_than: int | None, page_limit: int
) -> list[ListedEmail]:
    rows = await QUERIES["list_emails"].many(
        connection, older_than=older_than, newer_than=newer_than, page_limit=page_limit
    )
    return [_email(row) for row in rows]
