"""Count mails against a rate and a quota that many processes share, without a row that every mail updates.

A process takes mails from the row of a holder (functions/take_allowance.sql), spends them in memory and takes the next
when they are spent: as many as the waiting calls need, and as many again as it spent in the last second. Mails that it
has not spent within `SLICE_S` are returned, and so are those that `close` finds. The row counts what was taken, so the
limit is never exceeded. A process that is killed loses what it holds, at most a second's worth and a quarter of what
was left. A refusal is remembered as long, so that a client over its limit causes one statement per second.
"""

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import structlog

from postroom.db.faults import DATABASE_ERRORS
from postroom.db.pool import Pool
from postroom.errors import BadInput, LimitError
from postroom.limits import store
from postroom.limits.errors import QuotaExceeded, RateExceeded
from postroom.limits.model import AllowanceAnswer, HeldLimits

SLICE_S = 1.0  # a killed process loses at most this much; a shorter slice costs more statements

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Grant:
    """Mails taken from the allowance of a holder."""

    holder: str
    minute: datetime | None
    count: int


@dataclass(slots=True)
class _Slice:
    """The mails that this process holds of one allowance."""

    left: int = 0
    minute: datetime | None = None  # that they were taken from
    until: float = 0.0
    spent: int = 0  # since `since`, about a second ago at most
    since: float = 0.0
    waiting: int = 0  # mails of the calls that wait for the lock
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    refused: tuple[HeldLimits, int, AllowanceAnswer] | None = None  # the limits, the mails asked for, and the answer
    refused_until: float = 0.0

    def has(self, count: int, now: float) -> bool:
        return self.left >= count and now < self.until

    def ahead(self, now: float) -> int:
        """The mails to take for the next second, besides those for the waiting calls."""
        spent = self.spent
        if now - self.since >= SLICE_S:
            self.spent, self.since = 0, now
        return spent

    def refusal(self, limits: HeldLimits, least: int, now: float) -> AllowanceAnswer | None:
        """The remembered refusal, if it answers a call for so many mails too."""
        if self.refused is None or now >= self.refused_until:
            return None
        of, asked, taken = self.refused
        return taken if of == limits and least >= asked else None


class Allowances:
    """The allowances of one process."""

    def __init__(self, pool: Pool, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._pool, self._monotonic = pool, monotonic
        self._slices: dict[str, _Slice] = {}
        self._unspent: Counter[tuple[str, datetime | None]] = Counter()
        self._returning: asyncio.Task[None] | None = None
        self._closed = asyncio.Event()

    async def take(self, limits: HeldLimits, count: int, *, least: int | None = None, holder: str = "") -> Grant:
        """Take `count` mails, or as many as are left if that is `least` or more.

        Raises `RateExceeded` or `QuotaExceeded` with the time to wait, and `BadInput` for more mails than the limit
        ever allows.
        """
        least, holder = count if least is None else least, holder or limits.holder
        _check_fits(limits, least)
        own = self._slices.setdefault(holder, _Slice())
        if not own.has(least, self._monotonic()):
            await self._fill(own, holder, limits, count, least)
        taken = min(count, own.left)  # no other task ran since the slice was filled
        own.left -= taken
        own.spent += taken
        if own.left:
            self._return_later()
        return Grant(holder, own.minute, taken)

    def give_back(self, grant: Grant, count: int | None = None) -> None:
        """Return mails of a grant that were not sent."""
        unspent = grant.count if count is None else count
        own = self._slices[grant.holder]
        if own.minute == grant.minute and self._monotonic() < own.until:
            own.left += unspent
            own.refused = None
        else:
            self._unspent[grant.holder, grant.minute] += unspent
        self._return_later()

    async def close(self) -> None:
        """Return everything that was not spent."""
        self._closed.set()
        if self._returning is not None:
            await self._returning
        for holder, own in self._slices.items():
            self._expire(holder, own)
        await self._return_unspent()

    async def _fill(self, own: _Slice, holder: str, limits: HeldLimits, count: int, least: int) -> None:
        own.waiting += count
        try:
            async with own.lock:
                now = self._monotonic()
                if own.has(least, now):
                    return
                taken = own.refusal(limits, least, now) or await self._take(own, holder, limits, least)
        finally:
            own.waiting -= count
        if taken.exceeded is not None:
            raise _exceeded(limits, taken)

    async def _take(self, own: _Slice, holder: str, limits: HeldLimits, least: int) -> AllowanceAnswer:
        returned, own.left = own.left, 0  # not returned again after an error: it may have been committed
        async with self._pool.acquire() as connection:
            taken = await store.take_allowance(
                connection,
                holder=holder,
                rate=limits.rate_per_minute,
                quota=limits.daily_quota,
                least=least,
                wanted=max(own.waiting, least),
                ahead=own.ahead(self._monotonic()),
                returned=returned,
                returned_minute=own.minute,
            )
        now = self._monotonic()
        lasts_s = min(SLICE_S, max(taken.valid_for.total_seconds(), 0))
        if taken.exceeded is not None:
            own.refused, own.refused_until = (limits, least, taken), now + lasts_s
        own.left, own.minute, own.until = taken.granted, taken.minute, now + lasts_s
        return taken

    def _expire(self, holder: str, own: _Slice) -> None:
        if own.left:
            self._unspent[holder, own.minute] += own.left
            own.left = 0

    def _return_later(self) -> None:
        if self._returning is None:
            self._returning = asyncio.create_task(self._run(), name="allowances")

    async def _run(self) -> None:
        """Return unspent mails once a second, until this process holds none."""
        try:
            while not self._closed.is_set() and (self._unspent or any(own.left for own in self._slices.values())):
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._closed.wait(), SLICE_S)
                now = self._monotonic()
                for holder, own in self._slices.items():
                    if now >= own.until:
                        self._expire(holder, own)
                await self._return_unspent()
        finally:
            self._returning = None

    async def _return_unspent(self) -> None:
        """Return mails. After an error they count as used: the statement may have been committed."""
        while self._unspent:
            (holder, minute), count = self._unspent.popitem()
            try:
                async with self._pool.acquire() as connection:
                    await store.take_allowance(
                        connection,
                        holder=holder,
                        rate=None,
                        quota=None,
                        least=0,
                        wanted=0,
                        ahead=0,
                        returned=count,
                        returned_minute=minute,
                    )
            except DATABASE_ERRORS as error:
                _log.warning("allowance_not_returned", holder=holder, mails=count, error=type(error).__name__)


def _check_fits(limits: HeldLimits, least: int) -> None:
    for most, period in ((limits.rate_per_minute, "minute"), (limits.daily_quota, "day")):
        if most is not None and least > most:
            text = f"has {least} mails; {_uncapital(limits.name)} may send {most} per {period}. Send fewer at a time."
            raise BadInput.of("request", text)


def _exceeded(limits: HeldLimits, taken: AllowanceAnswer) -> LimitError:
    wait = taken.wait or timedelta()
    if taken.exceeded == "rate":
        return RateExceeded(
            f"{limits.name} may send {limits.rate_per_minute} mails per minute and has {taken.unused} left.", wait
        )
    return QuotaExceeded(
        f"{limits.name} may send {limits.daily_quota} mails per day and has {taken.unused} left.", wait
    )


def _uncapital(name: str) -> str:
    return name[:1].lower() + name[1:]
