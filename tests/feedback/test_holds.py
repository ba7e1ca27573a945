"""Holds after soft bounces: bulk mail waits until the hold ends, auth and transactional mail is attempted."""

from datetime import datetime, timedelta

import pytest
from tests.support.builders import NOON, Hands, Recording, a_mail, a_worker, accepted, outcomes_of, state_of, suppress
from tests.support.campaigns import a_running_campaign
from tests.support.feedback import a_bounce, a_soft_bounce, rows, suppressed

from postroom.campaigns.worker import Feeder
from postroom.db.pool import Pool
from postroom.delivery.model import DeliveryState, Lane
from postroom.feedback.record import record
from postroom.post.reply import Content, Envelope, Reply

DAY = timedelta(days=1)
HOUR = timedelta(hours=1)


async def hold(pool: Pool, address: str = "ada@example.org", *, now: datetime = NOON) -> None:
    """A soft bounce: the address is on hold for a day."""
    async with pool.acquire() as connection:
        await record(connection, [a_soft_bounce(address)], now=now)


async def test_bulk_mail_waits_until_the_hold_ends(pool: Pool) -> None:
    """The mail is accepted with the reason of the hold, and sent when the hold ends."""
    await hold(pool)
    clock, transport = Hands(NOON + HOUR), Recording()
    [delivery] = await accepted(pool, a_mail("Ada@example.org", lane=Lane.BULK), now=clock())
    assert await rows(pool, "SELECT state, reason, next_attempt_at, dated_at FROM deliveries") == [
        ("queued", "recipient_held", NOON + DAY, NOON + DAY)
    ]
    assert await a_worker(pool, transport, clock=clock).run_once(Lane.BULK) == 0
    clock.forward(hours=23)
    await a_worker(pool, transport, clock=clock).run_once(Lane.BULK)
    assert transport.delivery_ids == [delivery]


@pytest.mark.parametrize("lane", [Lane.AUTH, Lane.TRANSACTIONAL])
async def test_codes_and_receipts_are_attempted_during_a_hold(pool: Pool, lane: Lane) -> None:
    """A hold stops bulk mail only, at acceptance and at the claim."""
    await hold(pool)
    transport = Recording()
    [delivery] = await accepted(pool, a_mail(lane=lane), now=NOON)
    await a_worker(pool, transport, clock=Hands()).run_once(lane)
    assert transport.delivery_ids == [delivery]


async def test_accepted_mail_opens_no_hold_for_bulk_mail(pool: Pool) -> None:
    """A relay that accepts a receipt during the hold proves nothing; bulk mail behind it waits."""
    await hold(pool)
    transport, clock = Recording(), Hands(NOON + HOUR)
    [receipt] = await accepted(pool, a_mail(lane=Lane.TRANSACTIONAL), now=clock())
    await a_worker(pool, transport, clock=clock).run_once(Lane.TRANSACTIONAL)
    [news] = await accepted(pool, a_mail(lane=Lane.BULK), now=clock())
    await a_worker(pool, transport, clock=clock).run_once(Lane.BULK)
    assert transport.delivery_ids == [receipt]
    assert await state_of(pool, news) is DeliveryState.QUEUED


async def test_bounce_quicker_than_the_record_of_its_acceptance_holds(pool: Pool) -> None:
    """The bounce of a local server arrives while the attempt is running; its acceptance does not clear the hold."""

    class QuickBounce(Recording):
        async def send(self, envelope: Envelope, content: Content) -> Reply:
            async with pool.acquire() as connection:
                await record(connection, [a_soft_bounce(delivery_id=envelope.delivery_id)], now=NOON)
            return self.reply_to(envelope, content)

    [delivery] = await accepted(pool, a_mail(lane=Lane.TRANSACTIONAL), now=NOON)
    await a_worker(pool, QuickBounce(), clock=Hands(NOON)).run_once(Lane.TRANSACTIONAL)
    assert await state_of(pool, delivery) is DeliveryState.SENT
    assert await suppressed(pool) == [("soft_bounce", "all", NOON + DAY)]


async def test_mail_scheduled_after_the_hold_keeps_its_time(pool: Pool) -> None:
    """The later of both times applies."""
    await hold(pool)
    await accepted(pool, a_mail(lane=Lane.BULK, send_at=NOON + 2 * DAY), now=NOON)
    assert await rows(pool, "SELECT next_attempt_at FROM deliveries") == [(NOON + 2 * DAY,)]


async def test_hold_since_acceptance_is_found_at_the_claim(pool: Pool) -> None:
    """The mail is deferred until the hold ends without an attempt; mail to another address is sent at once."""
    held, free = await accepted(pool, a_mail(lane=Lane.BULK), a_mail("bob@example.org", lane=Lane.BULK), now=NOON)
    await hold(pool)
    transport = Recording()
    await a_worker(pool, transport, clock=Hands(NOON + HOUR)).run_once(Lane.BULK)
    assert transport.delivery_ids == [free]
    found = await pool.fetchrow("SELECT state, attempt_count, next_attempt_at FROM deliveries WHERE id = $1", held)
    assert tuple(found or ()) == ("queued", 0, NOON + DAY)
    assert await rows(pool, "SELECT count(*) FROM claims") == [(0,)]


async def test_hold_that_became_a_suppression_ends_the_mail(pool: Pool) -> None:
    """A hard bounce during the hold suppresses the waiting mail."""
    await hold(pool)
    [delivery] = await accepted(pool, a_mail(lane=Lane.BULK), now=NOON)
    async with pool.acquire() as connection:
        await record(connection, [a_bounce()], now=NOON + HOUR)
    await a_worker(pool, Recording(), clock=Hands(NOON + DAY)).run_once(Lane.BULK)
    assert await state_of(pool, delivery) is DeliveryState.SUPPRESSED


async def test_one_suppressed_and_one_held_recipient(pool: Pool) -> None:
    """The suppressed address gets no mail, and the mail to the held one waits."""
    await hold(pool)
    await suppress(pool, "bob@example.org")
    [delivery] = await accepted(pool, a_mail("ada@example.org", "bob@example.org", lane=Lane.BULK), now=NOON)
    assert await outcomes_of(pool, delivery) == {"ada@example.org": "pending", "bob@example.org": "suppressed"}
    assert await rows(pool, "SELECT next_attempt_at FROM deliveries") == [(NOON + DAY,)]


async def test_mail_that_expires_during_a_hold_is_not_held_again(pool: Pool) -> None:
    """The mail ends as expired when it is claimed, not a day later."""
    [delivery] = await accepted(pool, a_mail(lane=Lane.BULK, expires_at=NOON + HOUR), now=NOON)
    await hold(pool)
    await a_worker(pool, Recording(), clock=Hands(NOON + HOUR)).run_once(Lane.BULK)
    assert await state_of(pool, delivery) is DeliveryState.CANCELLED


async def test_recipients_on_hold_get_campaign_mail_later(pool: Pool) -> None:
    """A hold at the upload or at the feeding drops no recipient of a campaign."""
    await hold(pool, "ann@example.org")
    await a_running_campaign(pool, ["Ann@example.org", "bob@example.org"], now=NOON)
    await Feeder(pool, clock=Hands()).run_once()
    found = await rows(
        pool,
        "SELECT email, next_attempt_at, reason FROM deliveries AS d "
        "JOIN delivery_recipients ON delivery_id = d.id ORDER BY d.id",
    )
    assert found == [("Ann@example.org", NOON + DAY, "recipient_held"), ("bob@example.org", NOON, None)]
