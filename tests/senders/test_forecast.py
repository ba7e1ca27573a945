"""Forecasts: delay within a day, quota from day to day."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from tests.support.senders import ACCOUNT

from postroom.senders.forecast import AccountPool
from postroom.senders.model import SenderAccount, SenderStatus

EVENING = datetime(2030, 6, 1, 22, tzinfo=UTC)


@pytest.mark.parametrize(
    "mails, expected",
    [
        (0, timedelta()),
        (100, timedelta(seconds=10)),
        (1500, timedelta(seconds=150)),
        (1501, timedelta(hours=2, seconds=0.1)),
        (3500, timedelta(hours=2, seconds=200)),
        (3501, timedelta(days=1, hours=2, seconds=0.1)),
    ],
)
def test_quota_carries_over_midnight(mails: int, expected: timedelta) -> None:
    """The forecast uses the remaining quota of today, then whole days from midnight."""
    pool = AccountPool.of(
        [replace(ACCOUNT, daily_limit=2000, daily_sent=500, send_delay_ms=100)], lane="bulk", rate=1000
    )
    assert pool is not None
    assert pool.time_for(mails, now=EVENING) == expected


def test_a_day_is_no_longer_than_its_pace() -> None:
    """Quota that the pace cannot use up before midnight is not counted."""
    pool = AccountPool.of([replace(ACCOUNT, daily_limit=1_000_000, send_delay_ms=1000)], lane="bulk", rate=1000)
    assert pool is not None
    assert pool.time_for(7_201, now=EVENING) == timedelta(hours=2, seconds=1)


def test_accounts_add_up_to_what_can_be_sent_at_all() -> None:
    """Accounts without a pace are as fast as the installation, not faster together."""
    pool = AccountPool.of(
        [replace(ACCOUNT, send_delay_ms=0, daily_limit=10**6), replace(ACCOUNT, daily_limit=10**6)],
        lane="bulk",
        rate=1000,
    )
    assert pool is not None
    assert pool.per_second == 1000


@pytest.mark.parametrize(
    "account",
    [
        replace(ACCOUNT, status=SenderStatus.PAUSED),
        replace(ACCOUNT, status=SenderStatus.SUSPENDED),
        replace(ACCOUNT, lanes=("auth",)),
    ],
)
def test_without_an_account_of_the_lane_there_is_no_forecast(account: SenderAccount) -> None:
    """Without an active account of the lane there is no forecast."""
    assert AccountPool.of([account], lane="bulk", rate=1000) is None
