"""The token collector: follows the table of tokens and hands each one on exactly once.

A token is read, handed on and passed by the cursor in one transaction; whatever dies in between leaves everything as it
was. Any number of collectors may run: the lock on the job's row lets one through at a time.

It wakes by NOTIFY, then gathers for a moment, because sign-ups come in bursts: until there is a full batch, or the time
is up. It also looks by itself every second, and at once after a reconnection. While full batches come in it is busy:
it takes many at once and looks ten times a second, and nobody has to notify it; see functions/announce_tokens.sql. What
it takes it announces itself, for others who listen, and hears that too.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial

import structlog

from postroom.accounts import store
from postroom.accounts.errors import ReaderPaused
from postroom.accounts.letter import AccountMailOptions
from postroom.accounts.metrics import COLLECTED, show_stall
from postroom.accounts.model import DueToken
from postroom.db.failures import record_loop_failure
from postroom.db.listen import Listener
from postroom.db.pool import Pool
from postroom.db.queries import Connection
from postroom.db.retention import Retention, Sweeper
from postroom.db.room import Room
from postroom.delivery import service as delivery
from postroom.delivery import store as delivery_store
from postroom.delivery.check import CheckedRequest, check_request
from postroom.delivery.model import Acceptance, DeliveryId, DeliveryRequest
from postroom.errors import BadInput, OutputLost
from postroom.runtime.clock import Clock, database_time
from postroom.runtime.loop import Loop, run_loops, wait_for_any
from postroom.runtime.signals import Signal, unheard
from postroom.settings import Settings

_log = structlog.get_logger()

CHANNEL = "token_insert"
BATCHES_AT_ONCE = 50
"""How many batches a transaction takes while more are waiting; a commit costs more than a batch."""

BUSY_S = 1.5
"""How long it stays busy after a full batch: less than the two seconds for which the database asks nobody to notify."""

LIMITS_KEPT = timedelta(days=1)

RETENTION = (Retention(store.forget_tokens, "token_retention"), Retention(store.forget_limits, LIMITS_KEPT))

HandOn = Callable[[Connection, Sequence[DueToken]], Awaitable[None]]
"""What is done with a batch, inside the transaction that takes it; if it raises, nothing was taken."""

Ready = Callable[[], Awaitable[None]]
"""What is waited for before a transaction is opened: that whoever is handed tokens can take some."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectorOptions:
    """How a collector behaves; the first two are settings."""

    batch_limit: int = 10
    batch_timeout: timedelta = timedelta(seconds=5)
    poll_interval: timedelta = timedelta(seconds=1)
    busy_interval: timedelta = timedelta(milliseconds=100)  # also while a running transaction holds tokens back


class Deliver:
    """Hands tokens to the delivery queue: accepted in the same transaction, under a key that names the token."""

    def __init__(
        self, letterhead: AccountMailOptions, *, idempotency_ttl: timedelta, clock: Clock = database_time
    ) -> None:
        self._letterhead, self._ttl, self._clock = letterhead, idempotency_ttl, clock

    async def __call__(self, connection: Connection, tokens: Sequence[DueToken]) -> None:
        good = [request for token in tokens if (request := self._request(token)) is not None]
        accepted = await delivery.accept_batch(connection, good, idempotency_ttl=self._ttl, now=self._clock())
        mailed = sum(1 for answer in accepted if answer.acceptance is Acceptance.ACCEPTED)
        taken = [
            replace(request, idempotency_key=None)
            for request, answer in zip(good, accepted, strict=True)
            if answer.acceptance is Acceptance.CONFLICT and not await _is_same(connection, request, answer.id)
        ]
        if taken:  # the mail that has the key is not this token's: without this one the person would get none
            _log.error("token_mail_conflict", tokens=len(taken))
            await delivery.accept_batch(connection, taken, now=self._clock())
        COLLECTED.labels("mailed").inc(mailed)
        COLLECTED.labels("known").inc(len(accepted) - mailed - len(taken))
        COLLECTED.labels("conflict").inc(len(taken))
        COLLECTED.labels("unmailable").inc(len(tokens) - len(good))

    def _request(self, token: DueToken) -> CheckedRequest | None:
        """Return the token's mail; log a token that no mail can be made of and return None: the others are mailed."""
        try:
            return check_request(self._letterhead.request(token))
        except BadInput as bad:
            invalid = [error.field for error in bad.errors]
        except Exception as error:  # noqa: BLE001 - an invalid address, or a row that plain SQL wrote
            invalid = [type(error).__name__]
        _log.warning("token_unmailable", token=token.id, fields=invalid)
        return None


async def _is_same(connection: Connection, request: DeliveryRequest, holder: DeliveryId) -> bool:
    """Whether the mail that holds a token's key is that token's, made under another public URL or locale."""
    found = await delivery_store.find_delivery(connection, delivery_id=holder)
    return found is not None and (found.template_id, found.tags) == (request.template, request.tags)


