"""One function per statement in `queries.sql`."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from postroom.db.queries import Connection, load
from postroom.tracking.model import People, Standing

QUERIES = load("postroom.tracking")


async def count_people(connection: Connection, *, campaign_id: int) -> People:
    row = await QUERIES["count_people"].one(connection, campaign_id=campaign_id)
    return People(opened=row["opened"], clicked=row["clicked"])


async def delete_old_engagements(
    connection: Connection, *, retention: timedelta, batch_limit: int, now: datetime | None
) -> int:
    return await QUERIES["delete_old_engagements"].exec(
        connection, retention=retention, batch_limit=batch_limit, now=now
    )


async def ensure_tracking_partitions(connection: Connection, *, now: datetime | None) -> int:
    return int((await QUERIES["ensure_tracking_partitions"].one(connection, now=now))["made"])


async def find_standing(connection: Connection, *, address: str, now: datetime | None) -> Standing:
    row = await QUERIES["find_standing"].one(connection, address=address, now=now)
    return Standing(is_unsubscribed=row["is_unsubscribed"], is_closed=row["is_closed"])


async def record_hits(connection: Connection, **columns: Sequence[object]) -> int:
    return int((await QUERIES["record_hits"].one(connection, **columns))["recorded"])


async def resubscribe(connection: Connection, *, address: str, now: datetime | None) -> bool:
    return bool((await QUERIES["resubscribe"].one(connection, address=address, now=now))["is_news"])


async def unsubscribe(connection: Connection, **columns: object) -> bool:
    return bool((await QUERIES["unsubscribe"].one(connection, **columns))["is_news"])
