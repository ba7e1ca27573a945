"""One function per statement of `queries.sql`."""

from typing import Any

import asyncpg

from postroom.db.queries import Connection, load
from postroom.delivery.model import Lane
from postroom.outbox.mails.model import MailRule

QUERIES = load("postroom.outbox.mails")


async def delete_rule(connection: Connection, *, id: int) -> str | None:  # noqa: A002 - the column's name
    row = await QUERIES["delete_rule"].maybe(connection, id=id)
    return None if row is None else str(row["topic"])


async def insert_rule(connection: Connection, **columns: Any) -> MailRule | None:
    row = await QUERIES["insert_rule"].maybe(connection, **columns)
    return None if row is None else _rule(row)


async def list_rules(connection: Connection, *, topic: str | None) -> list[MailRule]:
    return [_rule(row) for row in await QUERIES["list_rules"].many(connection, topic=topic)]


def _rule(row: asyncpg.Record) -> MailRule:
    return MailRule(**{**row, "lane": Lane(row["lane"])})