class Collector:
    """One process's collector."""

    def __init__(  # noqa: PLR0913 - the seams of a collector, each replaceable in tests
        self,
        pool: Pool,
        hand_on: HandOn,
        *,
        ready: Ready | None = None,
        stop: asyncio.Event | None = None,
        options: CollectorOptions | None = None,
        clock: Clock = database_time,
        signal: Signal = unheard,
    ) -> None:
        self._pool, self._hand_on, self._ready = pool, hand_on, ready
        self._options = options or CollectorOptions()
        self._clock, self._signal = clock, signal
        self._bell, self.stop = asyncio.Event(), stop or asyncio.Event()
        self._busy_until_s = 0.0

    def wake(self, _payload: str = "") -> None:
        """Tokens may have arrived."""
        self._bell.set()

    def loop(self) -> Loop:
        """The collector rests by itself; the command that prints tokens ends when its output is gone."""
        return Loop("collector", self.collect, fatal=(OutputLost,))

    async def collect(self) -> None:
        """Collect everything that waits, then wait for more."""
        if await self._count_waiting():
            await self.drain()
        rest = await self._rest_time()
        self._signal("drained")
        if self._is_busy():  # not woken by announcements, which are its own
            await wait_for_any(self.stop, timeout_s=rest.total_seconds())
        elif await self._rings(rest.total_seconds()):
            await self._gather()

    async def drain(self) -> int:
        """Batch after batch, until one is not full: then everything that can be read has been."""
        total, limit = 0, self._options.batch_limit
        while not self.stop.is_set():
            taken = await self.run_once(limit)
            total += taken
            if taken < limit:
                break
            self._busy_until_s = asyncio.get_running_loop().time() + BUSY_S
            limit = self._options.batch_limit * BATCHES_AT_ONCE
        return total

    async def run_until_empty(self) -> int:
        """Drain, and wait for what running transactions hold back, until no token stands past the cursor."""
        total = await self.drain()
        while await self._count_waiting() and not self.stop.is_set():
            await self._rings(self._options.busy_interval.total_seconds())
            total += await self.drain()
        return total

    async def run_once(self, limit: int | None = None) -> int:
        """One batch, or `limit` tokens, in one transaction; returns how many there were."""
        while await self._is_ready():
            try:
                return await self._take(limit or self._options.batch_limit)
            except ReaderPaused as paused:
                _log.warning("collection_paused", reason=paused.message)
        return 0

    async def _take(self, limit: int) -> int:
        async with self._pool.acquire() as connection, connection.transaction():
            tokens = await store.dequeue(connection, batch_limit=limit, now=self._clock())
            self._signal("dequeued")
            if tokens:
                await self._hand_on(connection, tokens)
                self._signal("handed_on")
        return len(tokens)

    async def _is_ready(self) -> bool:
        """Wait until tokens can be handed on; false if stopped meanwhile."""
        if self._ready is None:
            return True
        waits = [asyncio.ensure_future(self._ready()), asyncio.ensure_future(self.stop.wait())]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
            ready, _ = await asyncio.gather(*waits, return_exceptions=True)
        if isinstance(ready, Exception):
            raise ready
        return not isinstance(ready, BaseException)

    async def _rest_time(self) -> timedelta:
        """How long to rest: not long while committed tokens wait for somebody else's transaction to end."""
        async with self._pool.acquire() as connection:
            stall = await store.measure_stall(connection, now=self._clock())
        show_stall(stall)
        if stall.is_alarming():
            _log.warning("tokens_stalled", tokens=stall.tokens, seconds=stall.seconds, holder_pid=stall.holder_pid)
        return self._options.busy_interval if self._is_busy() or stall.is_stalled else self._options.poll_interval

    async def _gather(self) -> None:
        """Wait until a batch is full or its time is up. Not at all if nothing waits: then the bell rang for others."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._options.batch_timeout.total_seconds()
        while (left_s := deadline - loop.time()) > 0 and not self.stop.is_set():
            waiting = await self._count_waiting()
            self._signal("counted")
            if waiting == 0 or waiting >= self._options.batch_limit:
                return
            await self._rings(min(left_s, self._options.poll_interval.total_seconds()))

    async def _count_waiting(self) -> int:
        async with self._pool.acquire() as connection:
            return await store.count_waiting(connection, bound=self._options.batch_limit)

    def _is_busy(self) -> bool:
        return asyncio.get_running_loop().time() < self._busy_until_s

    async def _rings(self, longest_s: float) -> bool:
        """True if tokens were announced in time, or the collector is to stop."""
        await wait_for_any(self._bell, self.stop, timeout_s=longest_s)
        rang = self._bell.is_set()
        self._bell.clear()
        return rang


def make_collector(
    room: Room, hand_on: HandOn | None = None, *, stop: asyncio.Event | None = None, ready: Ready | None = None
) -> Collector:
    """The collector that the settings describe; it feeds the delivery queue unless `hand_on` is given."""
    settings = room.settings
    if hand_on is None:
        hand_on = Deliver(AccountMailOptions.of(settings), idempotency_ttl=settings.idempotency_ttl)
    return Collector(room.pool, hand_on, ready=ready, stop=stop, options=options_of(settings))


def make_mailing_collector(room: Room, *, stop: asyncio.Event) -> Collector | None:
    """A worker's collector; None if another program collects tokens, or if no key signs their links."""
    is_ours = room.settings.account_mail and room.settings.secret_key is not None
    return make_collector(room, stop=stop) if is_ours else None


def options_of(settings: Settings) -> CollectorOptions:
    return CollectorOptions(batch_limit=settings.batch_limit, batch_timeout=settings.batch_timeout)


def listen(room: Room, collector: Collector) -> Listener:
    """What wakes a collector; open it for as long as the collector runs."""
    return Listener(room.direct, room.name, channel=CHANNEL, on_wake=collector.wake)


async def run_collector(
    room: Room, *, stop: asyncio.Event, hand_on: HandOn | None = None, ready: Ready | None = None
) -> None:
    """Collect in this process until `stop` is set. There may be no worker: retention of tokens runs here too."""
    collector = make_collector(room, hand_on, stop=stop, ready=ready)
    retention = Sweeper(room.pool, RETENTION, room.settings)
    failed = partial(record_loop_failure, room.pool)
    async with listen(room, collector):
        await run_loops([collector.loop(), retention.loop()], stop=stop, failed=failed)
