"""The rate and the quota of the room in a worker: mail beyond them stays queued.

Limits are looked up only while mail is claimed, so an idle room costs nothing. While the room has no mail left, the
worker claims no mail; webhooks go on. A retry is not counted again, but waits too.
"""

import time
from collections.abc import Callable, Sequence

from postroom.db.pool import Pool
from postroom.limits.errors import QuotaExceeded, RateExceeded
from postroom.limits.limiter import Limiter
from postroom.limits.model import SENT, HeldLimits


class RoomHold:
    """Counts the mails of one worker process against the limits of its room."""

    def __init__(self, pool: Pool, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._limiter = Limiter(pool, monotonic=monotonic)
        self._held: tuple[HeldLimits, float] | None = None

    async def holds_mail(self) -> bool:
        """True while the room has no mail left. Other limits end it within seconds."""
        if self._held is None:
            return False
        limits, until = self._held
        if self._monotonic() < until and limits in await self._limiter.limits_of(None):
            return True
        self._held = None
        return False

    async def count_fitting(self, mails: Sequence[int]) -> int:
        """How many deliveries may be sent, from the first on, given the number of mails in each; they are counted.

        A delivery with more recipients than a limit counts as many mails as the limit: otherwise it would never leave.
        """
        limits = next((each for each in await self._limiter.limits_of(None) if each.counts), None)
        if limits is None or not any(mails):
            return len(mails)
        most = min(filter(None, (limits.rate_per_minute, limits.daily_quota)))
        return await self._fit([min(count, most) for count in mails], limits)

    async def close(self) -> None:
        """Return the mails that were taken and not sent."""
        await self._limiter.close()

    async def _fit(self, mails: Sequence[int], limits: HeldLimits) -> int:
        allowances, first = self._limiter.allowances, next(count for count in mails if count)
        try:
            grant = await allowances.take(limits, sum(mails), least=first, holder=SENT)
        except (RateExceeded, QuotaExceeded) as error:
            self._held = (limits, self._monotonic() + (error.retry_after_s or 0))
            return next(index for index, count in enumerate(mails) if count)
        left, fitting = grant.count, 0
        for count in mails:
            if count > left:
                break
            left, fitting = left - count, fitting + 1
        if left:
            allowances.give_back(grant, left)
        return fitting
