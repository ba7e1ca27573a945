"""The feeder: keeps as many mails of each campaign in the queue as workers can use.

Any number of feeders may run. Each pass fills the queue of every due campaign, so a long list does not delay the
others. The target depends on how many mails left the queue since the last pass. Recipients outside the queue can be
paused, cancelled and suppressed at no cost, so the target stays low. The same pass completes a pause or cancel for mail
that a worker had claimed, and marks finished campaigns as completed.
"""

import asyncio
from dataclasses import dataclass
from datetime import timedelta

import asyncpg
import structlog

from postroom.campaigns import store
from postroom.campaigns.model import CampaignQueue, CampaignStatus, FeedResult
from postroom.campaigns.queue_sync import complete, settle_mail
from postroom.db.pool import Pool
from postroom.db.retention import Retention
from postroom.runtime.clock import Clock, database_time
from postroom.runtime.loop import Loop, Signal, unheard

_log = structlog.get_logger()

RETENTION = (Retention(store.forget_recipients, "campaign_retention"),)


@dataclass(frozen=True, slots=True, kw_only=True)
class FeederOptions:
    """Options of a feeder; the defaults are those of the settings."""

    busy_interval: timedelta = timedelta(milliseconds=200)  # the queue is refilled before workers have emptied a slice
    idle_interval: timedelta = timedelta(seconds=1)  # while no campaign is active; a start notifies
    first_target: int = 2000
    least_target: int = 200  # a slow lane keeps little mail waiting, so that a pause takes effect soon
    most_target: int = 10_000  # more waiting mail would only be more to hold when a campaign is paused


class Feeder:
    """Fills the queue from the recipients of every active campaign."""

    def __init__(
        self,
        pool: Pool,
        options: FeederOptions | None = None,
        *,
        clock: Clock = database_time,
        signal: Signal = unheard,
    ) -> None:
        self._pool, self._options = pool, options or FeederOptions()
        self._clock, self._signal = clock, signal
        self._targets: dict[int, int] = {}
        self._wake = asyncio.Event()
        self._is_busy = False

    def loop(self) -> Loop:
        """Run again soon while a campaign is active; otherwise after a notification or the idle interval."""
        return Loop("feeder", self.run_once, rest=self._rest, wake=self._wake)

    def notified(self, _payload: str) -> None:
        """A campaign was started or resumed."""
        self._wake.set()

    async def run_once(self) -> int:
        """Feed every due campaign once; returns the number of queued mails."""
        turns = await store.list_unfinished(self._pool, now=self._clock())
        self._is_busy = any(turn.status is CampaignStatus.ACTIVE for turn in turns)
        self._targets = {turn.id: self._target(turn.id) for turn in turns if turn.status is CampaignStatus.ACTIVE}
        fed = 0
        for turn in turns:
            try:
                fed += await self._take(turn)
            except (
                asyncpg.IntegrityConstraintViolationError
            ) as error:  # invalid rows of one campaign must not stop the others
                _log.error("campaign_not_fed", campaign_id=turn.id, constraint=error.constraint_name)
        self._signal("fed")
        return fed

    async def _take(self, turn: CampaignQueue) -> int:
        if turn.has_stray_mail and (moved := await settle_mail(self._pool, turn.id, now=self._clock())):
            _log.info("campaign_mail_settled", campaign_id=turn.id, status=turn.status, deliveries=moved)
        if turn.status is not CampaignStatus.ACTIVE:
            return 0
        if turn.may_be_complete and await complete(self._pool, turn.id, now=self._clock()):
            _log.info("campaign_completed", campaign_id=turn.id)
        if not turn.has_due:
            return 0
        async with self._pool.acquire() as connection:
            target, now = self._target(turn.id), self._clock()
            return self._digest(
                turn.id, await store.feed_campaign(connection, campaign_id=turn.id, target=target, now=now)
            )

    def _target(self, campaign_id: int) -> int:
        return self._targets.get(campaign_id, self._options.first_target)

    def _digest(self, campaign_id: int, found: FeedResult | None) -> int:
        """Raise the target if nearly all mail left since the last pass, lower it if nearly none did."""
        if found is None:
            return 0
        target = self._target(campaign_id)
        if found.waiting < target // 2:
            self._targets[campaign_id] = min(target * 2, self._options.most_target)
        elif found.waiting > target - target // 8:
            self._targets[campaign_id] = max(target // 2, self._options.least_target)
        return found.fed

    def _rest(self) -> timedelta:
        return self._options.busy_interval if self._is_busy else self._options.idle_interval
