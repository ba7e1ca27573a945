"""The start times of the mails of a claim.

An account with a delay is held by one claim at a time, across all processes; the process of that claim starts its
mails one delay apart by the monotonic clock. Each mail takes its turn exactly once and begins it when it starts
(`take`, `wait`), or skips it (`skip`). After the last start the hold is released, together with the time of that
start.

A claim that could not renew its lease gets no more turns: another claim may hold the account by then.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial

from postroom.senders.model import StartSlot


@dataclass(frozen=True, slots=True)
class Release:
    """A hold that ended."""

    claim_id: int
    account_id: int
    last_start: float  # monotonic clock; if nothing started, the time from which the delay counts


@dataclass(slots=True)
class _Hold:
    """One account within one claim."""

    left: int
    next_at: float
    delay_s: float
    closed: bool = False
    order: asyncio.Lock = field(default_factory=asyncio.Lock)


class StartPermit:
    """The right to start one mail. `begin` starts it now or gives up its turn; callable once."""

    def __init__(self, on_begin: Callable[[], None]) -> None:
        self._on_begin: Callable[[], None] | None = on_begin

    def begin(self) -> None:
        on_begin, self._on_begin = self._on_begin, None
        if on_begin is not None:
            on_begin()


class PacedStarts:
    """The turns of one process. `on_release` receives each hold that ended."""

    def __init__(self, on_release: Callable[[Release], None], *, now: Callable[[], float] = time.monotonic) -> None:
        self._on_release, self._now = on_release, now
        self._holds: dict[tuple[int, int], _Hold] = {}
        self._opened_at: dict[int, float] = {}
        self._good_until: dict[int, float] = {}

    def open(self, slots: Sequence[StartSlot]) -> None:
        """Register a claim with these slots; their times count from now."""
        for slot in slots:
            if slot.account_id is None:
                continue
            hold = self._holds.get((slot.claim_id, slot.account_id))
            if hold is None:
                next_at = self._now() + slot.start_in_s if slot.delay_s else 0.0
                self._holds[slot.claim_id, slot.account_id] = _Hold(1, next_at, slot.delay_s)
            else:
                hold.left += 1
        self._opened_at.update({slot.claim_id: self._now() for slot in slots})

    def renew(self, claim_ids: Iterable[int], good_until: float) -> None:
        """Set the expiry of these claims, by the monotonic clock. A claim that is never renewed is not watched."""
        self._good_until.update(dict.fromkeys(claim_ids, good_until))

    def forget(self, claim_ids: Iterable[int]) -> None:
        """Drop these ended claims."""
        for claim_id in claim_ids:
            self._good_until.pop(claim_id, None)
            self._opened_at.pop(claim_id, None)

    async def take(self, slot: StartSlot) -> "StartPermit | None":
        """Wait for this mail's turn. None: its account or claim is gone, and the mail must not start."""
        earliest = self._opened_at.get(slot.claim_id, 0.0) + slot.start_in_s if slot.domain else 0.0
        if slot.account_id is None:
            await self._until(lambda: earliest)
            return StartPermit(lambda: None) if self._is_good(slot.claim_id) else None
        hold = self._holds[slot.claim_id, slot.account_id]
        may_start = False
        try:
            may_start = await self._turn_comes(slot.claim_id, hold, earliest)
        finally:
            if not may_start:
                self._settle(slot.claim_id, slot.account_id, hold)
        return StartPermit(partial(self._begun, slot.claim_id, slot.account_id, hold)) if may_start else None

    async def _turn_comes(self, claim_id: int, hold: _Hold, earliest: float) -> bool:
        if not hold.delay_s:
            if earliest:
                await self._until(lambda: earliest)
            return not hold.closed
        async with hold.order:
            await self._until(lambda: earliest if hold.closed else max(hold.next_at, earliest))
            if hold.closed or not self._is_good(claim_id):
                return False
            hold.next_at = self._now() + hold.delay_s
            return True

    async def wait(self, slot: StartSlot) -> bool:
        """Wait for this mail's turn and begin it at once. False: the mail must not start."""
        turn = await self.take(slot)
        if turn is None:
            return False
        turn.begin()
        return True

    def begin_now(self, slot: StartSlot) -> bool:
        """Begin the turn of a mail without a delay. False: the mail must not start, and still has its turn."""
        if slot.account_id is None:
            return self._is_good(slot.claim_id)
        hold = self._holds[slot.claim_id, slot.account_id]
        if hold.closed:
            return False
        self._begun(slot.claim_id, slot.account_id, hold)
        return True

    def skip(self, slot: StartSlot) -> None:
        """Give up the turn of a mail that will not be sent."""
        if slot.account_id is not None:
            hold = self._holds.get((slot.claim_id, slot.account_id))
            if hold is not None:
                self._settle(slot.claim_id, slot.account_id, hold)

    def close(self, slot: StartSlot) -> None:
        """Start nothing more through this account in this claim."""
        if slot.account_id is not None:
            hold = self._holds.get((slot.claim_id, slot.account_id))
            if hold is not None:
                hold.closed = True

    async def _until(self, moment: Callable[[], float]) -> None:
        """Sleep until the moment. Event loops may fire a timer slightly early, which would break the delay."""
        while (left := moment() - self._now()) > 0:  # noqa: ASYNC110 - waits for a time, not for an event
            await asyncio.sleep(left)

    def _begun(self, claim_id: int, account_id: int, hold: _Hold) -> None:
        """Stamp the start as late as possible: time between the turn and the start must not shorten the delay."""
        hold.next_at = max(hold.next_at, self._now() + hold.delay_s)
        self._settle(claim_id, account_id, hold)

    def _is_good(self, claim_id: int) -> bool:
        good_until = self._good_until.get(claim_id)
        return good_until is None or self._now() < good_until

    def _settle(self, claim_id: int, account_id: int, hold: _Hold) -> None:
        hold.left -= 1
        if hold.left:
            return
        del self._holds[claim_id, account_id]
        if hold.delay_s:
            self._on_release(Release(claim_id, account_id, hold.next_at - hold.delay_s))
