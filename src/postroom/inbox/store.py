"""One function per statement of `queries.sql`."""

from collections.abc import Sequence
from typing import Any

import asyncpg
import msgspec

from postroom.db.queries import column, load, model
from postroom.delivery.check import SIGN_IN_SOURCE
from postroom.inbox.model import Captured, InboxCounts, InboxEntry, InboxMessage, InboxPlace
from postroom.runtime.record import read_row

QUERIES = load("postroom.inbox")
_SNIPPET = 160  # characters: a line on a wide screen


def _entry(row: asyncpg.Record) -> InboxEntry:
    tags = msgspec.json.decode(row["tags"]) if row["tags"] else {}
    snippet = " ".join(row["snippet"].split())[:_SNIPPET]
    return read_row(InboxEntry, {**row, "tags": tags, "snippet": snippet})


def columns_of(messages: Sequence[Captured]) -> dict[str, Any]:
    """Messages as one list per column; recipients are flat and point to their message by ordinal."""
    flat = [(ordinal, to.lower()) for ordinal, message in enumerate(messages, 1) for to in message.recipients]
    own = ("delivery_id", "mail_from", "subject", "author", "content", "attachment_count", "raw")
    return {
        **{name: [getattr(message, name) for message in messages] for name in own},
        "recipient_ordinal": [ordinal for ordinal, _address in flat],
        "recipient_address": [address for _ordinal, address in flat],
        "sign_in_source": SIGN_IN_SOURCE,
    }


clear_inbox = QUERIES["clear_inbox"].exec
count_inbox = QUERIES["count_inbox"].one_as(model(InboxCounts))
delete_inbox_message = QUERIES["delete_inbox_message"].exec
find_captured = QUERIES["find_captured"].maybe_as(column("id", int))
find_inbox_message = QUERIES["find_inbox_message"].maybe_as(lambda row: InboxMessage(_entry(row), row["raw"]))
find_place = QUERIES["find_place"].one_as(model(InboxPlace))
insert_inbox_messages = QUERIES["insert_inbox_messages"].many_as(column("id", int))
"""Store messages given as columns; see `columns_of`."""
insert_inbox_release = QUERIES["insert_inbox_release"].exec
is_released = QUERIES["is_released"].one_as(column("is_released", bool))
list_inbox = QUERIES["list_inbox"].many_as(_entry)
"""The entries of a filter; `chosen` are the fields of `InboxFilter`."""
mark_inbox = QUERIES["mark_inbox"].exec
trim_inbox = QUERIES["trim_inbox"].exec
