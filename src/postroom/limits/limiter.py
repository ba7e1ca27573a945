"""Admit the mails of a client within the limits of its API key and of the room.

Limits are looked up when a client sends and cached for `CACHE_S`: a change takes effect in every process within this
time, and without limits a request costs one lookup in memory. Mails are counted before they are accepted. Those that
turn out to be known already, or are rejected, are returned; after a lost connection they count, because they may have
been accepted.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from types import TracebackType
from typing import Self

from postroom.db.faults import is_connection_lost
from postroom.db.pool import Pool
from postroom.limits import store
from postroom.limits.allowance import Allowances, Grant
from postroom.limits.errors import FromNotAllowed, RoomClosed
from postroom.limits.model import ROOM, CountedMail, HeldLimits, count_mails
from postroom.post.address import domain_of

CACHE_S = 5.0  # a change of limits is in force after at most this long
CACHE_SIZE = 1000  # keys; bounds memory


class Admission:
    """The mails counted for one request; a context in which they are accepted."""

    def __init__(self, allowances: Allowances, counts: Sequence[int] = (), grants: Sequence[Grant] = ()) -> None:
        self._allowances, self._counts, self._grants = allowances, counts, grants

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if isinstance(error, Exception) and not is_connection_lost(error):
            self._give_back(sum(self._counts))

    def settle(self, are_new: Sequence[bool]) -> None:
        """Return the mails of requests that were not new, by their positions."""
        if self._grants and not all(are_new):
            self._give_back(sum(count for count, is_new in zip(self._counts, are_new, strict=True) if not is_new))

    def _give_back(self, count: int) -> None:
        for grant in self._grants:
            self._allowances.give_back(grant, count)


class Limiter:
    """The limits of the clients of one process."""

    def __init__(self, pool: Pool, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._pool, self._monotonic = pool, monotonic
        self.allowances = Allowances(pool, monotonic=monotonic)
        self._known: dict[int | None, tuple[float, tuple[HeldLimits, ...]]] = {}
        self._looking_up = asyncio.Lock()  # a burst after expiry makes one query
        self._unlimited = Admission(self.allowances)

    async def limits_of(self, key_id: int | None) -> tuple[HeldLimits, ...]:
        """The limits of a key and of the room; of the room alone without a key."""
        known = self._known.get(key_id)
        if known is not None and known[0] > self._monotonic():
            return known[1]
        async with self._looking_up:
            if known is self._known.get(key_id):  # otherwise a call before this one looked them up
                limits = await self._look_up(key_id)
                if len(self._known) >= CACHE_SIZE:
                    self._known.clear()
                self._known[key_id] = (self._monotonic() + CACHE_S, limits)
            return self._known[key_id][1]

    async def _look_up(self, key_id: int | None) -> tuple[HeldLimits, ...]:
        async with self._pool.acquire() as connection:
            of_key = None if key_id is None else await store.find_key_limits(connection, key_id=key_id)
            of_room = await store.find_room_limits(connection)
        room = None if of_room is None else HeldLimits(holder=ROOM, name="The room", **of_room.columns)
        return tuple(limits for limits in (of_key, room) if limits is not None)

    async def admit(self, key_id: int | None, mails: Sequence[CountedMail]) -> Admission:
        """Check and count the mails of a request: all of them or none.

        Raises `RoomClosed`, `FromNotAllowed`, `RateExceeded`, `QuotaExceeded`, and `BadInput` for a request that is
        larger than a limit.
        """
        limits = await self.limits_of(key_id)
        if not limits:
            return self._unlimited
        for each in limits:
            _check(each, mails)
        counts = [count_mails(mail) for mail in mails]
        return Admission(self.allowances, counts, await self._take(limits, sum(counts)))

    async def close(self) -> None:
        """Return the mails that were taken and not spent."""
        await self.allowances.close()

    async def _take(self, limits: Sequence[HeldLimits], count: int) -> list[Grant]:
        grants: list[Grant] = []
        try:
            for each in (each for each in limits if each.counts):
                grants.append(await self.allowances.take(each, count))  # noqa: PERF401 - a failure returns earlier grants
        except BaseException:
            for grant in grants:
                self.allowances.give_back(grant)
            raise
        return grants


def _check(limits: HeldLimits, mails: Sequence[CountedMail]) -> None:
    if limits.holder == ROOM and limits.expires_at is not None and limits.expires_at <= datetime.now(UTC):
        raise RoomClosed(f"This room accepts no mail since {limits.expires_at:%Y-%m-%d %H:%M} UTC.")
    if not limits.from_domains:
        return
    for index, mail in enumerate(mails):
        if mail.sender is None or domain_of(mail.sender.email) not in limits.from_domains:
            field = f"[{index}].from" if len(mails) > 1 else "from"
            raise FromNotAllowed(
                f"{limits.name} may send from addresses of {', '.join(limits.from_domains)} only.", field
            )
