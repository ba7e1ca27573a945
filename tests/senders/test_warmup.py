"""Warm-up: stages of growing limits, with seven counted days and few bounces each."""

from datetime import timedelta
from typing import Any

import pytest
from tests.support.builders import NOON, a_mail, accepted
from tests.support.senders import account_of, an_account, claimed, roll_days, set_account

from postroom.db.pool import Pool
from postroom.senders import store
from postroom.senders.model import WARMUP_LIMITS, SenderAccount, SenderStatus

TODAY = NOON.date()


async def a_warming(pool: Pool, stage: int = 1, **columns: Any) -> int:
    given: dict[str, Any] = {
        "daily_limit": 5000,
        "status": "warming_up",
        "warmup_stage": stage,
        "counted_on": TODAY,
        **columns,
    }
    given.setdefault("warmup_current_limit", WARMUP_LIMITS[stage - 1])
    return await an_account(pool, **given)


async def next_day(pool: Pool, account: int, *, day: int = 1) -> SenderAccount:
    async with pool.acquire() as connection:
        await roll_days(connection, NOON + timedelta(days=day))
    return await account_of(pool, account)


async def test_a_warming_account_sends_no_more_than_its_stage(pool: Pool) -> None:
    """The first stage is fifty a day; then the account pauses and keeps its warm-up."""
    account = await a_warming(pool, batch_size=1000)
    await accepted(pool, *(a_mail() for _ in range(60)), now=NOON)
    assert len(await claimed(pool, now=NOON)) == 50
    after = await account_of(pool, account)
    assert (after.status, after.resume_status) == (SenderStatus.PAUSED_LIMIT_REACHED, SenderStatus.WARMING_UP)


@pytest.mark.parametrize(
    "sent, bounces, days_before, stage, days",
    [
        (50, 0, 0, 1, 1),  # a day that counts
        (25, 0, 0, 1, 1),  # half of what was allowed is enough
        (24, 0, 0, 1, 0),  # less is not enough
        (0, 0, 3, 1, 3),  # a day without mail neither counts nor resets
        (50, 0, 6, 2, 0),  # the seventh: on to the next stage
        (50, 1, 6, 1, 0),  # with two of a hundred bounced it begins again
    ],
)
async def test_how_a_day_ends(pool: Pool, sent: int, bounces: int, *, days_before: int, stage: int, days: int) -> None:
    """A day counts if it was used; the seventh moves on if bounces stayed under 2 %."""
    account = await a_warming(pool, daily_sent=sent, daily_bounces=bounces, warmup_days=days_before)
    after = await next_day(pool, account)
    assert (after.warmup_stage, after.warmup_days) == (stage, days)
    assert after.warmup_current_limit == WARMUP_LIMITS[stage - 1]
    assert after.status is SenderStatus.WARMING_UP


async def test_bounces_are_judged_over_the_whole_stage(pool: Pool) -> None:
    """Six clean days and a bad seventh: 3 of 350 is under 2 %."""
    account = await a_warming(
        pool, daily_sent=50, daily_bounces=3, warmup_days=6, warmup_stage_sent=300, warmup_stage_bounces=0
    )
    assert (await next_day(pool, account)).warmup_stage == 2


async def test_after_six_stages_of_seven_days_it_is_active(pool: Pool) -> None:
    """Forty-two full days from 50 to 2000 a day, then only the daily limit holds."""
    account = await a_warming(pool)
    seen = []
    for day in range(1, 43):
        before = await account_of(pool, account)
        seen.append(before.limit)
        await set_account(pool, account, daily_sent=before.limit)
        await next_day(pool, account, day=day)
    after = await account_of(pool, account)
    assert seen == [limit for limit in (50, 100, 250, 500, 1000, 2000) for _ in range(7)]
    assert (after.status, after.warmup_stage, after.warmup_current_limit, after.limit) == (
        SenderStatus.ACTIVE,
        0,
        None,
        5000,
    )


async def test_stages_can_be_chosen(pool: Pool) -> None:
    """Two stages of one day each."""
    account = await a_warming(
        pool, warmup_limits=[10, 20], warmup_days_per_stage=1, warmup_current_limit=10, daily_sent=10
    )
    second = await next_day(pool, account)
    assert (second.warmup_stage, second.warmup_current_limit) == (2, 20)
    await set_account(pool, account, daily_sent=20)
    assert (await next_day(pool, account, day=2)).status is SenderStatus.ACTIVE


async def test_a_daily_limit_below_the_stage_is_what_a_day_is_measured_by(pool: Pool) -> None:
    """An account that may send 30 a day has used its day with 15."""
    account = await a_warming(pool, daily_limit=30, daily_sent=15)
    assert (await next_day(pool, account)).warmup_days == 1


async def test_a_pause_in_between_does_not_lose_the_stage(pool: Pool) -> None:
    """Paused for a month by a person, then resumed: where it was, in the third stage with four days behind it."""
    account = await a_warming(pool, 3, warmup_days=4, status="paused", paused_by="person")
    for day in (1, 15, 30):
        assert (await next_day(pool, account, day=day)).status is SenderStatus.PAUSED
    async with pool.acquire() as connection:
        assert await store.resume_sender(connection, id=account)
    after = await account_of(pool, account)
    assert (after.status, after.warmup_stage, after.warmup_days) == (SenderStatus.WARMING_UP, 3, 4)
