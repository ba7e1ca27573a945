"""The feeder against a real database: recipients, order, due times, pause and cancel."""

import asyncio
from datetime import UTC, datetime, time, timedelta

import pytest
from tests.support.builders import NOON, Hands, Recording, claimed, per_recipient, suppress
from tests.support.campaigns import SIGNER, a_campaign, a_campaign_worker, a_running_campaign, csv_of, states_of, upload
from tests.support.loops import looping

from postroom.campaigns import service
from postroom.campaigns.model import CampaignStatus, RecipientState
from postroom.campaigns.rendering import CampaignRendering, RenderingOptions
from postroom.campaigns.worker import Feeder, FeederOptions
from postroom.db.pool import Pool, connect
from postroom.delivery.model import Lane
from postroom.delivery.worker import WorkerOptions


def a_feeder(pool: Pool, *, target: int = 50, clock: Hands | None = None) -> Feeder:
    """A feeder with this maximum of queued mails per campaign."""
    options = FeederOptions(first_target=target, least_target=target, most_target=target)
    return Feeder(pool, options, clock=clock or Hands())


async def drain(pool: Pool, limit: int, clock: Hands) -> list[int]:
    """Claim and send one batch; returns the recipients in sending order."""
    transport = Recording()
    worker = a_campaign_worker(pool, transport, clock=clock, options=WorkerOptions(batch=limit, chunk=limit))
    await worker.run_once(Lane.BULK)
    sent = transport.delivery_ids
    owners = await pool.fetch("SELECT id, campaign_id FROM deliveries WHERE id = ANY($1::bigint[])", sent)
    campaign_of = {row["id"]: row["campaign_id"] for row in owners}
    return [campaign_of[delivery_id] for delivery_id in sorted(sent)]


async def test_slice_never_exceeds_the_target(pool: Pool) -> None:
    """A feeder queues at most the target; the next pass replaces mail that was sent."""
    clock = Hands()
    campaign = await a_running_campaign(pool, 120, now=NOON)
    feeder = a_feeder(pool, clock=clock)
    assert await feeder.run_once() == 50
    assert await feeder.run_once() == 0
    await drain(pool, 20, clock)
    assert await feeder.run_once() == 20
    assert await states_of(pool, campaign) == {"queued": 50, "sent": 20}


async def test_recipients_are_queued_once_and_campaign_completes(pool: Pool) -> None:
    """The campaign completes after its last mail is sent, and not before."""
    clock = Hands()
    campaign = await a_running_campaign(pool, 70, now=NOON)
    feeder = a_feeder(pool, clock=clock)
    while (await service.get_campaign(pool, campaign)).status is CampaignStatus.ACTIVE:
        await feeder.run_once()
        await drain(pool, 30, clock)
    assert await states_of(pool, campaign) == {"sent": 70}
    addresses = await pool.fetch("SELECT email FROM delivery_recipients")
    assert len({row["email"] for row in addresses}) == len(addresses) == 70
    done = await service.get_campaign(pool, campaign)
    assert (done.fed, done.finished_at) == (70, NOON)
    figures = (await service.measure(pool, [done]))[campaign].counts
    assert (figures.total, figures.sent, figures.queued, figures.failed) == (70, 70, 0, 0)


async def test_a_claim_keeps_its_letters_until_it_ends(pool: Pool) -> None:
    """Mail that waits for its turn is rendered although later claims fill the cache; then its letter is evicted."""
    for _ in range(2):
        await a_running_campaign(pool, 1, now=NOON)
    await a_feeder(pool).run_once()
    [first], [second] = [await claimed(pool, Lane.BULK, now=NOON, limit=1) for _ in range(2)]
    letters = CampaignRendering(pool, SIGNER, RenderingOptions(default_domain="example.org", cached=1))
    await letters.prepare([first], [first.claim_id])
    await letters.prepare([second], [first.claim_id, second.claim_id])
    with pytest.raises(ValueError, match="unknown variable: first_name"):  # of the letter; the claim has no variables
        letters.write(first)
    await letters.prepare([second], [second.claim_id])
    with pytest.raises(LookupError):
        letters.write(first)


