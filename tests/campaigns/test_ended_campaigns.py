"""The end of a campaign: it completes under its lock, and no mail of an ended one waits where nothing takes it."""

import asyncio
from typing import Any

import pytest
from tests.campaigns.test_feeding import a_feeder, drain
from tests.support.builders import NOON, Hands, Recording, claimed
from tests.support.campaigns import a_campaign_worker, a_running_campaign, states_of
from tests.support.sessions import until_blocked

from postroom.campaigns import service
from postroom.campaigns.model import CampaignStatus
from postroom.campaigns.store import insert_recipients, lock_campaign
from postroom.db.pool import Pool
from postroom.delivery.maintenance import Maintenance
from postroom.delivery.model import Lane
from postroom.delivery.store import resend


async def test_upload_that_commits_while_the_campaign_completes_keeps_it_active(pool: Pool) -> None:
    """The feeder waits for the campaign that an upload holds, and then sees the recipients of that upload."""
    clock = Hands()
    campaign = await a_running_campaign(pool, 2, now=NOON)
    feeder = a_feeder(pool, clock=clock)
    await feeder.run_once()
    await drain(pool, 10, clock)
    async with pool.acquire() as connection:
        uploading = connection.transaction()
        await uploading.start()
        await lock_campaign(connection, campaign_id=campaign)
        await insert_recipients(
            connection,
            campaign_id=campaign,
            now=clock(),
            email=["late@example.org"],
            name=[None],
            time_zone=[""],
            custom_data=["{}"],
            zone=[""],
            due_at=[clock()],
        )
        feeding = asyncio.create_task(feeder.run_once())
        await until_blocked(pool, unless=feeding)
        await uploading.commit()
    await feeding
    assert (await service.get_campaign(pool, campaign)).status is CampaignStatus.ACTIVE
    assert await feeder.run_once() == 1


async def test_mail_of_a_campaign_cancelled_days_ago_is_cancelled(pool: Pool) -> None:
    """Mail that a dead worker held returns to the queue after days; the feeder is woken for it and cancels it."""
    clock = Hands()
    campaign = await a_running_campaign(pool, 3, now=NOON)
    feeder = a_feeder(pool, clock=clock)
    await feeder.run_once()
    assert len(await claimed(pool, now=clock(), lane=Lane.BULK)) == 3
    await service.cancel_campaign(pool, campaign, actor="tests", now=clock())
    clock.forward(days=3)
    await Maintenance(pool, clock=clock).recover()
    assert await pool.fetchval("SELECT next_feed_at() <= now()")
    await feeder.run_once()
    assert await states_of(pool, campaign) == {"cancelled": 3}
    assert await pool.fetchval("SELECT next_feed_at()") is None


async def test_held_mail_of_a_completed_campaign_is_released(pool: Pool) -> None:
    """A resend in a pause, whose transaction ends after the resume and the completion, has put its mail on hold."""
    clock = Hands()
    campaign = await a_running_campaign(pool, 1, now=NOON)
    feeder = a_feeder(pool, clock=clock)
    await feeder.run_once()
    await drain(pool, 10, clock)
    async with pool.acquire() as connection:
        await service.pause_campaign(pool, campaign, actor="tests", now=clock())
        resending = connection.transaction()
        await resending.start()
        [sent] = await connection.fetch("SELECT id FROM deliveries")
        [copy] = await resend(connection, delivery_ids=[sent["id"]], now=clock())
        await service.resume_campaign(pool, campaign, actor="tests", now=clock())
        await feeder.run_once()
        assert (await service.get_campaign(pool, campaign)).status is CampaignStatus.COMPLETED
        await resending.commit()
    assert await pool.fetchval("SELECT next_feed_at() <= now()")
    await feeder.run_once()
    assert await pool.fetchval("SELECT next_attempt_at FROM deliveries WHERE id = $1", copy) == clock()
    assert len(await drain(pool, 10, clock)) == 1


@pytest.mark.parametrize("stop", [service.cancel_campaign, service.pause_campaign])
async def test_claimed_mail_of_a_stopped_campaign_is_not_started(
    pool: Pool, stop: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that starts a claim reads the status of its campaigns: mail of a stopped one is released."""
    clock = Hands()
    campaign = await a_running_campaign(pool, 3, now=NOON)
    await a_feeder(pool, clock=clock).run_once()
    transport = Recording()

    worker = a_campaign_worker(pool, transport, clock=clock)
    prepare = worker._get_ready

    async def stop_then_prepare(*claim: Any) -> None:
        await stop(pool, campaign, actor="tests", now=clock())
        await prepare(*claim)

    monkeypatch.setattr(worker, "_get_ready", stop_then_prepare)
    await worker.run_once(Lane.BULK)
    assert transport.envelopes == []
    assert await states_of(pool, campaign) == {"queued": 3}
    assert await drain(pool, 10, clock) == []
