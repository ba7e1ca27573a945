"""Forecast of the time a pool of accounts needs for a number of mails, from their delays and daily quotas.

Pure. The warm-up limits of today are used for every day, so a forecast over many days is too long rather than too
short.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from postroom.senders.model import SenderAccount, SenderStatus

SENDING = (SenderStatus.ACTIVE, SenderStatus.WARMING_UP, SenderStatus.PAUSED_LIMIT_REACHED)
DAY_S = 86_400.0  # a day in seconds


@dataclass(frozen=True, slots=True)
class AccountPool:
    """The combined capacity of the accounts of one lane, at most `rate` mails a second."""

    today: int
    daily: int
    per_second: float

    @classmethod
    def of(cls, accounts: Sequence[SenderAccount], *, lane: str, rate: float) -> "AccountPool | None":
        """Return the pool, or None if no account serves the lane: accounts then do not delay its mail."""
        ours = [account for account in accounts if account.status in SENDING and lane in account.lanes]
        if not ours:
            return None
        paces = [1000 / account.send_delay_ms if account.send_delay_ms else rate for account in ours]
        return cls(
            today=sum(max(0, account.limit - account.daily_sent) for account in ours),
            daily=sum(account.limit for account in ours),
            per_second=min(rate, sum(paces)),
        )

    def time_for(self, mails: int, *, now: datetime) -> timedelta:
        """The time until the last of `count` mails has left; quotas reset each UTC day."""
        midnight = (now.astimezone(UTC) + timedelta(days=1)).replace(hour=0, minute=0, second=0, microsecond=0)
        first = (midnight - now).total_seconds()
        today = min(self.today, int(first * self.per_second))
        if mails <= today:
            return timedelta(seconds=mails / self.per_second)
        a_day = max(1, min(self.daily, int(DAY_S * self.per_second)))
        days, rest = divmod(mails - today, a_day)
        if rest == 0:
            days, rest = days - 1, a_day
        return timedelta(days=days, seconds=first + rest / self.per_second)