async def test_campaign_with_mail_in_flight_is_not_complete(pool: Pool) -> None:
    """A claimed or deferred mail keeps the campaign active."""
    campaign = await a_running_campaign(pool, 1, now=NOON)
    feeder = a_feeder(pool)
    await feeder.run_once()
    await claimed(pool, Lane.BULK, now=NOON)
    await feeder.run_once()
    assert (await service.get_campaign(pool, campaign)).status is CampaignStatus.ACTIVE


async def test_concurrent_feeders_queue_recipients_once(pool: Pool) -> None:
    """Four concurrent feeders create one delivery per recipient."""
    campaign = await a_running_campaign(pool, 400, now=NOON)
    feeders = [a_feeder(pool, target=60) for _ in range(4)]
    for _ in range(12):
        await asyncio.gather(*(feeder.run_once() for feeder in feeders))
        await pool.execute(
            "UPDATE deliveries SET state = 'cancelled', next_attempt_at = NULL, finished_at = now(), reason = 'test' "
            "WHERE state = 'queued'"
        )
    rows = await pool.fetch("SELECT email, count(*) FROM delivery_recipients GROUP BY email")
    assert len(rows) == 400
    assert {row["count"] for row in rows} == {1}
    assert (await service.get_campaign(pool, campaign)).fed == 400


async def test_small_campaign_interleaves_with_a_large_one(pool: Pool) -> None:
    """Fifty mails of a large campaign wait when a small one starts: the next claims hold mail of both."""
    clock = Hands()
    large = await a_running_campaign(pool, 1000, now=NOON)
    feeder = a_feeder(pool, clock=clock)
    await feeder.run_once()
    clock.forward(seconds=30)
    await drain(pool, 10, clock)
    await feeder.run_once()
    small = await a_running_campaign(pool, [f"small{n}@example.org" for n in range(20)], now=clock.now)
    await feeder.run_once()
    left: list[int] = []
    for _ in range(2):
        left += await drain(pool, 35, clock)
        clock.forward(seconds=1)
        await feeder.run_once()
    assert left.count(small) == 20
    assert left.count(large) == 50


async def test_two_large_campaigns_share_the_lane(pool: Pool) -> None:
    """The campaign that started first has no advantage once both are running."""
    clock = Hands()
    first = await a_running_campaign(pool, 600, now=NOON)
    second = await a_running_campaign(pool, [f"q{n}@example.org" for n in range(600)], now=NOON)
    feeder = a_feeder(pool, target=100, clock=clock)
    left: list[int] = []
    for _ in range(8):
        await feeder.run_once()
        left += await drain(pool, 60, clock)
        clock.forward(seconds=1)
    assert abs(left.count(first) - left.count(second)) <= 100
    assert left.count(first) + left.count(second) == 480


async def test_codes_do_not_wait_behind_a_campaign(pool: Pool) -> None:
    """Campaign mail uses the bulk lane only."""
    await a_running_campaign(pool, 10, now=NOON)
    await a_feeder(pool).run_once()
    rows = await pool.fetch("SELECT DISTINCT lane::text, source, template_id FROM deliveries")
    assert [tuple(row.values()) for row in rows] == [("bulk", "campaign:1", None)]


async def test_suppression_after_upload_prevents_queueing(pool: Pool) -> None:
    """The feeder checks suppressions again; a suppressed recipient gets no delivery and is counted."""
    campaign = await a_running_campaign(pool, ["Ann@Example.org", "bob@example.org"], now=NOON)
    await suppress(pool, "ann@example.org", scope="bulk")
    await a_feeder(pool).run_once()
    found, _ = await service.list_recipients(pool, campaign, state=RecipientState.SUPPRESSED)
    assert [recipient.email for recipient in found] == ["Ann@example.org"]
    told = await service.get_campaign(pool, campaign)
    assert (told.fed, told.suppressed) == (1, 1)
    assert await states_of(pool, campaign) == {"queued": 1}


