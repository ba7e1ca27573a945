"""Reads for Resend's clients beyond the delivery service: pages of mails, and the scheduled time of a repeated mail."""

from dataclasses import replace

from postroom.db.pool import Pool
from postroom.delivery.check import CheckedRequest
from postroom.dropins.resend import store
from postroom.dropins.resend.model import ListedEmail


async def list_emails(
    pool: Pool, *, limit: int, after: int | None = None, before: int | None = None
) -> tuple[list[ListedEmail], bool]:
    """List mails newest first, behind `after` or just before `before`; also return whether there are more."""
    found = await store.list_emails(pool, older_than=after, newer_than=before, page_limit=limit + 1)
    has_more = len(found) > limit
    return (found[-limit:] if before is not None else found[:limit]), has_more


async def at_first_time(pool: Pool, request: CheckedRequest) -> CheckedRequest:
    """The request with the time that the first request with its idempotency key was given."""
    first = await store.find_send_time(pool, source=request.source, idempotency_key=request.idempotency_key)
    return replace(request, send_at=first)
