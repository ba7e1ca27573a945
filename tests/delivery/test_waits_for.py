"""`waits_for`: the one answer to why a delivery waits."""

from datetime import timedelta

import pytest
from tests.support.builders import NOON, Hands, Recording, a_mail, a_worker, accepted

from postroom.db.pool import Pool
from postroom.delivery.model import Lane
from postroom.post.reply import Reply, Stage

LATER = NOON + timedelta(hours=1)

WORKER = "INSERT INTO workers (pid, host, seen_at) VALUES (1, 'h', '2030-06-01 12:00Z')"
ACCOUNT = """
    INSERT INTO sender_accounts (
        email, auth_type, smtp_host, smtp_port, send_delay_ms, daily_limit, daily_sent, counted_on
    )
    VALUES ('shop@example.org', 'smtp', 'mx.example.org', 25, 0, 5, {sent}, '2030-06-01')
"""


async def answer(pool: Pool, delivery_id: int) -> object:
    rows = await pool.fetch("SELECT waits_for($1, $2) AS why", delivery_id, NOON)
    return rows[0]["why"]


@pytest.mark.parametrize(
    "reply, why",
    [
        (Reply(Stage.CONNECT, text="connection refused"), "relay"),
        (Reply(Stage.TLS, text="certificate has expired"), "relay"),
        (Reply(Stage.LOGIN, 454, "4.7.0", "not now"), "relay"),
        (Reply(Stage.RECIPIENT, 451, "4.3.0", "try later"), "retry"),
    ],
)
async def test_deferred_mail_waits_for_the_relay_or_for_its_retry(pool: Pool, reply: Reply, why: str) -> None:
    """The stage of the last attempt decides: a relay that was not reached, or a server that asked to try later."""
    [delivery_id] = await accepted(pool, a_mail(), now=NOON)
    await a_worker(pool, Recording(reply), clock=Hands()).run_once(Lane.TRANSACTIONAL)
    assert await answer(pool, delivery_id) == why


async def test_mail_for_later_waits_for_its_time(pool: Pool) -> None:
    """Scheduled mail waits for its time, whether a worker runs or not."""
    [delivery_id] = await accepted(pool, a_mail(send_at=LATER), now=NOON)
    assert await answer(pool, delivery_id) == "time"


async def test_bulk_mail_to_an_address_on_hold_waits_for_the_hold(pool: Pool) -> None:
    """Mail that was postponed without an attempt is held."""
    [delivery_id] = await accepted(pool, a_mail(lane=Lane.BULK), now=NOON)
    await pool.execute("UPDATE deliveries SET next_attempt_at = $1", LATER)
    assert await answer(pool, delivery_id) == "hold"


@pytest.mark.parametrize(
    "facts, why",
    [
        ([], "worker"),
        ([WORKER], "turn"),
        ([WORKER, ACCOUNT.format(sent=4)], "turn"),
        ([WORKER, ACCOUNT.format(sent=5)], "quota"),
        ([WORKER, ACCOUNT.format(sent=5), "UPDATE sender_accounts SET counted_on = '2030-05-31'"], "turn"),
        ([WORKER, ACCOUNT.format(sent=5), "UPDATE sender_accounts SET lanes = '{bulk}'"], "turn"),
        ([WORKER, ACCOUNT.format(sent=0), "UPDATE sender_accounts SET paused_until = '2030-06-01 13:00Z'"], "sender"),
        (
            [WORKER, ACCOUNT.format(sent=0), "UPDATE sender_accounts SET status = 'suspended', status_reason = 'x'"],
            "sender",
        ),
        (
            [WORKER, ACCOUNT.format(sent=5), "UPDATE sender_accounts SET status = 'paused', paused_by = 'person'"],
            "turn",
        ),
        (
            [
                WORKER,
                "INSERT INTO room_limits (daily_quota) VALUES (3)",
                "INSERT INTO allowances (holder, minute, day, day_used) VALUES ('sent', now(), '2030-06-01', 3)",
            ],
            "quota",
        ),
    ],
)
async def test_due_mail_waits_for_a_worker_an_account_or_its_turn(pool: Pool, facts: list[str], why: str) -> None:
    """Due mail needs a worker, then an account with quota, and then it is its turn."""
    [delivery_id] = await accepted(pool, a_mail(), now=NOON)
    for fact in facts:
        await pool.execute(fact)
    assert await answer(pool, delivery_id) == why


async def test_mail_of_a_paused_campaign_waits_for_the_pause(pool: Pool) -> None:
    """The pause of a campaign comes before every other reason."""
    [delivery_id] = await accepted(pool, a_mail(lane=Lane.BULK), now=NOON)
    await pool.execute(
        "INSERT INTO campaigns (name, from_email, subject, text_body, status, started_at, paused_at) "
        "VALUES ('News', 'a@example.org', 's', 't', 'paused', now(), now())"
    )
    await pool.execute("UPDATE deliveries SET campaign_id = (SELECT max(id) FROM campaigns)")
    assert await answer(pool, delivery_id) == "pause"


@pytest.mark.parametrize("end", ["sent", "sending", "cancelled"])
async def test_mail_that_does_not_wait_has_no_reason(pool: Pool, end: str) -> None:
    """Mail that ended, or that is being sent, waits for nothing."""
    [delivery_id] = await accepted(pool, a_mail(), now=NOON)
    if end == "cancelled":
        await pool.execute("SELECT cancel_deliveries(ARRAY[$1::bigint], 'tests', now())", delivery_id)
    elif end == "sent":
        await a_worker(pool, Recording(), clock=Hands()).run_once(Lane.TRANSACTIONAL)
    else:
        await pool.execute(
            "UPDATE deliveries SET state = 'sending', claim_id = 1, next_attempt_at = NULL, attempt_count = 1"
        )
    assert await answer(pool, delivery_id) is None
