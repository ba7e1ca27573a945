"""One function per statement of `queries.sql`."""

from collections.abc import Sequence
from typing import Any

import asyncpg

from postroom.db.queries import Connection, load
from postroom.inbox.model import Captured, InboxEntry, InboxMessage

QUERIES = load("postroom.inbox")


def _entry(row: asyncpg.Record) -> InboxEntry:
    return InboxEntry(
        row["id"],
        row["delivery_id"],
        row["received_at"],
        row["mail_from"],
        tuple(row["recipients"]),
        row["subject"],
    )


async def clear_inbox(connection: Connection) -> int:
    return await QUERIES["clear_inbox"].exec(connection)


async def find_inbox_message(connection: Connection, *, message_id: int) -> InboxMessage | None:
    row = await QUERIES["find_inbox_message"].maybe(connection, message_id=message_id)
    return InboxMessage(_entry(row), row["raw"]) if row else None


async def insert_inbox_messages(connection: Connection, **columns: Sequence[Any]) -> list[int]:
    """Store messages given as columns; see `columns_of`."""
    return [row["id"] for row in await QUERIES["insert_inbox_messages"].many(connection, **columns)]


def columns_of(messages: Sequence[Captured]) -> dict[str, Sequence[Any]]:
    """Messages as one list per column; recipients are flat and point to their message by ordinal."""
    flat = [(ordinal, to.lower()) for ordinal, message in enumerate(messages, 1) for to in message.recipients]
    return {
        "delivery_id": [message.delivery_id for message in messages],
        "mail_from": [message.mail_from for message in messages],
        "subject": [message.subject for message in messages],
        "raw": [message.raw for message in messages],
        "recipient_ordinal": [ordinal for ordinal, _address in flat],
        "recipient_address": [address for _ordinal, address in flat],
    }


async def list_inbox(
    connection: Connection, *, recipient: str | None, before_id: int | None, page_limit: int
) -> list[InboxEntry]:
    rows = await QUERIES["list_inbox"].many(connection, recipient=recipient, before_id=before_id, page_limit=page_limit)
    return [_entry(row) for row in rows]


async def trim_inbox(connection: Connection, *, keep: int) -> int:
    return await QUERIES["trim_inbox"].exec(connection, keep=keep)
