"""The worker with accounts: an account's trouble does not count against the mail."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from tests.support.builders import (
    DELIVERED,
    NOON,
    Hands,
    Hanging,
    Recording,
    a_mail,
    accepted,
    attempts_of,
    state_of,
    suppress,
)
from tests.support.senders import Ways, a_desk, a_sending_worker, account_of, an_account, claimed, set_account

from postroom.db.pool import Pool
from postroom.delivery.model import DeliveryState, Lane
from postroom.delivery.worker import WorkerOptions
from postroom.post.reply import Reply, Stage
from postroom.senders import store as senders
from postroom.senders.model import PausedBy, SenderStatus

LOGIN_REFUSED = Reply(Stage.LOGIN, 535, "5.7.8", "wrong password")
BUSY = Reply(Stage.FINAL, 421, "4.7.0", "slow down", retry_after_s=90.0)
UNREACHED = Reply(Stage.CONNECT, text="connection refused")
REFUSED = Reply(Stage.CONNECT, 554, text="go away")
UNKNOWN_USER = Reply(Stage.RECIPIENT, 550, "5.1.1", "no such user")


async def run_once(pool: Pool, ways: Ways, lane: Lane = Lane.TRANSACTIONAL, **seams: Any) -> int:
    desk = a_desk(pool, ways, clock=seams.get("clock", lambda: None))
    try:
        return await a_sending_worker(pool, desk, **seams).run_once(lane)
    finally:
        await desk.close()


async def fetch(pool: Pool, query: str, *arguments: object) -> Any:
    async with pool.acquire() as connection:
        return await connection.fetchrow(query, *arguments)


async def test_mail_leaves_through_its_account_and_the_ledger_says_so(pool: Pool) -> None:
    """Delivery, attempt and counter name the account; the domain of the first recipient is kept in lower case."""
    account = await an_account(pool)
    [delivery] = await accepted(pool, a_mail("Ada@Example.ORG"))
    ways, relay = Ways(), Recording()
    assert await run_once(pool, ways, relay=relay) == 1
    assert (ways.sent("one@example.org"), relay.envelopes) == (1, [])
    assert await state_of(pool, delivery) is DeliveryState.SENT
    row = await fetch(pool, "SELECT sender_account_id, domain FROM attempts WHERE delivery_id = $1", delivery)
    assert tuple(row) == (account, "example.org")
    assert (await account_of(pool, account)).daily_sent == 1


async def test_without_accounts_mail_leaves_through_the_relay(pool: Pool) -> None:
    """A worker without accounts uses the relay."""
    await accepted(pool)
    ways, relay = Ways(), Recording()
    await run_once(pool, ways, relay=relay)
    assert (len(relay.envelopes), ways.by_email) == (1, {})


async def test_a_refused_login_suspends_and_the_mail_goes_by_another(pool: Pool) -> None:
    """One rejected login suspends; the mail loses no attempt and arrives through the next account."""
    bad = await an_account(pool, "bad@example.org")
    good = await an_account(pool, "good@example.org")
    await set_account(pool, good, last_used_at=NOON)  # the other is asked first
    [delivery] = await accepted(pool)
    ways = Ways(bad=LOGIN_REFUSED)
    await run_once(pool, ways)
    assert await state_of(pool, delivery) is DeliveryState.QUEUED
    await run_once(pool, ways)
    assert await state_of(pool, delivery) is DeliveryState.SENT
    suspended = await account_of(pool, bad)
    assert (suspended.status, suspended.status_reason) == (SenderStatus.SUSPENDED, "login refused: 535 wrong password")
    assert [attempt.outcome for attempt in await attempts_of(pool, delivery)] == ["deferred", "sent"]
    row = await fetch(pool, "SELECT attempt_count, attempt_base FROM deliveries WHERE id = $1", delivery)
    assert row["attempt_count"] - row["attempt_base"] == 1


async def test_with_no_other_account_the_mail_waits_and_loses_nothing(pool: Pool) -> None:
    """The mail waits for the suspended account and is sent on its first attempt after the resume."""
    account = await an_account(pool, "bad@example.org")
    [delivery] = await accepted(pool)
    await run_once(pool, Ways(bad=LOGIN_REFUSED))
    assert await run_once(pool, Ways()) == 0
    async with pool.acquire() as connection:
        await senders.resume_sender(connection, id=account)
    assert await run_once(pool, Ways()) == 1
    assert await state_of(pool, delivery) is DeliveryState.SENT


async def test_throttled_account_pauses_for_the_hinted_time(pool: Pool) -> None:
    """After 421 with a hint of ninety seconds the account pauses, then sends the mail on its first attempt."""
    hands = Hands()
    account = await an_account(pool, counted_on=NOON.date())
    [delivery] = await accepted(pool, now=hands())
    ways = Ways(one=[BUSY, DELIVERED])
    await run_once(pool, ways, clock=hands)
    assert (await account_of(pool, account)).paused_until == NOON + timedelta(seconds=90)
    assert (await account_of(pool, account)).status is SenderStatus.ACTIVE
    assert str((await account_of(pool, account)).status_reason).startswith("rests: 4")
    hands.forward(seconds=89)
    assert await run_once(pool, ways, clock=hands) == 0
    hands.forward(seconds=2)
    assert await run_once(pool, ways, clock=hands) == 1
    assert await state_of(pool, delivery) is DeliveryState.SENT
    row = await fetch(pool, "SELECT attempt_count, attempt_base FROM deliveries WHERE id = $1", delivery)
    assert tuple(row) == (2, 1)


async def test_a_mail_that_two_accounts_are_throttled_for_pauses_one_of_them(pool: Pool) -> None:
    """A content filter that answers 421 to one mail pauses only the first account."""
    hands = Hands()
    accounts = [await an_account(pool, f"{name}@example.org", counted_on=NOON.date()) for name in ("a", "b", "c")]
    [poison] = await accepted(pool, now=hands())
    ways = Ways(a=BUSY, b=BUSY, c=BUSY)
    while await run_once(pool, ways, clock=hands):
        pass
    resting = [(await account_of(pool, account)).paused_until for account in accounts]
    assert [moment is not None for moment in resting].count(True) == 1
    assert [attempt.outcome for attempt in await attempts_of(pool, poison)] == ["deferred", "deferred"]
    row = await fetch(
        pool, "SELECT next_attempt_at > $2 AS waits, throttled_by FROM deliveries WHERE id = $1", poison, NOON
    )
    assert (row["waits"], len(row["throttled_by"])) == (True, 2)


async def test_forgiven_attempts_return_their_quota(pool: Pool) -> None:
    """The account was throttled: nothing left through it, so nothing is counted."""
    hands = Hands()
    account = await an_account(pool, counted_on=NOON.date())
    await accepted(pool, now=hands())
    await run_once(pool, Ways(one=BUSY), clock=hands)
    assert (await account_of(pool, account)).daily_sent == 0


async def test_single_account_is_throttled_three_times_per_mail(pool: Pool) -> None:
    """After three pauses for one mail its ladder applies, and after four days it is given up."""
    hands = Hands()
    account = await an_account(pool, counted_on=NOON.date())
    [poison] = await accepted(pool, now=hands())
    for _ in range(60):
        await run_once(pool, Ways(one=BUSY), clock=hands)
        hands.forward(hours=6)
    assert await state_of(pool, poison) is DeliveryState.DEAD_LETTER
    attempts = await attempts_of(pool, poison)
    assert len(attempts) < 30
    assert attempts[-1].started_at - attempts[0].started_at <= timedelta(days=4)
    assert (await account_of(pool, account)).paused_until == attempts[2].finished_at + timedelta(seconds=90)


async def test_a_claimed_mail_of_a_suspended_account_goes_back_unstarted(pool: Pool) -> None:
    """After a rejected login the other nine claimed mails are released with their quota."""
    account = await an_account(pool, "bad@example.org", send_delay_ms=50)
    ids = await accepted(pool, *(a_mail() for _ in range(10)))
    ways = Ways(bad=LOGIN_REFUSED)
    assert await run_once(pool, ways) == 10
    assert ways.sent("bad@example.org") == 1
    assert {await state_of(pool, each) for each in ids} == {DeliveryState.QUEUED}
    assert sorted([len(await attempts_of(pool, each)) for each in ids]) == [0] * 9 + [1]
    assert (await account_of(pool, account)).daily_sent == 0


@pytest.mark.parametrize("why", ["suppressed", "expired"])
async def test_mail_that_is_not_tried_uses_no_quota(pool: Pool, why: str) -> None:
    """Suppressed and expired mail uses no quota."""
    account = await an_account(pool)
    [delivery] = await accepted(pool, a_mail(expires_at=NOON) if why == "expired" else a_mail(), now=NOON)
    if why == "suppressed":
        await suppress(pool, "ada@example.org")
    await set_account(pool, account, counted_on=NOON.date())
    await run_once(pool, Ways(), clock=Hands())
    assert await state_of(pool, delivery) in (DeliveryState.SUPPRESSED, DeliveryState.CANCELLED)
    assert (await account_of(pool, account)).daily_sent == 0


async def test_mail_that_cannot_be_written_uses_no_quota(pool: Pool) -> None:
    """Mail that cannot be composed uses no quota."""
    account = await an_account(pool)
    await accepted(pool)

    def compose(_outgoing: object) -> Any:
        raise ValueError("cannot be written")

    await run_once(pool, Ways(), compose=compose)
    assert (await account_of(pool, account)).daily_sent == 0


async def test_ten_errors_in_a_row_pause_an_account(pool: Pool) -> None:
    """The account is paused by its health, with a reason, until a person resumes it."""
    account = await an_account(pool)
    await accepted(pool, *(a_mail() for _ in range(10)))
    await run_once(pool, Ways(one=REFUSED))
    after = await account_of(pool, account)
    assert (after.status, after.paused_by, after.status_reason) == (
        SenderStatus.PAUSED,
        PausedBy.HEALTH,
        "10 errors in a row",
    )
    assert after.daily_errors == 10


async def test_a_dead_network_does_not_pause_an_account(pool: Pool) -> None:
    """Servers that cannot be reached are retried; neither the health nor the quota of the account changes."""
    account = await an_account(pool)
    ids = await accepted(pool, *(a_mail() for _ in range(60)))
    await run_once(pool, Ways(one=UNREACHED))
    after = await account_of(pool, account)
    assert (after.status, after.daily_errors, after.consecutive_errors, after.daily_sent) == (
        SenderStatus.ACTIVE,
        0,
        0,
        0,
    )
    assert [attempt.outcome for attempt in await attempts_of(pool, ids[0])] == ["deferred"]


async def test_too_many_bounces_pause_an_account(pool: Pool) -> None:
    """Fifty attempts within the hour of which three bounced are 6 %."""
    account = await an_account(pool)
    await accepted(pool, *(a_mail() for _ in range(50)))
    await run_once(pool, Ways(one=[UNKNOWN_USER] * 3 + [DELIVERED]))
    after = await account_of(pool, account)
    assert (after.status, after.daily_bounces) == (SenderStatus.PAUSED, 3)
    assert after.status_reason == "3 of 50 mails bounced"


async def test_the_window_forgets(pool: Pool) -> None:
    """Bounces two hours ago do not count."""
    hands = Hands()
    account = await an_account(pool, counted_on=NOON.date())
    await accepted(pool, *(a_mail() for _ in range(40)), now=hands())
    await run_once(pool, Ways(one=UNKNOWN_USER), clock=hands)
    hands.forward(hours=2)
    await accepted(pool, *(a_mail() for _ in range(10)), now=hands())
    await run_once(pool, Ways(), clock=hands)
    assert (await account_of(pool, account)).status is SenderStatus.ACTIVE


async def test_after_a_person_resumes_the_record_is_clean(pool: Pool) -> None:
    """After a resume one more error does not pause the account."""
    hands = Hands()  # stands still: no mail that failed is due again
    account = await an_account(pool, batch_size=10, counted_on=NOON.date())
    await accepted(pool, *(a_mail() for _ in range(11)), now=hands())
    await run_once(pool, Ways(one=REFUSED), clock=hands)
    async with pool.acquire() as connection:
        await senders.resume_sender(connection, id=account)
    await run_once(pool, Ways(one=REFUSED), clock=hands)
    after = await account_of(pool, account)
    assert (after.status, after.consecutive_errors) == (SenderStatus.ACTIVE, 1)


async def test_credentials_that_cannot_be_opened_let_the_account_rest(pool: Pool) -> None:
    """Undecryptable credentials pause the account; the mail loses nothing, and the ledger has the reason."""
    account = await an_account(
        pool, smtp_username="ada", smtp_password_encrypted="local:0000:AAAA", credentials_key_id="0000"
    )
    [delivery] = await accepted(pool)
    await run_once(pool, Ways())
    after = await account_of(pool, account)
    assert after.status is SenderStatus.ACTIVE
    assert after.paused_until is not None
    assert "the stored credentials cannot be used" in str(after.status_reason)
    [attempt] = await attempts_of(pool, delivery)
    assert "cannot be used" in (attempt.reply_text or "")
    assert await state_of(pool, delivery) is DeliveryState.QUEUED


async def test_an_account_deleted_meanwhile_gives_its_mail_back(pool: Pool) -> None:
    """Mail of an account deleted after the claim is released and sent by the relay."""
    account = await an_account(pool)
    [delivery] = await accepted(pool)
    desk = a_desk(pool, Ways())
    worker = a_sending_worker(pool, desk)
    batch = await worker._claim(Lane.TRANSACTIONAL)
    async with pool.acquire() as connection:
        await senders.delete_sender(connection, id=account)
    desk._entries.clear()
    completing = asyncio.create_task(worker._ledger.loop().run(asyncio.Event()))
    await worker._work_through(Lane.TRANSACTIONAL, batch)
    await worker._finish_in_flight()
    await worker._ledger.drain()
    completing.cancel()
    await desk.close()
    assert await state_of(pool, delivery) is DeliveryState.QUEUED
    relay = Recording()
    await run_once(pool, Ways(), relay=relay)
    assert relay.delivery_ids == [delivery]


async def test_stopping_returns_what_was_not_started(pool: Pool) -> None:
    """A stopping worker releases mail it has not started, with its quota."""
    account = await an_account(pool, batch_size=10)
    ids = await accepted(pool, *(a_mail() for _ in range(5)))
    hanging = Hanging()
    desk = a_desk(pool, lambda _account, _credentials: hanging)
    options = WorkerOptions(chunk=1, lanes=(Lane.TRANSACTIONAL,), grace=timedelta(milliseconds=10))
    worker = a_sending_worker(pool, desk, options=options)
    running = asyncio.create_task(worker.run())
    await hanging.reached.wait()
    worker.stop()
    await running
    await desk.close()
    started = len(hanging.envelopes)
    assert started < len(ids)
    assert (await account_of(pool, account)).daily_sent == started


async def test_failing_to_prepare_gives_the_claim_back(pool: Pool) -> None:
    """If loading fails, the claim is released at once."""
    [delivery] = await accepted(pool)

    async def prepare(*_claimed: object) -> None:
        raise OSError("the database flickered")

    desk = a_desk(pool, Ways())
    worker = a_sending_worker(pool, desk, prepare=prepare)
    with pytest.raises(OSError, match="flickered"):
        await worker._claim(Lane.TRANSACTIONAL)
    assert await state_of(pool, delivery) is DeliveryState.QUEUED
    assert worker._ledger.held() == []


async def test_a_paced_account_empties_the_queue(pool: Pool) -> None:
    """`until_empty` waits for turns: thirty mails, ten milliseconds apart, over two accounts."""
    for name in ("one", "two"):
        await an_account(pool, f"{name}@example.org", send_delay_ms=10, batch_size=3)
    await accepted(pool, *(a_mail() for _ in range(30)))
    ways = Ways()
    desk = a_desk(pool, ways)
    options = WorkerOptions(until_empty=True, lease=timedelta(hours=1), poll_interval=timedelta(milliseconds=20))
    async with asyncio.timeout(60):
        await a_sending_worker(pool, desk, options=options).run()
    await desk.close()
    assert ways.sent("one@example.org") + ways.sent("two@example.org") == 30
    row = await fetch(pool, "SELECT count(*) FILTER (WHERE held_by IS NOT NULL), sum(daily_sent) FROM sender_accounts")
    assert tuple(row) == (0, 30)


async def test_a_code_does_not_wait_behind_a_campaign(pool: Pool) -> None:
    """The next hold of a busy account goes to the waiting code, not to bulk mail."""
    await an_account(pool, send_delay_ms=400, counted_on=NOON.date())
    await accepted(pool, *(a_mail(lane=Lane.BULK) for _ in range(20)), a_mail(lane=Lane.AUTH), now=NOON)
    first = await claimed(pool, Lane.BULK, now=NOON)
    assert len(first) == 3  # what starts within a second
    assert await claimed(pool, Lane.AUTH, now=NOON) == []
    async with pool.acquire() as connection:
        await connection.execute("DELETE FROM claims")  # the hold is over
    later = NOON + timedelta(seconds=1)
    assert await claimed(pool, Lane.BULK, now=later) == []
    assert len(await claimed(pool, Lane.AUTH, now=later)) == 1


async def test_request_for_an_account_expires(pool: Pool) -> None:
    """A lane's request for an account expires after two seconds."""
    await an_account(pool, send_delay_ms=400, counted_on=NOON.date(), wanted_lane="auth", wanted_at=NOON)
    await accepted(pool, a_mail(lane=Lane.BULK), now=NOON)
    assert await claimed(pool, Lane.BULK, now=NOON + timedelta(seconds=1)) == []
    assert len(await claimed(pool, Lane.BULK, now=NOON + timedelta(seconds=2))) == 1
