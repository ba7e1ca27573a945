"""Quota, counted in the claim's own transaction, and the start of a new day."""

import asyncio
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import pytest
from tests.support.builders import NOON, a_mail, accepted, addresses
from tests.support.senders import account_of, an_account, claimed, claimed_plainly, roll_days, set_account
from tests.support.sessions import until_blocked

from postroom.db.pool import Pool
from postroom.delivery import store
from postroom.delivery.maintenance import Maintenance
from postroom.delivery.model import Channel, DeliveryRequest, Lane
from postroom.senders.model import SenderStatus

TODAY = NOON.date()


async def fill(pool: Pool, count: int, lane: Lane = Lane.TRANSACTIONAL) -> None:
    await accepted(pool, *(a_mail(lane=lane) for _ in range(count)), now=NOON)


def by_account(outgoing: list) -> Counter[int | None]:  # type: ignore[type-arg]
    return Counter(each.sender_account_id for each in outgoing)


# ── how much ──────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_claim_takes_no_more_than_the_quota(pool: Pool) -> None:
    """Ten wait, three may leave today: three are claimed, the account pauses itself, seven still wait."""
    account = await an_account(pool, daily_limit=3, counted_on=TODAY)
    await fill(pool, 10)
    assert by_account(await claimed(pool, now=NOON)) == {account: 3}
    assert await claimed(pool, now=NOON) == []
    after = await account_of(pool, account)
    assert (after.daily_sent, after.status, after.resume_status) == (
        3,
        SenderStatus.PAUSED_LIMIT_REACHED,
        SenderStatus.ACTIVE,
    )


async def test_a_look_without_due_mail_reserves_nothing(pool: Pool) -> None:
    """A busy lane looks a hundred times a second: without mail it reads no account and counts nothing."""
    await an_account(pool, daily_limit=3, counted_on=TODAY)
    await accepted(pool, a_mail(), now=NOON + timedelta(hours=1))
    calls = "SELECT count(*) FROM reserved"
    await pool.execute("CREATE TABLE reserved (at timestamptz)")
    await pool.execute(
        "ALTER FUNCTION reserve_senders RENAME TO reserve; CREATE FUNCTION reserve_senders(delivery_lane, integer,"
        " timestamptz, bigint[]) RETURNS TABLE (account_id bigint, granted integer, wait interval, send_delay interval)"
        " LANGUAGE sql AS 'INSERT INTO reserved VALUES ($3); SELECT * FROM reserve($1, $2, $3, $4)'"
    )
    assert await claimed(pool, now=NOON) == []
    assert await pool.fetchval(calls) == 0
    assert len(await claimed(pool, now=NOON + timedelta(hours=1))) == 1
    assert await pool.fetchval(calls) == 1


async def test_a_claim_takes_no_more_than_a_batch_of_each(pool: Pool) -> None:
    """`batch_size` bounds what one claim gives one account."""
    one = await an_account(pool, batch_size=2, counted_on=TODAY)
    two = await an_account(pool, "two@example.org", batch_size=3, counted_on=TODAY)
    await fill(pool, 10)
    assert by_account(await claimed(pool, now=NOON)) == {one: 2, two: 3}


async def test_mail_is_dealt_out_in_turn(pool: Pool) -> None:
    """Four mails and three accounts: one each, and the fourth to the first again."""
    accounts = [await an_account(pool, f"{n}@example.org", counted_on=TODAY) for n in range(3)]
    await fill(pool, 4)
    assert [each.sender_account_id for each in await claimed(pool, now=NOON)] == [*accounts, accounts[0]]


async def test_the_least_recently_used_goes_first(pool: Pool) -> None:
    """One mail at a time visits every account before it comes back to the first."""
    accounts = [await an_account(pool, f"{n}@example.org", counted_on=TODAY) for n in range(3)]
    seen = []
    for minute in range(6):
        await fill(pool, 1)
        seen += [each.sender_account_id for each in await claimed(pool, now=NOON + timedelta(minutes=minute))]
    assert seen == accounts * 2


async def test_many_claimers_never_exceed_the_quota(pool: Pool) -> None:
    """Eight claimers at once, three accounts of 40, 30 and 20 a day: exactly 90 of 200 mails are claimed."""
    limits = {await an_account(pool, f"{n}@example.org", daily_limit=n, batch_size=7): n for n in (40, 30, 20)}
    await accepted(pool, *(a_mail() for _ in range(200)))

    async def claim_all() -> list[int | None]:
        mine: list[int | None] = []
        is_over = False
        while not is_over:
            batch = await claimed(pool, limit=25)
            mine += [each.sender_account_id for each in batch]
            used = [(await account_of(pool, each)).daily_sent >= limits[each] for each in limits]
            is_over = not batch and all(used)
        return mine

    async with asyncio.timeout(60):
        shares = await asyncio.gather(*(claim_all() for _ in range(8)))
    assert Counter(account for share in shares for account in share) == limits
    assert {(await account_of(pool, each)).daily_sent for each in limits} == {40, 30, 20}


