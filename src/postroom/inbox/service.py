"""Use cases of the inbox: search, read, wait, mark, request links, delete.

Without `sees_codes`, messages with the sign-in code of an operator do not exist for the caller (`model.CODES`).
"""

import asyncio
from dataclasses import asdict
from datetime import timedelta

from postroom.db.pool import Pool
from postroom.events.audit import audited, record_audit
from postroom.inbox import store
from postroom.inbox.aside import aside
from postroom.inbox.errors import InboxMessageNotFound, InboxWaitTimeout
from postroom.inbox.link_requests import LinkAnswer, request_links
from postroom.inbox.links import MessageLink, list_links
from postroom.inbox.model import InboxCounts, InboxEntry, InboxMessage, InboxPlace
from postroom.inbox.reader import read_message
from postroom.inbox.search import InboxFilter
from postroom.runtime.page import Found, read_page

POLL_S = 0.1
"""Interval at which a waiting caller looks for its message."""

LONGEST_WAIT = timedelta(minutes=1)  # proxies often end a request that takes longer


async def clear_inbox(pool: Pool, *, actor: str, sees_codes: bool) -> int:
    """Delete every captured message; returns their number."""
    async with audited(pool, actor, "inbox.clear", "inbox") as (connection, note):
        cleared = await store.clear_inbox(connection, sees_codes=sees_codes)
        note.after = {"cleared": cleared}
    return cleared


async def request_message_links(
    pool: Pool, message_id: int, *, actor: str, sees_codes: bool, allow_loopback: bool
) -> list[LinkAnswer]:
    """Request the links of a message. It is audited before: a request may count as a click at another server."""
    message = await get_inbox_message(pool, message_id, sees_codes=sees_codes)
    links = await aside(len(message.raw), links_of, message.raw)
    await record_audit(pool, actor, "inbox.request_links", f"inbox:{message_id}", after={"links": len(links)})
    return await request_links(links, allow_loopback=allow_loopback)


def links_of(raw: bytes) -> list[MessageLink]:
    read = read_message(raw)
    return list_links(read.html, read.text)


async def count_inbox(pool: Pool, *, sees_codes: bool) -> InboxCounts:
    return await store.count_inbox(pool, sees_codes=sees_codes)


async def delete_inbox_message(pool: Pool, message_id: int, *, actor: str, sees_codes: bool) -> None:
    async with audited(pool, actor, "inbox.delete", f"inbox:{message_id}") as (connection, _note):
        if not await store.delete_inbox_message(connection, message_id=message_id, sees_codes=sees_codes):
            raise InboxMessageNotFound


async def find_captured(pool: Pool, delivery_id: int, recipient: str, *, sees_codes: bool) -> int | None:
    """The id of the newest captured message of a delivery to this recipient."""
    return await store.find_captured(pool, recipient=recipient, delivery_id=delivery_id, sees_codes=sees_codes)


async def get_inbox_message(pool: Pool, message_id: int, *, sees_codes: bool) -> InboxMessage:
    found = await store.find_inbox_message(pool, message_id=message_id, sees_codes=sees_codes)
    return InboxMessageNotFound.unless(found)


async def open_inbox_message(pool: Pool, message_id: int, *, sees_codes: bool) -> InboxMessage:
    """The message, which is marked as read. That is not audited: the log would record who reads what."""
    message = await get_inbox_message(pool, message_id, sees_codes=sees_codes)
    await store.mark_inbox(pool, message_id=message_id, is_read=True, sees_codes=sees_codes)
    return message


async def find_place(pool: Pool, message_id: int, *, sees_codes: bool) -> InboxPlace:
    return await store.find_place(pool, message_id=message_id, sees_codes=sees_codes)


async def get_latest(pool: Pool, chosen: InboxFilter, *, sees_codes: bool) -> InboxMessage:
    """The newest message of a filter."""
    return InboxMessageNotFound.unless(await _find_latest(pool, chosen, sees_codes=sees_codes))


async def list_inbox(
    pool: Pool, chosen: InboxFilter, *, sees_codes: bool, cursor: str | None = None, limit: int = 50
) -> Found[InboxEntry]:
    """A page of the inbox, newest first, and the cursor of the next page."""
    return await read_page(store.list_inbox, pool, cursor, limit, sees_codes=sees_codes, **asdict(chosen))


async def mark_inbox(pool: Pool, message_id: int | None, *, is_read: bool, actor: str, sees_codes: bool) -> int:
    """Mark one message, or all of them with None, as read or unread; returns the number of marked ones."""
    subject = "inbox" if message_id is None else f"inbox:{message_id}"
    async with audited(pool, actor, "inbox.mark", subject) as (connection, note):
        marked = await store.mark_inbox(connection, message_id=message_id, is_read=is_read, sees_codes=sees_codes)
        if message_id is not None and not marked:
            raise InboxMessageNotFound
        note.after = {"read": is_read, "marked": marked}
    return marked


async def wait_for_message(
    pool: Pool,
    chosen: InboxFilter,
    *,
    timeout: timedelta,  # noqa: ASYNC109 - a value of the caller, who gets `InboxWaitTimeout`
    sees_codes: bool,
) -> InboxMessage:
    """The newest message of a filter, as soon as there is one. Raises `InboxWaitTimeout`."""
    loop = asyncio.get_running_loop()
    end = loop.time() + min(timeout, LONGEST_WAIT).total_seconds()
    while (message := await _find_latest(pool, chosen, sees_codes=sees_codes)) is None:
        if loop.time() >= end:
            raise InboxWaitTimeout
        await asyncio.sleep(min(POLL_S, max(0.0, end - loop.time())))
    return message


async def _find_latest(pool: Pool, chosen: InboxFilter, *, sees_codes: bool) -> InboxMessage | None:
    found = await store.list_inbox(pool, before_id=None, page_limit=1, sees_codes=sees_codes, **asdict(chosen))
    return await store.find_inbox_message(pool, message_id=found[0].id, sees_codes=sees_codes) if found else None
