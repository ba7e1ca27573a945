"""Bring the queued mail of a campaign in line with its status: hold, release or cancel it, and complete the campaign.

Work is done in bounded steps. Each step holds the campaign's row lock and reads its status again, so a concurrent
pause, resume, cancel or feed happens before or after a step, never during one.
"""

from datetime import datetime

from postroom.campaigns import store
from postroom.campaigns.model import CampaignStatus
from postroom.db.pool import Pool
from postroom.db.queries import Connection

STEP = 5000  # deliveries per transaction, which holds the campaign's row lock


async def settle_mail(pool: Pool, campaign_id: int, *, now: datetime | None = None) -> int:
    """Repeat steps until every delivery agrees with the status; returns the number of moved deliveries."""
    total, moved = 0, STEP
    while moved == STEP:
        async with pool.acquire() as connection, connection.transaction():
            campaign = await store.lock_campaign(connection, campaign_id=campaign_id)
            moved = 0 if campaign is None else await settle_step(connection, campaign_id, campaign.status, now=now)
        total += moved
    return total


async def complete(pool: Pool, campaign_id: int, *, now: datetime | None = None) -> bool:
    """Complete a campaign if none of its mail waits or is in flight, under its row lock: an upload may be running."""
    async with pool.acquire() as connection, connection.transaction():
        await store.lock_campaign(connection, campaign_id=campaign_id)
        return await store.complete_campaign(connection, campaign_id=campaign_id, now=now)


async def settle_step(connection: Connection, campaign_id: int, status: CampaignStatus, *, now: datetime | None) -> int:
    """One step; the caller holds the campaign's row lock."""
    match status:
        case CampaignStatus.ACTIVE | CampaignStatus.COMPLETED:
            return await store.release_mail(connection, campaign_id=campaign_id, batch_limit=STEP)
        case CampaignStatus.PAUSED:
            return await store.hold_mail(connection, campaign_id=campaign_id, batch_limit=STEP)
        case CampaignStatus.CANCELLED:
            return await store.cancel_mail(connection, campaign_id=campaign_id, batch_limit=STEP, now=now)
        case _:
            return 0
