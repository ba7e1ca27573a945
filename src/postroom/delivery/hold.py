"""The rate and the quota of the room in a worker: mail beyond them stays queued.

Limits are looked up only while mail is claimed, so an idle room costs nothing, and only if the start of a chunk has
found that the room has some. While the room has no mail left, the worker claims no mail; webhooks go on. A retry is not
counted again, but waits too.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from postroom.db.pool import Pool
from postroom.delivery.model import Channel, Outgoing
from postroom.limits.allowance import Grant
from postroom.limits.errors import QuotaExceeded, RateExceeded
from postroom.limits.limiter import Limiter
from postroom.limits.model import SENT, HeldLimits


class RoomHold:
    """Counts the mails of one worker process against the limits of its room."""

    def __init__(self, pool: Pool, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._limiter = Limiter(pool, monotonic=monotonic)
        self._held: tuple[HeldLimits, float] | None = None
        self._has_counted = False
        self.is_limited = True  # until a worker has read that it is not
        self._in_flight: dict[int, Grant] = {}  # by delivery, until its result is written or it is released

    async def holds_mail(self) -> bool:
        """True while the room has no mail left. Other limits end it within seconds."""
        if self._held is None:
            return False
        limits, until = self._held
        if self._monotonic() < until and limits in await self._limiter.limits_of(None):
            return True
        self._held = None
        return False

    async def count_fitting(self, chunk: Sequence[Outgoing]) -> int:
        """How many deliveries may be sent, from the first on; they are counted.

        A delivery with more recipients than a limit counts as many mails as the limit: otherwise it would never leave.
        """
        if not self.is_limited:
            return len(chunk)
        limits = next((each for each in await self._limiter.limits_of(None) if each.counts), None)
        if limits is None:
            return len(chunk)
        deliveries = [(outgoing.id, _mails_of(outgoing)) for outgoing in chunk]
        if not any(count for _id, count in deliveries):
            return len(chunk)
        most = min(filter(None, (limits.rate_per_minute, limits.daily_quota)))
        return await self._fit([(delivery_id, min(count, most)) for delivery_id, count in deliveries], limits)

    def give_back(self, delivery_ids: Sequence[int]) -> None:
        """Return the mails of deliveries that were not sent."""
        for delivery_id in delivery_ids:
            if (grant := self._in_flight.pop(delivery_id, None)) is not None:
                self._limiter.allowances.give_back(grant)

    def forget(self, delivery_id: int) -> None:
        """Keep the mails of a delivery counted: it has its result."""
        self._in_flight.pop(delivery_id, None)

    async def aclose(self) -> None:
        """Return the mails that were taken and not sent."""
        if self._has_counted:
            await self._limiter.close()

    async def _fit(self, deliveries: Sequence[tuple[int, int]], limits: HeldLimits) -> int:
        allowances, self._has_counted = self._limiter.allowances, True
        first, least = next((index, count) for index, (_id, count) in enumerate(deliveries) if count)
        try:
            grant = await allowances.take(limits, sum(count for _id, count in deliveries), least=least, holder=SENT)
        except (RateExceeded, QuotaExceeded) as error:
            self._held = (limits, self._monotonic() + (error.retry_after_s or 0))
            return first
        left, fitting = grant.count, 0
        for delivery_id, count in deliveries:
            if count > left:
                break
            left, fitting = left - count, fitting + 1
            if count:
                self._in_flight[delivery_id] = replace(grant, count=count)
        if left:
            allowances.give_back(grant, left)
        return fitting


def _mails_of(outgoing: Outgoing) -> int:
    """The mails that an attempt counts as: one per recipient, and none for a retry or a webhook."""
    is_first = outgoing.channel is Channel.EMAIL and outgoing.attempt_no == 1
    return len(outgoing.open_addresses) if is_first else 0
