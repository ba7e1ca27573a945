"""Mails in pages, as clients of Resend turn them."""

from postroom.db.pool import Pool
from postroom.intake.resend import store
from postroom.intake.resend.model import ListedEmail


async def list_emails(
    pool: Pool, *, limit: int, after: int | None = None, before: int | None = None
) -> tuple[list[ListedEmail], bool]:
    """Newest first: what follows `after` in the list, or stands just before `before`; and whether there is more."""
    async with pool.acquire() as connection:
        found = await store.list_emails(connection, older_than=after, newer_than=before, page_limit=limit + 1)
    has_more = len(found) > limit
    return (found[-limit:] if before is not None else found[:limit]), has_more
