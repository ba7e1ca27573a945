"""The notice to the administrator about complaints, and the retention of reports. Suppressions stay."""

from datetime import datetime, timedelta

from postroom.db.queries import Connection
from postroom.db.retention import Retention
from postroom.feedback import store
from postroom.feedback.store import Unreported

MOST_NAMED = 20  # addresses in a notice, so that it stays readable

RETENTION = (
    Retention(store.delete_old_bounces, "bounce_retention"),
    Retention(store.delete_old_unread, timedelta(days=30)),  # raw mail: time to look at it, and no longer
    Retention(store.delete_old_tokens, timedelta(days=2)),  # longer than Mailgun's `WINDOW`, in which one is accepted
)


async def report_complaints(connection: Connection, *, now: datetime | None) -> tuple[str, str] | None:
    """Mark new complaints as reported; returns the notice about them."""
    found = await store.mark_complaints_reported(connection, now=now)
    return (_subject(found), _text(found)) if found.complaints else None


def _subject(found: Unreported) -> str:
    people = "1 person" if found.complaints == 1 else f"{found.complaints} people"
    return f"Postroom: {people} complained"


def _text(found: Unreported) -> str:
    """The text of the notice. It names no address, because mail is stored in many places."""
    named = ", ".join(str(delivery_id) for delivery_id in found.delivery_ids[:MOST_NAMED])
    more = len(found.delivery_ids) - MOST_NAMED
    who = "1 recipient" if found.complaints == 1 else f"{found.complaints} recipients"
    reported = f"{who} reported mail from here as spam since the last notice."
    ended = "Every address that the reports name is suppressed and gets no more mail."
    lines = [f"{reported} {ended}", "", f"Campaigns concerned: {found.campaigns}"]
    if named:
        lines.append(f"Deliveries: {named}{f' and {more} more' if more > 0 else ''}")
    return "\n".join([*lines, "", "List them with: postroom feedback list --kind complaint", ""])