@pytest.mark.parametrize(
    "columns, is_used",
    [
        ({"status": "active"}, True),
        ({"status": "warming_up", "warmup_stage": 1, "warmup_current_limit": 50}, True),
        ({"status": "paused", "paused_by": "person"}, False),
        ({"status": "paused", "paused_by": "health"}, False),
        ({"status": "suspended", "status_reason": "login refused"}, False),
        ({"status": "paused_limit_reached", "resume_status": "active", "daily_sent": 2000}, False),
        ({"paused_until": NOON + timedelta(seconds=1)}, False),
        ({"paused_until": NOON}, True),
        ({"lanes": ["bulk"]}, False),
        ({"lanes": ["auth", "transactional"]}, True),
        ({"daily_sent": 1999}, True),
        ({"daily_sent": 2000}, False),
    ],
)
async def test_only_available_accounts_are_used(pool: Pool, columns: dict[str, Any], is_used: bool) -> None:  # noqa: FBT001 - a case
    """Only accounts that are active or warming up, not paused, with quota and the lane, are used."""
    await an_account(pool, "never@example.org", status="suspended", status_reason="so that mail waits")
    account = await an_account(pool, counted_on=TODAY, **columns)
    await fill(pool, 1)
    assert [each.sender_account_id for each in await claimed(pool, now=NOON)] == ([account] if is_used else [])


# ── the way without accounts ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "accounts, leaves",
    [
        ([], True),
        ([{"status": "paused", "paused_by": "person"}], True),
        ([{"status": "paused", "paused_by": "health"}], False),
        ([{"status": "suspended", "status_reason": "x"}], False),
        ([{"status": "paused", "paused_by": "person"}, {"status": "suspended", "status_reason": "x"}], False),
        ([{"daily_sent": 2000}], False),
    ],
)
async def test_when_mail_leaves_through_the_relay(pool: Pool, accounts: list[dict[str, str]], leaves: bool) -> None:  # noqa: FBT001 - a case
    """With no account, or when a person has paused every one; otherwise mail waits for them."""
    for n, columns in enumerate(accounts):
        await an_account(pool, f"{n}@example.org", counted_on=TODAY, **columns)
    await fill(pool, 1)
    found = await claimed(pool, now=NOON)
    assert [each.sender_account_id for each in found] == ([None] if leaves else [])


async def test_webhooks_do_not_wait_for_mailboxes(pool: Pool) -> None:
    """Every account is exhausted and ten mails wait before it: the webhook is claimed."""
    await an_account(pool, daily_limit=1, daily_sent=1, counted_on=TODAY)
    await fill(pool, 10)
    hook = DeliveryRequest(to=addresses("https://example.org/hook"), text="{}", channel=Channel.WEBHOOK)
    [webhook] = await accepted(pool, hook, now=NOON)
    assert [each.id for each in await claimed(pool, now=NOON)] == [webhook]


async def test_a_batch_of_both_channels_is_half_and_half(pool: Pool) -> None:
    """Where webhooks and mail are due, neither fills the batch alone."""
    hook = DeliveryRequest(to=addresses("https://example.org/hook"), text="{}", channel=Channel.WEBHOOK)
    await accepted(pool, *(hook for _ in range(10)), *(a_mail() for _ in range(10)), now=NOON)
    channels = Counter(each.channel for each in await claimed_plainly(pool, now=NOON, limit=8))
    assert channels == {Channel.WEBHOOK: 4, Channel.EMAIL: 4}


# ── what was not used ─────────────────────────────────────────────────────────────────────────────────────────────────


async def test_given_back_mail_returns_its_quota(pool: Pool) -> None:
    """Released mail returns its quota, and the account is no longer at its limit."""
    account = await an_account(pool, daily_limit=5, counted_on=TODAY)
    await fill(pool, 5)
    batch = await claimed(pool, now=NOON)
    async with pool.acquire() as connection:
        await store.release(
            connection, worker_id=1, claim_id=batch[0].claim_id, delivery_ids=[each.id for each in batch[2:]], now=NOON
        )
    after = await account_of(pool, account)
    assert (after.daily_sent, after.status, after.resume_status) == (2, SenderStatus.ACTIVE, None)


