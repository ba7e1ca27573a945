"""Use cases of the inbox: list, read, clear."""

from postroom.db.pool import Pool
from postroom.events.audit import audited
from postroom.inbox import store
from postroom.inbox.errors import InboxMessageNotFound
from postroom.inbox.model import InboxEntry, InboxMessage
from postroom.runtime.page import Found, read_page


async def clear_inbox(pool: Pool, *, actor: str) -> int:
    """Delete every captured message; returns their number."""
    async with audited(pool, actor, "inbox.clear", "inbox") as (connection, note):
        cleared = await store.clear_inbox(connection)
        note.after = {"cleared": cleared}
    return cleared


async def get_inbox_message(pool: Pool, message_id: int) -> InboxMessage:
    message = await store.find_inbox_message(pool, message_id=message_id)
    if message is None:
        raise InboxMessageNotFound
    return message


async def list_inbox(
    pool: Pool, *, recipient: str | None = None, cursor: str | None = None, limit: int = 50
) -> Found[InboxEntry]:
    """A page of the inbox, newest first, and the cursor of the next page."""
    return await read_page(store.list_inbox, pool, cursor, limit, recipient=recipient)
