"""The notice to the administrator about malformed commands, and their retention."""

from datetime import datetime

from postroom.db.queries import Connection
from postroom.db.retention import Retention
from postroom.delivery.notices import Notice
from postroom.intake import store

RETENTION = (Retention(store.delete_old_malformed_commands, "malformed_command_retention"),)


async def report_malformed(connection: Connection, *, now: datetime | None) -> tuple[str, str] | None:
    """Mark new malformed commands as reported; return the notice about them."""
    count = await store.mark_malformed_notified(connection, now=now)
    things = "1 command" if count == 1 else f"{count} commands"
    text = f"{things} could not be accepted since the last notice.\n\nList them with: postroom malformed list\n"
    return (f"Postroom: {things} could not be read", text) if count else None


NOTICE = Notice("malformed_commands", "cleanup_interval", report_malformed)
