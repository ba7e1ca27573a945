"""Counting: every step of a mail is counted once, for every client."""

from datetime import timedelta

from tests.support.builders import (
    BUSY,
    NOON,
    REFUSED,
    Hands,
    Recording,
    a_checked_mail,
    a_mail,
    a_worker,
    accepted,
    claimed,
    finished,
    redrive,
    suppress,
)

from postroom.db.pool import Pool
from postroom.delivery import service as deliveries
from postroom.delivery import store
from postroom.delivery.decision import complete_columns
from postroom.delivery.maintenance import Maintenance, MaintenanceOptions
from postroom.delivery.model import Lane
from postroom.stats import service
from postroom.stats.model import Figures, Grouping, Selection
from postroom.stats.worker import Rollup


async def figures(pool: Pool) -> Figures:
    return await service.total(pool, Selection())


async def domains(pool: Pool, metric: str) -> dict[str | None, int]:
    """A metric by domain, without zero amounts."""
    lines = await service.measure(pool, Selection(), groups=[Grouping.DOMAIN])
    return {line.domain: getattr(line.figures, metric) for line in lines if getattr(line.figures, metric)}


async def test_sent_mail_counts_as_accepted_and_sent(pool: Pool) -> None:
    """Two mails sent by a worker count twice in both, by the domain of the first recipient."""
    await accepted(pool, a_mail("ada@example.org"), a_mail("bob@Example.COM", "eve@example.org"))
    await a_worker(pool, Recording()).run_once(Lane.TRANSACTIONAL)
    assert await figures(pool) == Figures(accepted=2, sent=2)
    assert await domains(pool, "sent") == {"example.org": 1, "example.com": 1}


async def test_failed_attempt_counts_by_its_outcome(pool: Pool) -> None:
    """A temporary failure counts as deferred; a permanent one ends the mail."""
    await accepted(pool, a_mail(), a_mail())
    await a_worker(pool, Recording(BUSY, REFUSED)).run_once(Lane.TRANSACTIONAL)
    assert await figures(pool) == Figures(accepted=2, deferred=1, refused=1)


async def test_steps_of_different_months_are_all_counted(pool: Pool) -> None:
    """The steps of all partitions count, before and after the rollup."""
    await pool.execute("SELECT ensure_partitions('delivery_steps', 2, $1)", NOON)
    await pool.execute(
        """
        INSERT INTO delivery_steps (transaction_id, delivery_id, at, step, outcome, lane, channel, source, attempt_no)
        SELECT (SELECT id FROM step_transaction()), n, moment, 'sent', 'sent', 'bulk', 'email', 'tests', 1
        FROM generate_series(0, 2) AS n, LATERAL (SELECT $1::timestamptz + make_interval(months => n)) AS at(moment)
        """,
        NOON,
    )
    assert await pool.fetchval("SELECT count(DISTINCT tableoid) FROM delivery_steps") == 3
    for _ in range(2):
        lines = await service.measure(pool, Selection(), groups=[Grouping.DAY])
        assert [line.figures.sent for line in lines] == [1, 1, 1]
        await Rollup(pool).run_once()


async def test_end_without_an_attempt_is_counted(pool: Pool) -> None:
    """Suppression at acceptance, a cancel, an expiry and a failed rendering each count once."""
    await suppress(pool, "eve@example.net")
    cancelled, unrenderable = await accepted(pool, a_mail(), a_mail(template="welcome"), now=NOON)
    await accepted(pool, a_mail("eve@example.net"), a_mail(expires_at=NOON + timedelta(minutes=1)), now=NOON)
    await deliveries.cancel(pool, cancelled, actor="tests")
    async with pool.acquire() as connection:
        await store.fail_unwritable(
            connection, delivery_id=[unrenderable], claim_id=[], reason=["render_failed"], detail=["unknown"], now=NOON
        )
    await Maintenance(pool, clock=Hands(NOON + timedelta(minutes=2))).expire()
    assert await figures(pool) == Figures(accepted=4, suppressed=1, cancelled=2, refused=1)
    assert await domains(pool, "suppressed") == {"example.net": 1}
    assert await domains(pool, "cancelled") == {"example.org": 2}