async def test_suppression_after_queueing_prevents_sending(pool: Pool) -> None:
    """The worker checks suppressions right before sending."""
    clock = Hands()
    campaign = await a_running_campaign(pool, ["ann@example.org", "bob@example.org"], now=NOON)
    await a_feeder(pool).run_once()
    await suppress(pool, "ann@example.org", scope="bulk")
    await drain(pool, 10, clock)
    assert await states_of(pool, campaign) == {"suppressed": 1, "sent": 1}
    told = await service.get_campaign(pool, campaign)
    counts = (await service.measure(pool, [told]))[campaign].counts
    assert (counts.total, counts.sent, counts.suppressed, counts.queued) == (2, 1, 1, 0)


async def test_hard_bounce_in_the_session_counts_as_bounced(pool: Pool) -> None:
    """550 5.1.1 counts as bounced and a block as failed; no recipient counts twice."""
    campaign = await a_running_campaign(pool, ["ann@example.org", "bob@example.org", "cem@example.org"], now=NOON)
    await a_feeder(pool).run_once()
    replies = {"ann@example.org": (550, "5.1.1"), "bob@example.org": (550, "5.7.1")}
    await a_campaign_worker(pool, Recording(per_recipient(replies)), clock=Hands()).run_once(Lane.BULK)
    told = await service.get_campaign(pool, campaign)
    counts = (await service.measure(pool, [told]))[campaign].counts
    assert (counts.total, counts.sent, counts.bounced, counts.failed, counts.queued) == (3, 1, 1, 1, 0)


async def test_pause_holds_mail_and_resume_releases_it(pool: Pool) -> None:
    """A paused campaign sends and queues nothing; after a resume each recipient gets one mail."""
    clock = Hands()
    campaign = await a_running_campaign(pool, 80, now=NOON)
    feeder = a_feeder(pool, clock=clock)
    await feeder.run_once()
    assert (await service.pause_campaign(pool, campaign, actor="tests", now=clock.now)).status is CampaignStatus.PAUSED
    clock.forward(days=30)
    assert await feeder.run_once() == 0
    assert await drain(pool, 100, clock) == []
    await service.resume_campaign(pool, campaign, actor="tests", now=clock.now)
    assert len(await drain(pool, 100, clock)) == 50
    await feeder.run_once()
    assert len(await drain(pool, 100, clock)) == 30
    assert await states_of(pool, campaign) == {"sent": 80}


async def test_resume_keeps_retry_times(pool: Pool) -> None:
    """A retry that was due in an hour keeps its due time over a pause."""
    campaign = await a_running_campaign(pool, 1, now=NOON)
    await a_feeder(pool).run_once()
    await pool.execute("UPDATE deliveries SET next_attempt_at = $1", NOON + timedelta(hours=1))
    await service.pause_campaign(pool, campaign, actor="tests", now=NOON)
    await service.resume_campaign(pool, campaign, actor="tests", now=NOON + timedelta(minutes=5))
    assert await pool.fetchval("SELECT next_attempt_at FROM deliveries") == NOON + timedelta(hours=1)


async def test_mail_released_after_a_pause_is_held(pool: Pool) -> None:
    """A batch that was claimed before a pause and released after it is held by the next pass."""
    clock = Hands()
    campaign = await a_running_campaign(pool, 5, now=NOON)
    feeder = a_feeder(pool, clock=clock)
    await feeder.run_once()
    await claimed(pool, Lane.BULK, now=clock.now, limit=3)
    await service.pause_campaign(pool, campaign, actor="tests", now=clock.now)
    await pool.execute(
        "UPDATE deliveries SET state = 'queued', claim_id = NULL, next_attempt_at = $1 WHERE state = 'sending'",
        clock.now,
    )
    await feeder.run_once()
    assert await drain(pool, 10, clock) == []
    await service.resume_campaign(pool, campaign, actor="tests", now=clock.now)
    assert len(await drain(pool, 10, clock)) == 5


