"""One function per statement of `queries.sql`, under the same name. Rows become models here and nowhere else."""

from collections.abc import Mapping, Sequence
from datetime import datetime
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
    Zone,
)
from postroom.db.queries import Connection, column, columns, load, model
from postroom.post.address import Address
from postroom.runtime.record import read_row

QUERIES = load("postroom.campaigns")

_decode = msgspec.json.Decoder(dict[str, Any]).decode


def _address(email: str | None, name: str | None) -> Address | None:
    return None if email is None else Address(email, name)


def _letter(row: Mapping[str, Any]) -> CampaignContent:
    return CampaignContent(
        subject=row["subject"],
        html=row["html_body"],
        text=row["text_body"],
        sender=_address(row["from_email"], row["from_name"]),
        reply_to=_address(row["reply_to_email"], row["reply_to_name"]),
        is_tracked=row["is_tracked"],
    )


def _campaign(row: Mapping[str, Any]) -> Campaign:
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


def _recipient(row: Mapping[str, Any]) -> CampaignPerson:
    return read_row(CampaignPerson, {**row, "custom_data": _decode(row["custom_data"])})


def _mail(row: asyncpg.Record) -> tuple[int, str, str | None, dict[str, Any]]:
    return row["campaign_id"], row["email"], row["name"], _decode(row["variables"] or "{}")


cancel_campaign = QUERIES["cancel_campaign"].has
cancel_mail = QUERIES["cancel_mail"].one_as(column("moved", int))
complete_campaign = QUERIES["complete_campaign"].has
count_refused = QUERIES["count_refused"].exec
delete_campaign = QUERIES["delete_campaign"].has
delete_recipients = QUERIES["delete_recipients"].exec
feed_campaign = QUERIES["feed_campaign"].maybe_as(model(FeedResult))
"""None: another feeder holds the lock, or the campaign is not active."""
find_campaign = QUERIES["find_campaign"].maybe_as(_campaign)
find_recipient = QUERIES["find_recipient"].maybe_as(_recipient)
forget_recipients = QUERIES["forget_recipients"].exec
hold_mail = QUERIES["hold_mail"].one_as(column("moved", int))
insert_campaign = QUERIES["insert_campaign"].one_as(column("id", int))
insert_recipients = QUERIES["insert_recipients"].one_as(columns("stored", "suppressed"))
"""The number of new recipients, and the number of suppressed ones among them."""
list_campaigns = QUERIES["list_campaigns"].search_as(_campaign)
"""Campaigns without their bodies."""
list_domains = QUERIES["list_domains"].many_as(model(CampaignDomain))
list_fields = QUERIES["list_fields"].dict_as("name", column("filled", int))


async def list_hours(connection: Connection, *, campaign_id: int) -> list[CampaignHour]:
    hours: dict[datetime, dict[str, int]] = {}
    for row in await QUERIES["list_hours"].many(connection, campaign_id=campaign_id):
        hours.setdefault(row["hour"], {})[row["metric"]] = row["amount"]
    return [CampaignHour(hour, amounts) for hour, amounts in hours.items()]


list_letters = QUERIES["list_letters"].dict_as("id", _letter)
list_mail = QUERIES["list_mail"].dict_as("id", _mail)
"""By delivery: its campaign, the address and name of its recipient, and its merge fields."""
list_people = QUERIES["list_people"].many_as(model(PersonMail))
list_recipients = QUERIES["list_recipients"].search_as(_recipient)
list_unfinished = QUERIES["list_unfinished"].many_as(model(CampaignQueue))
list_zones = QUERIES["list_zones"].many_as(model(Zone))
lock_campaign = QUERIES["lock_campaign"].maybe_as(_campaign)


async def measure_campaigns(connection: Connection, *, campaign_ids: Sequence[int]) -> dict[int, dict[str, int]]:
    """The counts by metric, by campaign."""
    measured: dict[int, dict[str, int]] = {campaign_id: {} for campaign_id in campaign_ids}
    for row in await QUERIES["measure_campaigns"].many(connection, campaign_ids=campaign_ids):
        measured[row["campaign_id"]][row["metric"]] = row["amount"]
    return measured


pause_campaign = QUERIES["pause_campaign"].has
read_clock = QUERIES["read_clock"].one_as(columns("moment"))
release_mail = QUERIES["release_mail"].one_as(column("moved", int))
reopen_campaign = QUERIES["reopen_campaign"].has
resume_campaign = QUERIES["resume_campaign"].has
start_campaign = QUERIES["start_campaign"].has
start_zones = QUERIES["start_zones"].exec
update_campaign = QUERIES["update_campaign"].has
wake_feeders = QUERIES["wake_feeders"].exec
