"""One function per statement of `queries.sql`."""

from collections.abc import Sequence
from typing import Any

import asyncpg
import msgspec

from postroom.db.queries import Connection, load
from postroom.inbox.model import Captured, InboxCounts, InboxEntry, InboxMessage
from postroom.runtime.record import read_row

QUERIES = load("postroom.inbox")


def _entry(row: asyncpg.Record) -> InboxEntry:
    tags = msgspec.json.decode(row["tags"]) if row["tags"] else {}
    return read_row(InboxEntry, {**row, "tags": tags})


async def clear_inbox(connection: Connection) -> int:
    return await QUERIES["clear_inbox"].exec(connection)


async def count_inbox(connection: Connection) -> InboxCounts:
    return read_row(InboxCounts, await QUERIES["count_inbox"].one(connection))


async def delete_inbox_message(connection: Connection, *, message_id: int) -> int:
    return await QUERIES["delete_inbox_message"].exec(connection, message_id=message_id)


async def find_inbox_message(connection: Connection, *, message_id: int) -> InboxMessage | None:
    row = await QUERIES["find_inbox_message"].maybe(connection, message_id=message_id)
    return InboxMessage(_entry(row), row["raw"]) if row else None


async def insert_inbox_messages(connection: Connection, **columns: Sequence[Any]) -> list[int]:
    """Store messages given as columns; see `columns_of`."""
    return [row["id"] for row in await QUERIES["insert_inbox_messages"].many(connection, **columns)]


def columns_of(messages: Sequence[Captured]) -> dict[str, Sequence[Any]]:
    """Messages as one list per column; recipients are flat and point to their message by ordinal."""
    flat = [(ordinal, to.lower()) for ordinal, message in enumerate(messages, 1) for to in message.recipients]
    own = ("delivery_id", "mail_from", "subject", "author", "content", "attachment_count", "raw")
    return {
        **{name: [getattr(message, name) for message in messages] for name in own},
        "recipient_ordinal": [ordinal for ordinal, _address in flat],
        "recipient_address": [address for _ordinal, address in flat],
    }


async def insert_inbox_release(connection: Connection, *, delivery_id: int, message_id: int) -> None:
    await QUERIES["insert_inbox_release"].exec(connection, delivery_id=delivery_id, message_id=message_id)


async def is_released(connection: Connection, *, delivery_id: int) -> bool:
    found: bool = (await QUERIES["is_released"].one(connection, delivery_id=delivery_id))["is_released"]
    return found


async def list_inbox(
    connection: Connection, *, before_id: int | None, page_limit: int, **chosen: Any
) -> list[InboxEntry]:
    """The entries of a filter; `chosen` are the fields of `InboxFilter`."""
    rows = await QUERIES["list_inbox"].many(connection, before_id=before_id, page_limit=page_limit, **chosen)
    return [_entry(row) for row in rows]


async def mark_inbox(connection: Connection, *, message_id: int | None, is_read: bool) -> int:
    return await QUERIES["mark_inbox"].exec(connection, message_id=message_id, is_read=is_read)


async def trim_inbox(connection: Connection, *, keep: int) -> int:
    return await QUERIES["trim_inbox"].exec(connection, keep=keep)
