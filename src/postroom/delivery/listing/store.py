"""One function per statement of `queries.sql`. The finders all have the same parameters."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import asyncpg

from postroom.db.queries import Connection, load
from postroom.delivery.model import DeliverySummary
from postroom.delivery.rows import read_summary

QUERIES = load("postroom.delivery.listing")


async def find_id_since(connection: Connection, *, since: datetime) -> int:
    return int((await QUERIES["find_id_since"].one(connection, since=since))["id"])


async def find_newest_id(connection: Connection) -> int:
    return int((await QUERIES["find_newest_id"].one(connection))["id"])


async def find_rest_id(connection: Connection, *, before_id: int, first_id: int, row_limit: int) -> int | None:
    statement = QUERIES["find_rest_id"]
    row = await statement.maybe(connection, before_id=before_id, first_id=first_id, row_limit=row_limit)
    return None if row is None else int(row["rest_id"])


async def ids_by_column(connection: Connection, *, column: str, value: object, **window: Any) -> list[int]:
    return list((await QUERIES["ids_by_column"].one(connection, column=column, value=str(value), **window))["ids"])


async def ids_by_idempotency_key(connection: Connection, **window: Any) -> list[int]:
    return read_ids(await QUERIES["ids_by_idempotency_key"].many(connection, **window))


async def ids_by_message_id(connection: Connection, **window: Any) -> list[int]:
    return read_ids(await QUERIES["ids_by_message_id"].many(connection, **window))


async def ids_by_recipient_part(connection: Connection, **window: Any) -> list[int]:
    return read_ids(await QUERIES["ids_by_recipient_part"].many(connection, **window))


async def ids_given(connection: Connection, **window: Any) -> list[int]:
    return read_ids(await QUERIES["ids_given"].many(connection, **window))


async def ids_newest(connection: Connection, **window: Any) -> list[int]:
    return list((await QUERIES["ids_newest"].one(connection, **window))["ids"])


async def ids_sending(connection: Connection, **window: Any) -> list[int]:
    return read_ids(await QUERIES["ids_sending"].many(connection, **window))


async def ids_unsent(connection: Connection, **window: Any) -> list[int]:
    return read_ids(await QUERIES["ids_unsent"].many(connection, **window))


async def ids_waiting(connection: Connection, **window: Any) -> list[int]:
    return read_ids(await QUERIES["ids_waiting"].many(connection, **window))


async def list_deliveries(connection: Connection, *, delivery_ids: Sequence[int]) -> list[DeliverySummary]:
    if not delivery_ids:
        return []  # most searches of a rare value end here; the statement would have to be planned
    rows = await QUERIES["list_deliveries"].many(connection, delivery_ids=delivery_ids)
    return [read_summary(row) for row in rows]


async def match_deliveries(
    connection: Connection, *, delivery_ids: Sequence[int], page_limit: int, **filters: Any
) -> list[int]:
    if not delivery_ids:
        return []
    statement = QUERIES["match_deliveries"]
    return read_ids(await statement.many(connection, delivery_ids=delivery_ids, page_limit=page_limit, **filters))


def read_ids(rows: Sequence[asyncpg.Record]) -> list[int]:
    return [row["id"] for row in rows]


async def rare_ids(
    connection: Connection, *, tags: str | None, custom_data: str | None, id_limit: int
) -> list[int] | None:
    row = await QUERIES["rare_ids"].one(connection, tags=tags, custom_data=custom_data, id_limit=id_limit)
    return None if row["ids"] is None else list(row["ids"])