async def test_yesterday_s_reservation_is_not_returned_today(pool: Pool) -> None:
    """Mail claimed before midnight and released after it does not change the new day's count."""
    account = await an_account(pool, counted_on=TODAY)
    await fill(pool, 3)
    late = datetime(2030, 6, 1, 23, 59, 59, tzinfo=UTC)
    old = await claimed(pool, now=late, limit=2)
    new = await claimed(pool, now=late + timedelta(seconds=2))
    assert (await account_of(pool, account)).daily_sent == len(new) == 1
    async with pool.acquire() as connection:
        await store.release(
            connection, worker_id=1, claim_id=old[0].claim_id, delivery_ids=[each.id for each in old], now=None
        )
    assert (await account_of(pool, account)).daily_sent == 1


async def test_returns_of_quota_lock_accounts_in_one_order(pool: Pool) -> None:
    """A return that names the accounts in another order waits for the first one and locks no later one: no deadlock."""
    accounts = [await an_account(pool, f"{n}@example.org", daily_sent=2, counted_on=TODAY) for n in range(6)]
    await set_account(pool, accounts[0], notes="stored last in the table")
    quota = "SELECT return_sender_quota($1, array_fill($2::date, ARRAY[cardinality($1::bigint[])]))"
    async with pool.acquire() as first, first.transaction():
        await first.execute(quota, accounts[:1], TODAY)
        second = asyncio.create_task(pool.execute(quota, accounts[::-1], TODAY))
        await until_blocked(pool)
        await first.execute(quota, accounts[1:], TODAY)
    await second
    assert {(await account_of(pool, each)).daily_sent for each in accounts} == {0}


async def test_recovery_returns_what_was_not_started(pool: Pool) -> None:
    """A worker died after starting two of five: two stay counted, for they may have left; three are returned."""
    account = await an_account(pool, counted_on=TODAY)
    await fill(pool, 5)
    batch = await claimed(pool, now=NOON)
    async with pool.acquire() as connection:
        await store.mark_started(
            connection, worker_id=1, claim_id=batch[0].claim_id, started_through=2, lease=timedelta(seconds=1), now=NOON
        )
    await Maintenance(pool, clock=lambda: NOON + timedelta(minutes=5)).recover()
    assert (await account_of(pool, account)).daily_sent == 2


# ── the day ───────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_the_first_use_of_a_day_resets_the_counters(pool: Pool) -> None:
    """The host was down at midnight: the first claim of the new UTC day begins it."""
    account = await an_account(
        pool, counted_on=TODAY - timedelta(days=3), daily_sent=2000, daily_bounces=7, daily_errors=9,
        status="paused_limit_reached", resume_status="active",
    )  # fmt: skip
    await fill(pool, 1)
    assert by_account(await claimed(pool, now=NOON)) == {account: 1}
    after = await account_of(pool, account)
    assert (after.daily_sent, after.daily_bounces, after.daily_errors, after.status) == (1, 0, 0, SenderStatus.ACTIVE)
    assert after.last_reset_at == NOON


@pytest.mark.parametrize(
    "columns, status",
    [
        ({"status": "paused_limit_reached", "resume_status": "active"}, SenderStatus.ACTIVE),
        (
            {
                "status": "paused_limit_reached",
                "resume_status": "warming_up",
                "warmup_stage": 2,
                "warmup_current_limit": 100,
            },
            SenderStatus.WARMING_UP,
        ),
        ({"status": "paused", "paused_by": "person"}, SenderStatus.PAUSED),
        ({"status": "paused", "paused_by": "health"}, SenderStatus.PAUSED),
        ({"status": "suspended", "status_reason": "x"}, SenderStatus.SUSPENDED),
        ({"status": "active"}, SenderStatus.ACTIVE),
    ],
)
async def test_new_day_ends_the_pause_of_a_reached_limit(
    pool: Pool, columns: dict[str, Any], status: SenderStatus
) -> None:
    """A new day ends only the pause of a reached limit."""
    account = await an_account(pool, counted_on=TODAY, daily_sent=10, **columns)
    async with pool.acquire() as connection:
        assert await roll_days(connection, NOON + timedelta(days=1)) == 1
        assert await roll_days(connection, NOON + timedelta(days=1)) == 0
    after = await account_of(pool, account)
    assert (after.status, after.daily_sent, after.resume_status) == (status, 0, None)


async def test_the_day_is_utc(pool: Pool) -> None:
    """A session in another time zone rolls the day when UTC does."""
    account = await an_account(pool, counted_on=TODAY, daily_sent=1)
    async with pool.acquire() as connection, connection.transaction():
        await connection.execute("SET LOCAL TimeZone = 'Pacific/Kiritimati'")
        await roll_days(connection, datetime(2030, 6, 1, 23, 59, tzinfo=UTC))
    assert (await account_of(pool, account)).daily_sent == 1