async def test_feeder_finishes_an_interrupted_resume(pool: Pool) -> None:
    """A process that died after it set the status leaves held mail; the next pass releases it."""
    clock = Hands()
    campaign = await a_running_campaign(pool, 5, now=NOON)
    feeder = a_feeder(pool, clock=clock)
    await feeder.run_once()
    await service.pause_campaign(pool, campaign, actor="tests", now=clock.now)
    await pool.execute("UPDATE campaigns SET status = 'active', paused_at = NULL")
    await feeder.run_once()
    assert len(await drain(pool, 10, clock)) == 5


async def test_cancel_ends_waiting_mail_and_recipients(pool: Pool) -> None:
    """Waiting mail is cancelled with its reason, waiting recipients count as cancelled, and the status is final."""
    clock = Hands()
    campaign = await a_running_campaign(pool, 80, now=NOON)
    feeder = a_feeder(pool, clock=clock)
    await feeder.run_once()
    await drain(pool, 10, clock)
    await service.cancel_campaign(pool, campaign, actor="tests", now=clock.now)
    assert await feeder.run_once() == 0
    assert await states_of(pool, campaign) == {"sent": 10, "cancelled": 40}
    reasons = await pool.fetch("SELECT DISTINCT reason FROM deliveries WHERE state = 'cancelled'")
    assert [row["reason"] for row in reasons] == ["campaign_cancelled"]
    told = await service.get_campaign(pool, campaign)
    counts = (await service.measure(pool, [told]))[campaign].counts
    assert (counts.sent, counts.cancelled, counts.queued) == (10, 70, 0)
    never, _ = await service.list_recipients(pool, campaign, state=RecipientState.CANCELLED, limit=200)
    assert len(never) == 30


async def test_deferred_mail_of_a_cancelled_campaign_is_cancelled(pool: Pool) -> None:
    """A mail in flight during the cancel that is deferred later is not retried."""
    clock = Hands()
    campaign = await a_running_campaign(pool, 2, now=NOON)
    feeder = a_feeder(pool, clock=clock)
    await feeder.run_once()
    await claimed(pool, Lane.BULK, now=clock.now)
    await service.cancel_campaign(pool, campaign, actor="tests", now=clock.now)
    await pool.execute("UPDATE deliveries SET state = 'queued', claim_id = NULL, next_attempt_at = $1", clock.now)
    await feeder.run_once()
    assert await states_of(pool, campaign) == {"cancelled": 2}


async def test_campaign_waits_for_its_start_time(pool: Pool) -> None:
    """A campaign scheduled for tomorrow queues nothing today."""
    clock = Hands()
    await a_running_campaign(pool, 3, now=NOON, start_at=NOON + timedelta(days=1))
    feeder = a_feeder(pool, clock=clock)
    assert await feeder.run_once() == 0
    clock.forward(days=1)
    assert await feeder.run_once() == 3


async def test_each_zone_is_due_at_its_local_time(pool: Pool) -> None:
    """09:00 is due in Tokyo, Berlin and New York in turn; recipients without a zone use the campaign's zone."""
    clock = Hands(datetime(2030, 6, 1, 20, tzinfo=UTC))
    campaign = await a_campaign(pool, local_time=time(9), time_zone="Europe/Berlin", subject="Hi", html="<p>Hi</p>")
    lines = (
        "email,time_zone\ntokyo@example.org,Asia/Tokyo\nberlin@example.org,\nnowhere@example.org,\n"
        "newyork@example.org,America/New_York\n"
    )
    await upload(pool, campaign.id, lines.encode())
    started = await service.start_campaign(pool, campaign.id, actor="tests", now=clock.now)
    assert started.estimate.finishes_at == datetime(2030, 6, 2, 13, tzinfo=UTC)
    feeder = a_feeder(pool, clock=clock)
    fed: list[tuple[int, int]] = []
    for hour in range(48):
        clock.now = datetime(2030, 6, 1, 20, tzinfo=UTC) + timedelta(hours=hour)
        if number := await feeder.run_once():
            fed.append((clock.now.hour, number))
    assert fed == [(0, 1), (7, 2), (13, 1)]


