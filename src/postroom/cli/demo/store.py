"""One function per statement of `queries.sql`."""

from collections.abc import Sequence
from typing import Any

from postroom.db.queries import Connection, load

QUERIES = load("postroom.cli.demo")


async def count_repeated(connection: Connection, *, delivery_ids: Sequence[int]) -> int:
    count: int = (await QUERIES["count_repeated"].one(connection, delivery_ids=delivery_ids))["repeated"]
    return count


async def count_started(connection: Connection, *, pid: int, host: str) -> tuple[int, int]:
    row = await QUERIES["count_started"].one(connection, pid=pid, host=host)
    return row["started"], row["lanes"]


async def find_ambiguous(connection: Connection, *, delivery_ids: Sequence[int]) -> int | None:
    row = await QUERIES["find_ambiguous"].maybe(connection, delivery_ids=delivery_ids)
    return row["delivery_id"] if row else None


async def has_worker(connection: Connection, *, pid: int, host: str) -> bool:
    found: bool = (await QUERIES["has_worker"].one(connection, pid=pid, host=host))["is_there"]
    return found


async def list_outcomes(connection: Connection, *, delivery_ids: Sequence[int]) -> list[dict[str, Any]]:
    return [dict(row) for row in await QUERIES["list_outcomes"].many(connection, delivery_ids=delivery_ids)]


async def list_recent_transports(connection: Connection) -> list[str]:
    return [row["transport"] for row in await QUERIES["list_recent_transports"].many(connection)]


async def list_sent_mail(connection: Connection, *, campaign_id: int) -> list[tuple[int, str]]:
    rows = await QUERIES["list_sent_mail"].many(connection, campaign_id=campaign_id)
    return [(row["delivery_id"], row["email"]) for row in rows]