# ── what the table refuses ────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "columns, constraint",
    [
        ({"auth_type": "pigeon"}, "sender_accounts_auth_type"),
        ({"smtp_host": None}, "sender_accounts_smtp"),
        ({"smtp_port": 0}, "sender_accounts_smtp"),
        (
            {
                "auth_type": "gmail",
                "smtp_host": None,
                "smtp_port": None,
                "credentials_encrypted": "x",
                "credentials_key_id": "k",
            },
            "sender_accounts_gmail",
        ),
        ({"gmail_subject_email": "ada@example.org"}, "sender_accounts_gmail"),
        ({"ses_region": "eu-west-1"}, "sender_accounts_ses"),
        ({"credentials_encrypted": "x", "credentials_key_id": "k"}, "sender_accounts_credentials"),
        ({"status": "paused"}, "sender_accounts_paused_by"),
        ({"paused_by": "person"}, "sender_accounts_paused_by"),
        ({"status": "paused_limit_reached"}, "sender_accounts_resume"),
        ({"status": "warming_up"}, "sender_accounts_warming"),
        ({"warmup_stage": 7, "warmup_current_limit": 5}, "sender_accounts_warming"),
        ({"daily_limit": 0}, "sender_accounts_limits"),
        ({"batch_size": 0}, "sender_accounts_limits"),
        ({"send_delay_ms": -1}, "sender_accounts_limits"),
        ({"lanes": []}, "sender_accounts_lanes"),
    ],
)
async def test_impossible_accounts_are_impossible(pool: Pool, columns: dict[str, Any], constraint: str) -> None:
    """The table checks the columns of each type and status, and the range of numbers."""
    with pytest.raises(asyncpg.CheckViolationError) as refused:
        await an_account(pool, **columns)
    assert constraint in str(refused.value)


async def test_login_without_a_sealed_password_is_refused_with_the_command(pool: Pool) -> None:
    """SQL cannot seal a password; the error names the column, and its hint the commands that can."""
    with pytest.raises(asyncpg.CheckViolationError, match="smtp_password_encrypted") as refused:
        await an_account(pool, smtp_username="ada")
    assert (refused.value.constraint_name, "postroom senders update" in (refused.value.hint or "")) == (
        "sender_accounts_smtp",
        True,
    )


async def test_a_mailbox_stands_once_however_it_is_written(pool: Pool) -> None:
    """`Ada@Example.org` is `ada@example.org`."""
    await an_account(pool, "ada@example.org")
    with pytest.raises(asyncpg.UniqueViolationError):
        await an_account(pool, "Ada@Example.ORG")


async def test_the_defaults_are_those_of_the_specification(pool: Pool) -> None:
    """2000 a day, 50 at once, 100 ms apart, active, not warming up."""
    async with pool.acquire() as connection:
        made = await connection.fetchval(
            "INSERT INTO sender_accounts (email, auth_type, smtp_host, smtp_port)"
            " VALUES ('a@example.org', 'smtp', 'mail.example.org', 587) RETURNING id"
        )
    account = await account_of(pool, made)
    assert (account.daily_limit, account.batch_size, account.send_delay_ms) == (2000, 50, 100)
    assert (account.status, account.warmup_stage, account.smtp_use_tls) == (SenderStatus.ACTIVE, 0, True)


@pytest.mark.parametrize(
    "given,delay_ms",
    [
        ({"auth_type": "smtp", "smtp_host": "mail.example.org", "smtp_port": 587}, 100),
        (
            {
                "auth_type": "gmail",
                "gmail_subject_email": "a@example.org",
                "credentials_encrypted": "x",
                "credentials_key_id": "k",
            },
            400,
        ),
        ({"auth_type": "ses", "ses_region": "eu-west-1"}, 0),
        ({"auth_type": "ses", "ses_region": "eu-west-1", "send_delay_ms": 70}, 70),
    ],
)
async def test_the_default_delay_follows_the_type_also_in_sql(pool: Pool, given: dict[str, Any], delay_ms: int) -> None:
    """Gmail charges 100 of 250 quota units a second for each mail: 100 ms would be throttled at once."""
    marks = ", ".join(f"${number + 2}" for number in range(len(given)))
    insert = f"INSERT INTO sender_accounts (email, {', '.join(given)}) VALUES ($1, {marks}) RETURNING send_delay_ms"
    assert await pool.fetchval(insert, "a@example.org", *given.values()) == delay_ms


async def test_a_raised_limit_by_hand_lets_it_go_on(pool: Pool) -> None:
    """An UPDATE of status and limit takes effect at once."""
    account = await an_account(pool, daily_limit=1, counted_on=TODAY)
    await fill(pool, 2)
    await claimed(pool, now=NOON)
    await set_account(pool, account, daily_limit=5, status="active", resume_status=None)
    assert by_account(await claimed(pool, now=NOON)) == {account: 1}
