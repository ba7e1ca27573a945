"""How long so many mails take through a pool of accounts: by their pace within a day, by their quota from day to day.

Pure. Warm-ups are taken as they stand today, so a forecast over many days errs on the long side.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from postroom.senders.model import SenderAccount, SenderStatus

SENDING = (SenderStatus.ACTIVE, SenderStatus.WARMING_UP, SenderStatus.PAUSED_LIMIT_REACHED)
DAY_S = 86_400.0


@dataclass(frozen=True, slots=True)
class AccountPool:
    """What the accounts of one lane can do together, at most `rate` mails a second."""

    today: int
    daily: int
    per_second: float

    @classmethod
    def of(cls, accounts: Sequence[SenderAccount], *, lane: str, rate: float) -> "AccountPool | None":
        """None if the lane has no account that sends: then accounts do not hold its mail up."""
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
        """From now until the last of so many has left; quotas begin anew with each UTC day."""
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