async def test_suppression_before_sending_counts_once(pool: Pool) -> None:
    """The attempt counts as suppressed, and the end of the delivery does not count again."""
    await accepted(pool)
    await suppress(pool, "ada@example.org")
    await a_worker(pool, Recording()).run_once(Lane.TRANSACTIONAL)
    assert await figures(pool) == Figures(accepted=1, suppressed=1)


async def test_redriven_dead_letter_is_subtracted(pool: Pool) -> None:
    """A dead letter that is redriven and sent counts as sent only."""
    await _dead_letter(pool)
    assert await figures(pool) == Figures(accepted=1, ambiguous=1, dead_lettered=1)
    await redrive(pool)
    assert await figures(pool) == Figures(accepted=1, ambiguous=1)
    await a_worker(pool, Recording()).run_once(Lane.BULK)
    assert await figures(pool) == Figures(accepted=1, ambiguous=1, sent=1)


async def test_settled_dead_letter_counts_as_sent(pool: Pool) -> None:
    """A settled delivery counts as sent, and no longer as a dead letter."""
    delivery_id = await _dead_letter(pool)
    await deliveries.settle(pool, delivery_id, actor="tests")
    assert await figures(pool) == Figures(accepted=1, ambiguous=1, sent=1)


async def _dead_letter(pool: Pool) -> int:
    """A bulk mail whose worker died while it was in flight."""
    [delivery_id] = await accepted(pool, a_mail(lane=Lane.BULK), now=NOON)
    [outgoing] = await claimed(pool, Lane.BULK, now=NOON)
    await pool.execute("UPDATE claims SET started_through = 1 WHERE id = $1", outgoing.claim_id)
    await Maintenance(pool, MaintenanceOptions(held_lanes=("bulk",)), clock=Hands(NOON + timedelta(hours=1))).recover()
    return delivery_id


async def test_claim_release_and_rendering_are_not_counted(pool: Pool) -> None:
    """A claim, its release and a rendering change no figure."""
    await accepted(pool)
    [outgoing] = await claimed(pool)
    async with pool.acquire() as connection:
        await store.release(connection, worker_id=1, delivery_ids=[outgoing.id], claim_id=outgoing.claim_id, now=None)
    assert await figures(pool) == Figures(accepted=1)


async def test_webhooks_are_not_mail(pool: Pool) -> None:
    """A webhook delivery counts neither as accepted nor as sent."""
    await pool.execute(
        """
        INSERT INTO delivery_steps (transaction_id, delivery_id, at, step, lane, channel, source)
        SELECT (SELECT id FROM step_transaction()), 1, now(), step, 'transactional', 'webhook', 'outbox'
        FROM unnest(enum_range(NULL::delivery_step)) AS step
        """
    )
    assert await figures(pool) == Figures()


async def test_rolled_back_change_is_not_counted(pool: Pool) -> None:
    """Statistics are written in the transaction of the counted change."""
    async with pool.acquire() as connection:
        transaction = connection.transaction()
        await transaction.start()
        await deliveries.accept(connection, a_checked_mail())
        await transaction.rollback()
    assert await figures(pool) == Figures()


async def test_campaign_and_sender_are_counted(pool: Pool) -> None:
    """Mail of a campaign through an account is found by both."""
    await accepted(pool, a_mail(), a_mail())
    await pool.execute("UPDATE deliveries SET campaign_id = 7")
    outgoing = await claimed(pool)
    await pool.execute("UPDATE deliveries SET sender_account_id = 3 WHERE id = $1", outgoing[0].id)
    async with pool.acquire() as connection:
        await store.complete(connection, worker_id=1, **complete_columns(finished(outgoing)), now=NOON)
    assert (await service.total(pool, Selection(campaign_id=7))).sent == 2
    assert (await service.total(pool, Selection(campaign_id=7, sender_account_id=3))).sent == 1
    assert (await service.total(pool, Selection(sender_account_id=0))).sent == 1
    assert (await service.total(pool, Selection(campaign_id=8))).sent == 0


async def test_cancelling_in_plain_sql_is_counted(pool: Pool) -> None:
    """A bulk cancel in psql gives the same figures as single cancels."""
    ids = await accepted(pool, *(a_mail() for _ in range(5)))
    await pool.execute("SELECT cancel_deliveries($1, 'cancelled_by_operator')", ids)
    assert await figures(pool) == Figures(accepted=5, cancelled=5)