async def test_recipients_added_to_a_running_campaign_are_queued(pool: Pool) -> None:
    """The next pass queues recipients of an upload into a running campaign, also those of a new zone."""
    clock = Hands()
    campaign = await a_running_campaign(pool, 2, now=NOON)
    feeder = a_feeder(pool, clock=clock)
    await feeder.run_once()
    await upload(pool, campaign, b"email,first_name,time_zone\nnew@example.org,New,Asia/Tokyo\n", now=NOON)
    await upload(pool, campaign, csv_of(3), now=NOON)
    assert await feeder.run_once() == 2
    assert (await service.get_campaign(pool, campaign)).fed == 4


async def test_start_notifies_feeders(pool: Pool, database_url: str) -> None:
    """The notification of a start wakes an idle feeder before its interval ends."""
    heard = asyncio.Event()
    campaign = await a_campaign(pool, 1)
    listening = await connect(database_url, "postroom")
    try:
        await listening.add_listener("postroom_campaigns", lambda *_: heard.set())
        await service.start_campaign(pool, campaign.id, actor="tests")
        async with asyncio.timeout(60):
            await heard.wait()
    finally:
        await listening.close()
    assert heard.is_set()


async def test_feeder_loop_runs_until_stopped(pool: Pool) -> None:
    """The loop feeds a campaign that starts while it is idle, and ends when it is stopped."""
    campaign = await a_campaign(pool, 3)
    feeder = Feeder(pool, FeederOptions(idle_interval=timedelta(hours=1)))
    async with asyncio.timeout(60), looping(feeder.loop()):
        await service.start_campaign(pool, campaign.id, actor="tests")
        while not await states_of(pool, campaign.id):
            feeder.notified("")
    assert await states_of(pool, campaign.id) == {"queued": 3}


@pytest.mark.parametrize("waiting, expected", [(0, 100), (49, 50), (30, 50)])
async def test_target_follows_the_drain_rate(pool: Pool, waiting: int, expected: int) -> None:
    """The target doubles if nearly all mail was sent since the last pass, and halves to the minimum if none was."""
    clock = Hands()
    campaign = await a_running_campaign(pool, 200, now=NOON)
    feeder = Feeder(pool, FeederOptions(first_target=50, least_target=50, most_target=400), clock=clock)
    feeder._targets[campaign] = 50
    await feeder.run_once()
    feeder._targets[campaign] = 50
    await drain(pool, 50 - waiting, clock)
    await feeder.run_once()
    assert feeder._targets[campaign] == expected


async def test_slice_reads_only_its_own_recipients(pool: Pool) -> None:
    """After thousands of recipients, a pass reads only the ones it queues, by the primary key."""
    await a_running_campaign(pool, 6000, now=NOON)
    feeder = a_feeder(pool, target=500)
    for _ in range(10):
        await feeder.run_once()
        await pool.execute(
            "UPDATE deliveries SET state = 'cancelled', next_attempt_at = NULL, finished_at = now(), reason = 'test' "
            "WHERE state = 'queued'"
        )
    async with pool.acquire() as connection:
        await connection.execute("SELECT pg_stat_force_next_flush()")
        count = "SELECT idx_tup_read FROM pg_stat_user_indexes WHERE indexrelname = 'campaign_recipients_pkey'"
        before = await connection.fetchval(count)
    assert await feeder.run_once() == 500
    async with pool.acquire() as connection:
        for each in range(2):
            await connection.execute(f"SELECT pg_stat_force_next_flush(), {each}")
        assert await connection.fetchval(count) - before <= 4 * 500
