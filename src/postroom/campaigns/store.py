"""One function per statement of `queries.sql`, under the same name. Rows become models here and nowhere else."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import asyncpg
import msgspec

from postroom.campaigns.model import (
    Campaign,
    CampaignContent,
    CampaignDomain,
    CampaignHour,
    CampaignPerson,
    CampaignQueue,
    CampaignRequest,
    CampaignStatus,
    FeedResult,
    PersonMail,
    PersonResult,
    RecipientState,
    Zone,
)
from postroom.db.queries import Connection, load
from postroom.post.address import Address
from postroom.runtime.record import read_row

QUERIES = load("postroom.campaigns")

_decode = msgspec.json.Decoder(dict[str, Any]).decode


async def cancel_campaign(connection: Connection, *, campaign_id: int, now: datetime | None) -> bool:
    return await QUERIES["cancel_campaign"].maybe(connection, campaign_id=campaign_id, now=now) is not None


async def cancel_mail(connection: Connection, *, campaign_id: int, batch_limit: int, now: datetime | None) -> int:
    row = await QUERIES["cancel_mail"].one(connection, campaign_id=campaign_id, batch_limit=batch_limit, now=now)
    return int(row["moved"])


async def complete_campaign(connection: Connection, *, campaign_id: int, now: datetime | None) -> bool:
    return await QUERIES["complete_campaign"].maybe(connection, campaign_id=campaign_id, now=now) is not None


async def count_refused(connection: Connection, *, campaign_id: int, invalid: int) -> int:
    return await QUERIES["count_refused"].exec(connection, campaign_id=campaign_id, invalid=invalid)


async def delete_campaign(connection: Connection, *, campaign_id: int) -> bool:
    return await QUERIES["delete_campaign"].maybe(connection, campaign_id=campaign_id) is not None


async def delete_recipients(connection: Connection, *, campaign_id: int) -> int:
    return await QUERIES["delete_recipients"].exec(connection, campaign_id=campaign_id)


async def feed_campaign(
    connection: Connection, *, campaign_id: int, target: int, now: datetime | None
) -> FeedResult | None:
    """None: another feeder holds the lock, or the campaign is not active."""
    row = await QUERIES["feed_campaign"].maybe(connection, campaign_id=campaign_id, target=target, now=now)
    return FeedResult(row["fed"], row["suppressed"], row["waiting"]) if row else None


async def find_campaign(connection: Connection, *, campaign_id: int) -> Campaign | None:
    row = await QUERIES["find_campaign"].maybe(connection, campaign_id=campaign_id)
    return _campaign(row) if row else None


async def find_recipient(connection: Connection, *, campaign_id: int, email: str | None) -> CampaignPerson | None:
    row = await QUERIES["find_recipient"].maybe(connection, campaign_id=campaign_id, email=email)
    return _recipient(row) if row else None


async def forget_recipients(
    connection: Connection, *, retention: timedelta, batch_limit: int, now: datetime | None
) -> int:
    return await QUERIES["forget_recipients"].exec(connection, retention=retention, batch_limit=batch_limit, now=now)


async def hold_mail(connection: Connection, *, campaign_id: int, batch_limit: int) -> int:
    row = await QUERIES["hold_mail"].one(connection, campaign_id=campaign_id, batch_limit=batch_limit)
    return int(row["moved"])


async def insert_campaign(connection: Connection, *, now: datetime | None, **columns: Any) -> int:
    campaign_id: int = (await QUERIES["insert_campaign"].one(connection, now=now, **columns))["id"]
    return campaign_id


async def insert_recipients(
    connection: Connection, *, campaign_id: int, now: datetime | None, **columns: Sequence[Any]
) -> tuple[int, int]:
    """The number of new recipients, and the number of suppressed ones among them."""
    row = await QUERIES["insert_recipients"].one(connection, campaign_id=campaign_id, now=now, **columns)
    return row["stored"], row["suppressed"]


async def list_campaigns(
    connection: Connection, *, status: str | None, name: str | None, before_id: int | None, page_limit: int
) -> list[Campaign]:
    """Campaigns without their bodies."""
    rows = await QUERIES["list_campaigns"].many(
        connection, status=status, name=name, before_id=before_id, page_limit=page_limit
    )
    return [_campaign(row) for row in rows]


async def list_domains(connection: Connection, *, campaign_id: int, page_limit: int) -> list[CampaignDomain]:
    rows = await QUERIES["list_domains"].many(connection, campaign_id=campaign_id, page_limit=page_limit)
    return [read_row(CampaignDomain, row) for row in rows]


async def list_fields(connection: Connection, *, campaign_id: int) -> dict[str, int]:
    rows = await QUERIES["list_fields"].many(connection, campaign_id=campaign_id)
    return {row["name"]: row["filled"] for row in rows}


async def list_hours(connection: Connection, *, campaign_id: int) -> list[CampaignHour]:
    hours: dict[datetime, dict[str, int]] = {}
    for row in await QUERIES["list_hours"].many(connection, campaign_id=campaign_id):
        hours.setdefault(row["hour"], {})[row["metric"]] = row["amount"]
    return [CampaignHour(hour, amounts) for hour, amounts in hours.items()]


async def list_letters(connection: Connection, *, campaign_ids: Sequence[int]) -> dict[int, CampaignContent]:
    rows = await QUERIES["list_letters"].many(connection, campaign_ids=campaign_ids)
    return {row["id"]: _letter(row) for row in rows}


async def list_people(  # noqa: PLR0913 - the filter, the cursor and two bounds
    connection: Connection,
    *,
    campaign_id: int,
    result: str | None,
    after_zone: str | None,
    after_id: int | None,
    bound: int,
    page_limit: int,
) -> list[PersonMail]:
    rows = await QUERIES["list_people"].many(
        connection,
        campaign_id=campaign_id,
        result=result,
        after_zone=after_zone,
        after_id=after_id,
        bound=bound,
        page_limit=page_limit,
    )
    return [PersonMail(**{**row, "result": PersonResult(row["result"])}) for row in rows]


async def list_recipients(  # noqa: PLR0913 - one parameter per filter
    connection: Connection,
    *,
    campaign_id: int,
    state: str | None,
    custom_data: str | None,
    after_zone: str | None,
    after_id: int | None,
    page_limit: int,
) -> list[CampaignPerson]:
    rows = await QUERIES["list_recipients"].many(
        connection,
        campaign_id=campaign_id,
        state=state,
        custom_data=custom_data,
        after_zone=after_zone,
        after_id=after_id,
        page_limit=page_limit,
    )
    return [_recipient(row) for row in rows]


async def list_unfinished(connection: Connection, *, now: datetime | None) -> list[CampaignQueue]:
    rows = await QUERIES["list_unfinished"].many(connection, now=now)
    return [
        CampaignQueue(row["id"], CampaignStatus(row["status"]), row["has_due"], row["has_more"], row["has_stray_mail"])
        for row in rows
    ]


async def list_zones(connection: Connection, *, campaign_id: int) -> list[Zone]:
    rows = await QUERIES["list_zones"].many(connection, campaign_id=campaign_id)
    return [Zone(row["time_zone"], row["due_at"]) for row in rows]


async def lock_campaign(connection: Connection, *, campaign_id: int) -> Campaign | None:
    row = await QUERIES["lock_campaign"].maybe(connection, campaign_id=campaign_id)
    return _campaign(row) if row else None


async def measure_campaigns(connection: Connection, *, campaign_ids: Sequence[int]) -> dict[int, dict[str, int]]:
    """The counts by metric, by campaign."""
    measured: dict[int, dict[str, int]] = {campaign_id: {} for campaign_id in campaign_ids}
    for row in await QUERIES["measure_campaigns"].many(connection, campaign_ids=campaign_ids):
        measured[row["campaign_id"]][row["metric"]] = row["amount"]
    return measured


async def pause_campaign(connection: Connection, *, campaign_id: int, now: datetime | None) -> bool:
    return await QUERIES["pause_campaign"].maybe(connection, campaign_id=campaign_id, now=now) is not None


async def read_clock(connection: Connection, *, now: datetime | None) -> datetime:
    moment: datetime = (await QUERIES["read_clock"].one(connection, now=now))["moment"]
    return moment


async def release_mail(connection: Connection, *, campaign_id: int, batch_limit: int) -> int:
    row = await QUERIES["release_mail"].one(connection, campaign_id=campaign_id, batch_limit=batch_limit)
    return int(row["moved"])


async def resume_campaign(connection: Connection, *, campaign_id: int, now: datetime | None) -> bool:
    return await QUERIES["resume_campaign"].maybe(connection, campaign_id=campaign_id, now=now) is not None


async def start_campaign(connection: Connection, *, campaign_id: int, now: datetime | None) -> bool:
    return await QUERIES["start_campaign"].maybe(connection, campaign_id=campaign_id, now=now) is not None


async def start_zones(
    connection: Connection, *, campaign_id: int, time_zone: Sequence[str], due_at: Sequence[datetime]
) -> int:
    return await QUERIES["start_zones"].exec(connection, campaign_id=campaign_id, time_zone=time_zone, due_at=due_at)


async def update_campaign(connection: Connection, *, campaign_id: int, now: datetime | None, **columns: Any) -> bool:
    row = await QUERIES["update_campaign"].maybe(connection, campaign_id=campaign_id, now=now, **columns)
    return row is not None


async def wake_feeders(connection: Connection) -> int:
    return await QUERIES["wake_feeders"].exec(connection)


def _address(email: str | None, name: str | None) -> Address | None:
    return None if email is None else Address(email, name)


def _letter(row: asyncpg.Record) -> CampaignContent:
    return CampaignContent(
        subject=row["subject"],
        html=row["html_body"],
        text=row["text_body"],
        sender=_address(row["from_email"], row["from_name"]),
        reply_to=_address(row["reply_to_email"], row["reply_to_name"]),
        is_tracked=row["is_tracked"],
    )


def _campaign(row: asyncpg.Record) -> Campaign:
    plan = CampaignRequest(
        name=row["name"],
        letter=_letter(row),
        start_at=row["start_at"],
        local_time=row["local_time"],
        time_zone=row["time_zone"],
    )
    return Campaign(
        id=row["id"],
        status=CampaignStatus(row["status"]),
        plan=plan,
        total=row["total_count"],
        fed=row["fed_count"],
        suppressed=row["suppressed_count"],
        cancelled=row["cancelled_count"],
        duplicate=row["duplicate_count"],
        invalid=row["invalid_count"],
        created_at=row["created_at"],
        updated_at=row["updated_at"],
        started_at=row["started_at"],
        paused_at=row["paused_at"],
        finished_at=row["finished_at"],
    )


def _recipient(row: asyncpg.Record) -> CampaignPerson:
    return CampaignPerson(
        id=row["id"],
        state=RecipientState(row["state"]),
        delivery_id=row["delivery_id"],
        time_zone=row["time_zone"],
        email=row["email"],
        name=row["name"],
        custom_data=_decode(row["custom_data"]),
    )
