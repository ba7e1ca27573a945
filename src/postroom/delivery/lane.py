"""The lanes of a worker: their open deliveries, what wakes them, and what holds their mail back.

An attempt stays open until its result is in the ledger. A worker that cannot write therefore stops sending once its
lane is full, which limits the number of ambiguous deliveries after a crash. Mail is held back by the limits of its room
(`RoomHold`), bulk mail also by mail of other lanes (`Precedence`).
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from postroom.db.pool import Pool
from postroom.delivery.model import Channel, Lane, Outgoing
from postroom.limits.allowance import Grant
from postroom.limits.errors import QuotaExceeded, RateExceeded
from postroom.limits.limiter import Limiter
from postroom.limits.model import SENT, HeldLimits

CALM = 10
"""A lane that is this calm requests notifications: five empty looks in a row after a burst."""
LONGEST_PRECEDENCE_S = 0.1  # bulk mail gives way for ten times what the statements of one mail take on an idle server


@dataclass(frozen=True, slots=True)
class WokenWorker:
    """The worker of a room that wakes: its registration, by which every lane is notified, and the lanes with mail.

    The other lanes are looked at after `head_start`, so that they do not delay the first mail.
    """

    worker_id: int
    lanes: frozenset[Lane]
    head_start: timedelta

    def later(self, lanes: Iterable[Lane]) -> dict[Lane, timedelta]:
        """The lanes whose first look waits for a notification, and how long at most."""
        return {lane: self.head_start for lane in lanes if lane not in self.lanes}


@dataclass(slots=True)
class LaneLoad:
    """The open deliveries of one lane, and whether its loop has asked for notifications.

    `calm` decides that: an empty look adds two, and one that finds work takes one away. While mail is scarcer than
    the worker can send it, every look that finds mail is followed by an empty one, so the lane stays calm and each
    acceptance notifies it: a poll would delay the mail. Under load most looks find mail; the lane is then no longer
    notified, because a NOTIFY costs every acceptance more than the poll costs the worker.
    """

    tasks: set[asyncio.Task[None]] = field(default_factory=set)
    mails: int = 0
    webhooks: int = 0
    bytes: int = 0
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    calm: int = CALM  # a room that wakes had work in one lane, and ten polls in the others delayed it
    asleep: bool = False

    @property
    def is_busy(self) -> bool:
        return self.mails + self.webhooks > 0

    @property
    def may_sleep(self) -> bool:
        """True if the lane should request notifications now."""
        return self.calm >= CALM and not self.asleep

    @property
    def must_wake(self) -> bool:
        """True if the lane should no longer be notified."""
        return self.calm <= 0 and self.asleep

    def found(self, *, is_much: bool) -> None:
        """Record a look that found work; a whole chunk is a burst at once."""
        self.calm = 0 if is_much else max(self.calm - 1, 0)

    def found_nothing(self) -> None:
        self.calm = min(self.calm + 2, CALM)

    def opened(self, started: Iterable[Outgoing]) -> None:
        """Count deliveries that start."""
        for outgoing in started:
            self._count(outgoing, 1)

    def closed(self, outgoing: Outgoing) -> None:
        """Count a delivery whose result is written or that was released."""
        self._count(outgoing, -1)
        self.changed.set()

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a task of this lane; a stopping worker waits for it."""
        task = asyncio.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    def _count(self, outgoing: Outgoing, by: int) -> None:
        self.bytes += by * outgoing.size
        if outgoing.channel is Channel.WEBHOOK:
            self.webhooks += by
        else:
            self.mails += by


def chunks(claimed: list[Outgoing], count: int, size: int) -> Iterator[list[Outgoing]]:
    """Cut a claim into chunks of limited count and bytes, in its order; a single delivery may be larger."""
    chunk: list[Outgoing] = []
    left = size
    for outgoing in claimed:
        if chunk and (len(chunk) >= count or outgoing.size > left):
            yield chunk
            chunk, left = [], size
        chunk.append(outgoing)
        left -= outgoing.size
    if chunk:
        yield chunk


