"""The notice to the administrator about a relay that does not answer."""

from datetime import datetime

from postroom.db.queries import Connection
from postroom.delivery.notices import Notice
from postroom.delivery.ways_out import store


async def report_outages(connection: Connection, *, now: datetime | None) -> tuple[str, str] | None:
    """The notice about outages that began after the last notice."""
    outages = await store.list_new_outages(connection, now=now)
    if not outages:
        return None
    lines = [f"{each.name}: every attempt ends at {each.stage}: {each.detail}" for each in outages]
    text = "\n".join(lines) + "\n\nWaiting mail leaves as soon as the server answers. See: postroom doctor\n"
    return (f"Postroom: {outages[0].name} does not answer", text)


NOTICE = Notice("relay", "cleanup_interval", report_outages)
