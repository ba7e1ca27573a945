"""One function per statement of `queries.sql`."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import asyncpg

from postroom.db.queries import Connection, load
from postroom.outbox.webhooks.model import EndpointFormat, EndpointStatus, WebhookEndpoint
from postroom.runtime.secrets import Sealed

QUERIES = load("postroom.outbox.webhooks")


async def change_endpoint(
    connection: Connection,
    *,
    id: int,  # noqa: A002 - the column's name
    url: str | None,
    topics: Sequence[str] | None,
    description: str | None,
    format: str | None,  # noqa: A002 - the column's name
) -> WebhookEndpoint | None:
    row = await QUERIES["change_endpoint"].maybe(
        connection, id=id, url=url, topics=topics, description=description, format=format
    )
    return None if row is None else _endpoint(row)


async def delete_endpoint(connection: Connection, *, id: int) -> str | None:  # noqa: A002 - the column's name
    row = await QUERIES["delete_endpoint"].maybe(connection, id=id)
    return None if row is None else str(row["url"])


async def find_endpoint(connection: Connection, *, id: int) -> WebhookEndpoint | None:  # noqa: A002 - the column's name
    row = await QUERIES["find_endpoint"].maybe(connection, id=id)
    return None if row is None else _endpoint(row)


async def insert_endpoint(connection: Connection, **columns: Any) -> WebhookEndpoint:
    return _endpoint(await QUERIES["insert_endpoint"].one(connection, **columns))


async def list_endpoints(connection: Connection, *, after_id: int | None, page_limit: int) -> list[WebhookEndpoint]:
    rows = await QUERIES["list_endpoints"].many(connection, after_id=after_id, page_limit=page_limit)
    return [_endpoint(row) for row in rows]


async def list_signing(connection: Connection, *, ids: Sequence[int]) -> list[WebhookEndpoint]:
    return [_endpoint(row) for row in await QUERIES["list_signing"].many(connection, ids=ids)]


async def list_topic_endpoints(connection: Connection, *, topic: str) -> list[WebhookEndpoint]:
    return [_endpoint(row) for row in await QUERIES["list_topic_endpoints"].many(connection, topic=topic)]


async def reserve_id(connection: Connection) -> int:
    return int((await QUERIES["reserve_id"].one(connection))["id"])


async def rotate_secret(
    connection: Connection,
    *,
    id: int,  # noqa: A002 - the column's name
    secret: bytes,
    secret_key_id: str,
    overlap: timedelta,
) -> WebhookEndpoint | None:
    row = await QUERIES["rotate_secret"].maybe(
        connection, id=id, secret=secret, secret_key_id=secret_key_id, overlap=overlap
    )
    return None if row is None else _endpoint(row)


async def set_endpoint_status(
    connection: Connection,
    *,
    id: int,  # noqa: A002 - the column's name
    status: EndpointStatus,
    reason: str | None,
) -> bool:
    row = await QUERIES["set_endpoint_status"].maybe(connection, id=id, status=status.value, reason=reason)
    return row is not None


def _endpoint(row: asyncpg.Record) -> WebhookEndpoint:
    previous = row["previous_secret"]
    return WebhookEndpoint(
        id=row["id"],
        status=EndpointStatus(row["status"]),
        created_at=row["created_at"],
        updated_at=row["updated_at"],
        disabled_at=row["disabled_at"],
        disabled_reason=row["disabled_reason"],
        url=row["url"],
        topics=tuple(row["topics"]),
        description=row["description"],
        format=EndpointFormat(row["format"]),
        previous_until=row["previous_until"],
        secret=Sealed(row["secret_key_id"], row["secret"]),
        silent_topics=tuple(row.get("silent_topics", ())),
        previous=None if previous is None else Sealed(row["previous_key_id"], previous),
    )
