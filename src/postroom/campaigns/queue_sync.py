"""What of a campaign lies in the queue, made to agree with the campaign's status: held, let go or cancelled.

In bounded steps, each under the campaign's row lock with its status read anew, so that whoever pauses, resumes, cancels
or feeds at the same time is either before or after a step, never in the middle of it.
"""

from datetime import datetime

from postroom.campaigns import store
from postroom.campaigns.model import CampaignStatus
from postroom.db.pool import Pool
from postroom.db.queries import Connection

STEP = 5000


async def settle_mail(pool: Pool, campaign_id: int, *, now: datetime | None = None) -> int:
    """Step by step until nothing is out of place; returns how many deliveries were moved."""
    total, moved = 0, STEP
    while moved == STEP:
        async with pool.acquire() as connection, connection.transaction():
            campaign = await store.lock_campaign(connection, campaign_id=campaign_id)
            moved = 0 if campaign is None else await settle_step(connection, campaign_id, campaign.status, now=now)
        total += moved
    return total


async def settle_step(connection: Connection, campaign_id: int, status: CampaignStatus, *, now: datetime | None) -> int:
    """One step, by a caller who holds the campaign."""
    match status:
        case CampaignStatus.ACTIVE:
            return await store.release_mail(connection, campaign_id=campaign_id, batch_limit=STEP)
        case CampaignStatus.PAUSED:
            return await store.hold_mail(connection, campaign_id=campaign_id, batch_limit=STEP)
        case CampaignStatus.CANCELLED:
            return await store.cancel_mail(connection, campaign_id=campaign_id, batch_limit=STEP, now=now)
        case _:
            return 0
