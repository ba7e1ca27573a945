"""One lane of a worker: its open deliveries (attempts in flight, results not written yet) and its wake-ups.

An attempt stays open until its result is in the ledger. A worker that cannot write therefore stops sending once its
lane is full, which limits the number of ambiguous deliveries after a crash.
"""

import asyncio
from collections.abc import Coroutine, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from postroom.delivery.model import Channel, Lane, Outgoing

CALM = 10
"""A lane that is this calm requests notifications: five empty looks in a row after a burst."""


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
