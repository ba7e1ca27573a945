"""Retry, redrive and reschedule of mail whose campaign is paused or cancelled."""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest
from tests.support.builders import NO_ANSWER, NOON, Hands, Recording, claimed, redrive, state_of
from tests.support.campaigns import a_campaign_worker, a_running_campaign, states_of

from postroom.campaigns import service as campaigns
from postroom.campaigns import store as campaign_store
from postroom.db.pool import Pool
from postroom.delivery import service
from postroom.delivery import store as delivery_store
from postroom.delivery.errors import CampaignCancelled
from postroom.delivery.filter import DeliveryFilter, StateFilter
from postroom.delivery.mass.model import MassKind
from postroom.delivery.mass.service import preview
from postroom.delivery.model import DeliveryId, DeliveryState, Lane

ADA = "cli:ada"
Action = Callable[..., Awaitable[Any]]


async def fed(pool: Pool, people: int, hands: Hands) -> tuple[int, list[DeliveryId]]:
    """A campaign whose mail is all in the queue."""
    campaign = await a_running_campaign(pool, people, now=hands())
    async with pool.acquire() as connection:
        await campaign_store.feed_campaign(connection, campaign_id=campaign, target=1000, now=hands())
        ids = [row["id"] for row in await connection.fetch("SELECT id FROM deliveries ORDER BY id")]
    return campaign, ids


async def given_up(pool: Pool, people: int, hands: Hands) -> tuple[int, list[DeliveryId]]:
    """A campaign whose mail is all ambiguous and held."""
    campaign, ids = await fed(pool, people, hands)
    await a_campaign_worker(pool, Recording(NO_ANSWER), clock=hands).run_once(Lane.BULK)
    return campaign, ids


async def left(pool: Pool, hands: Hands) -> list[int]:
    """The deliveries that a worker sends now."""
    transport = Recording()
    await a_campaign_worker(pool, transport, clock=hands).run_once(Lane.BULK)
    return sorted(transport.delivery_ids)


async def redrive_one(pool: Pool, delivery: DeliveryId, *, now: Any) -> None:
    await redrive(pool, ids=(delivery,), now=now)


async def retry(pool: Pool, delivery: DeliveryId, *, now: Any) -> None:
    await service.retry(pool, delivery, actor=ADA, now=now)


async def resend(pool: Pool, delivery: DeliveryId, *, now: Any) -> None:
    await service.resend(pool, delivery, actor=ADA, now=now)


@pytest.mark.parametrize("action", [redrive_one, retry, resend])
async def test_mail_of_a_paused_campaign_waits_until_it_resumes(pool: Pool, action: Action) -> None:
    """The action is accepted, and the mail is sent after the pause."""
    hands = Hands()
    campaign, [delivery] = await given_up(pool, 1, hands)
    await campaigns.pause_campaign(pool, campaign, actor=ADA, now=hands())
    await action(pool, delivery, now=hands())
    assert await left(pool, hands) == []
    await campaigns.resume_campaign(pool, campaign, actor=ADA, now=hands())
    assert len(await left(pool, hands)) == 1


@pytest.mark.parametrize("days", [0, 2])
@pytest.mark.parametrize("action", [redrive_one, retry, resend])
async def test_mail_of_a_cancelled_campaign_is_rejected(pool: Pool, action: Action, days: int) -> None:
    """The error names the delivery and the campaign, also days after the last feeder pass."""
    hands = Hands()
    campaign, [delivery] = await given_up(pool, 1, hands)
    await campaigns.cancel_campaign(pool, campaign, actor=ADA, now=hands())
    hands.forward(days=days)
    with pytest.raises(
        CampaignCancelled, match=rf"Delivery {delivery} cannot be \w+: it belongs to campaign {campaign}"
    ):
        await action(pool, delivery, now=hands())
    assert await state_of(pool, delivery) is DeliveryState.DEAD_LETTER
    assert await left(pool, hands) == []


async def test_a_bulk_redrive_skips_and_counts_cancelled_campaigns(pool: Pool) -> None:
    """A bulk redrive a week later skips mail of cancelled campaigns and counts it."""
    hands = Hands()
    campaign, ids = await given_up(pool, 3, hands)
    await campaigns.cancel_campaign(pool, campaign, actor=ADA, now=hands())
    letters = DeliveryFilter(state=StateFilter.DEAD_LETTER)
    for done in (await preview(pool, MassKind.RETRY, letters, now=hands()), await redrive(pool, now=hands())):
        assert (done.changed, done.skipped) == (0, {"campaign_cancelled": 3})
    assert await states_of(pool, campaign) == {"dead_letter": 3}
    assert await left(pool, hands) == []
    assert len(ids) == 3


async def test_retry_does_not_release_held_mail(pool: Pool) -> None:
    """`retry` and `reschedule` keep mail of a paused campaign held."""
    hands = Hands()
    campaign, [first, second] = await fed(pool, 2, hands)
    await campaigns.pause_campaign(pool, campaign, actor=ADA, now=hands())
    await service.retry(pool, first, actor=ADA, now=hands())
    await service.reschedule(pool, second, send_at=NOON, actor=ADA, now=hands())
    assert await left(pool, hands) == []
    await campaigns.resume_campaign(pool, campaign, actor=ADA, now=hands())
    assert await left(pool, hands) == [first, second]


@pytest.mark.parametrize("action", [campaigns.pause_campaign, campaigns.cancel_campaign])
async def test_mail_released_by_a_worker_after_a_pause_is_not_sent(pool: Pool, action: Action) -> None:
    """Mail that was claimed before the pause and released after it is due, but is not sent before a feeder holds it."""
    hands = Hands()
    campaign, ids = await fed(pool, 2, hands)
    batch = await claimed(pool, Lane.BULK, now=hands())
    await action(pool, campaign, actor=ADA, now=hands())
    async with pool.acquire() as connection:
        await delivery_store.release(connection, worker_id=1, claim_id=batch[0].claim_id, delivery_ids=ids, now=hands())
        assert await delivery_store.find_schedule(connection, lane=Lane.BULK) is None
    hands.forward(seconds=1)
    assert await left(pool, hands) == []


async def test_running_campaign_sends_beside_a_paused_one(pool: Pool) -> None:
    """Workers skip the held mail although it is the oldest."""
    hands = Hands()
    stopped, _ = await fed(pool, 2, hands)
    batch = await claimed(pool, Lane.BULK, now=hands())
    await campaigns.pause_campaign(pool, stopped, actor=ADA, now=hands())
    async with pool.acquire() as connection:
        ids = [outgoing.id for outgoing in batch]
        await delivery_store.release(connection, worker_id=1, claim_id=batch[0].claim_id, delivery_ids=ids, now=hands())
    hands.now = NOON + timedelta(seconds=1)
    _, both = await fed(pool, 1, hands)
    assert await left(pool, hands) == [both[-1]]