class LaneWakeups:
    """One event per lane, set by notifications and by other loops of the process."""

    def __init__(self) -> None:
        self._events = {lane: asyncio.Event() for lane in Lane}
        self.fresh: set[Lane] = set()  # lanes in which a mail was accepted since their loop last looked

    def notified(self, payload: str) -> None:
        """Set the events that a NOTIFY names; an empty payload, after a reconnection, sets all."""
        for lane in Lane:
            if payload in ("", lane.value):
                self._events[lane].set()
            if payload == lane.value:
                self.fresh.add(lane)

    def take_fresh(self, lane: Lane) -> bool:
        """True once after a mail was accepted in the lane."""
        is_fresh = lane in self.fresh
        self.fresh.discard(lane)
        return is_fresh

    def ring(self, lane: Lane) -> None:
        self._events[lane].set()

    async def wait(self, lane: Lane, longest: timedelta) -> bool:
        """True if the lane's event was set in time; it is then cleared."""
        event = self._events[lane]
        try:
            async with asyncio.timeout(longest.total_seconds()):
                await event.wait()
        except TimeoutError:
            return False
        event.clear()
        return True


class Precedence:
    """Bulk mail gives way while a notified mail of another lane is on its way to its transport.

    The rooms of a process share its event loop, and their statements the server's cores. A mail of a quiet room passes
    the event loop some ten times before it leaves, each time behind the replies, statements and messages of a busy
    room. So tasks of lane `bulk`, in every room of the process, begin nothing new from the notification of a mail in
    lane `auth` or `transactional` until that mail is with its transport: a few milliseconds. Work in flight goes on.

    Bulk mail is held back for half of the time at most, and never for longer than `LONGEST_PRECEDENCE_S` at once: a
    server that does not answer in one room does not stop the bulk mail of the others. A lane under load is not
    notified, and takes no precedence.

    Shared by the workers of a process. Belongs to one event loop.
    """

    __slots__ = ("_clear", "_ends_at", "_rests_until", "_urgent")

    def __init__(self) -> None:
        self._urgent = 0
        self._ends_at = self._rests_until = 0.0
        self._clear = asyncio.Event()

    @asynccontextmanager
    async def turn(self, lane: Lane, *, is_notified: bool) -> AsyncIterator[None]:
        """Hold bulk mail back during this block, if it is about a mail of another lane that was just accepted."""
        await self.give_way(lane)
        if lane is Lane.BULK or not is_notified:
            yield
            return
        self._urgent += 1
        self._ends_at = asyncio.get_running_loop().time() + LONGEST_PRECEDENCE_S
        self._clear.clear()
        try:
            yield
        finally:
            self._urgent -= 1
            if not self._urgent:
                self._clear.set()

    def holds_back(self, lane: Lane) -> bool:
        """True if this lane should begin nothing new now."""
        if not self._urgent or lane is not Lane.BULK:
            return False
        return self._rests_until <= asyncio.get_running_loop().time() < self._ends_at

    async def give_way(self, lane: Lane) -> None:
        """Wait until bulk mail may go on."""
        if not self.holds_back(lane):
            return
        loop = asyncio.get_running_loop()
        began = loop.time()
        with suppress(TimeoutError):
            async with asyncio.timeout_at(self._ends_at):
                await self._clear.wait()
        ended = loop.time()
        self._rests_until = max(self._rests_until, ended + (ended - began))


class RoomHold:
    """Counts the mails of one worker process against the rate and the quota of its room; mail beyond them stays queued.

    Limits are looked up only while mail is claimed, so an idle room costs nothing, and only if the start of a chunk has
    found that the room has some. While the room has no mail left, the worker claims no mail; webhooks go on.
    Each attempt counts on the day on which it begins. Mails that were not sent are returned: a retry counts by itself.
    """

    def __init__(
        self,
        pool: Pool,
        *,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._now, self._monotonic = now, monotonic
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

    def may_begin(self, delivery_id: int) -> bool:
        """False if a delivery was counted on an earlier day than today: it must be counted again before it is sent."""
        if (grant := self._in_flight.get(delivery_id)) is None or grant.minute is None:
            return True
        return self._now().astimezone(UTC).date() <= grant.minute.astimezone(UTC).date()

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
    """The mails that an attempt counts as: one per recipient who has not got it, and none for a webhook."""
    return len(outgoing.open_addresses) if outgoing.channel is Channel.EMAIL else 0
