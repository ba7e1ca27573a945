"""One function per statement of `queries.sql`, under the same name."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from postroom.db.queries import Connection, load
from postroom.tracking.model import BulkMailStatus, ClickedLink, DeliveryEngagement, EngagedRecipients, LinkFigures

QUERIES = load("postroom.tracking")


async def count_people(connection: Connection, *, campaign_id: int) -> EngagedRecipients:
    row = await QUERIES["count_people"].one(connection, campaign_id=campaign_id)
    return EngagedRecipients(opened=row["opened"], clicked=row["clicked"])


async def delete_old_engagements(
    connection: Connection, *, retention: timedelta, batch_limit: int, now: datetime | None
) -> int:
    return await QUERIES["delete_old_engagements"].exec(
        connection, retention=retention, batch_limit=batch_limit, now=now
    )


async def ensure_tracking_partitions(connection: Connection, *, now: datetime | None) -> int:
    return int((await QUERIES["ensure_tracking_partitions"].one(connection, now=now))["made"])


async def find_engagement(connection: Connection, *, delivery_id: int) -> DeliveryEngagement | None:
    row = await QUERIES["find_engagement"].maybe(connection, delivery_id=delivery_id)
    return DeliveryEngagement(**row) if row else None


async def find_standing(connection: Connection, *, address: str, now: datetime | None) -> BulkMailStatus:
    row = await QUERIES["find_standing"].one(connection, address=address, now=now)
    return BulkMailStatus(is_unsubscribed=row["is_unsubscribed"], is_closed=row["is_closed"])


async def list_clicks(  # noqa: PLR0913 - one parameter per filter
    connection: Connection,
    *,
    campaign_id: int | None,
    address: str | None,
    link_url: str | None,
    after_address: str | None,
    after_link: str | None,
    page_limit: int,
) -> list[ClickedLink]:
    rows = await QUERIES["list_clicks"].many(
        connection,
        campaign_id=campaign_id,
        address=address,
        link_url=link_url,
        after_address=after_address,
        after_link=after_link,
        page_limit=page_limit,
    )
    return [
        ClickedLink(
            email=row["recipient_email"],
            url=row["link_url"],
            clicks=row["clicks"],
            is_machine=row["is_machine"],
            first_at=row["first_at"],
            last_at=row["last_at"],
        )
        for row in rows
    ]


async def list_links(
    connection: Connection, *, campaign_id: int, after_people: int | None, after_link: str | None, page_limit: int
) -> list[LinkFigures]:
    rows = await QUERIES["list_links"].many(
        connection, campaign_id=campaign_id, after_people=after_people, after_link=after_link, page_limit=page_limit
    )
    return [
        LinkFigures(
            url=row["link_url"],
            people=row["people"],
            clicks=row["clicks"],
            machine_clicks=row["machine_clicks"],
            first_at=row["first_at"],
            last_at=row["last_at"],
        )
        for row in rows
    ]


async def record_hits(connection: Connection, **columns: Sequence[object]) -> int:
    return int((await QUERIES["record_hits"].one(connection, **columns))["recorded"])


async def resubscribe(connection: Connection, *, address: str, now: datetime | None) -> bool:
    return bool((await QUERIES["resubscribe"].one(connection, address=address, now=now))["is_news"])


async def unsubscribe(connection: Connection, **columns: object) -> bool:
    return bool((await QUERIES["unsubscribe"].one(connection, **columns))["is_news"])
