"""The token collector: reads the table of tokens and processes each token exactly once.

One transaction reads tokens, processes them and advances the cursor; a crash rolls all of it back. Any number of
collectors may run: the lock on the job's row serialises them.

NOTIFY wakes the collector. It then gathers until the batch is full or `batch_timeout` has passed, because sign-ups come
in bursts. It also polls every second, and at once after a reconnection. While batches are full it is busy: it takes
many batches per transaction, polls ten times a second and needs no NOTIFY (functions/wake_collectors.sql). It then
notifies other listeners itself, and receives that notification too.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
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
from postroom.db.pool import Pool
from postroom.db.queries import Connection
from postroom.db.retention import Retention, Sweeper
from postroom.db.room import Room
from postroom.delivery import service as delivery
from postroom.delivery import store as delivery_store
from postroom.delivery.check import CheckedRequest, check_request
from postroom.delivery.model import Acceptance, DeliveryId, DeliveryRequest
from postroom.errors import BadInput, OutputLost
from postroom.runtime.loop import Loop, Signal, is_stopped_before, run_loops, unheard, wait_for_any
from postroom.settings import Settings

_log = structlog.get_logger()

CHANNEL = "token_insert"
BATCHES_AT_ONCE = 50
"""Batches per transaction while more tokens wait; a commit costs more than a batch."""

BUSY_S = 1.5
"""Time it stays busy after a full batch; below the 2 s for which wake_collectors skips NOTIFY, so none is missed."""

LIMITS_KEPT = timedelta(days=1)  # guesses are counted per day; older rows no longer limit anything

RETENTION = (Retention(store.forget_tokens, "token_retention"), Retention(store.forget_limits, LIMITS_KEPT))

HandOn = Callable[[Connection, Sequence[DueToken]], Awaitable[None]]
"""Processes a batch inside the transaction that takes it; an exception rolls back the cursor."""

Ready = Callable[[], Awaitable[None]]
"""Waits, before a transaction is opened, until the output can accept tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectorOptions:
    """Options of a collector; the first two are settings."""

    batch_limit: int = 10
    batch_timeout: timedelta = timedelta(seconds=5)
    poll_interval: timedelta = timedelta(seconds=1)  # finds tokens whose notification was lost
    busy_interval: timedelta = timedelta(milliseconds=100)  # also while a running transaction delays tokens


class Deliver:
    """Enqueue the mail of tokens in the same transaction, with the token's id as idempotency key."""

    def __init__(self, letterhead: AccountMailOptions, *, idempotency_ttl: timedelta) -> None:
        self._letterhead, self._ttl = letterhead, idempotency_ttl

    async def __call__(self, connection: Connection, tokens: Sequence[DueToken]) -> None:
        good = [request for token in tokens if (request := self._request(token)) is not None]
        accepted = await delivery.accept_batch(connection, good, idempotency_ttl=self._ttl)
        mailed = sum(1 for answer in accepted if answer.acceptance is Acceptance.ACCEPTED)
        taken = [
            replace(request, idempotency_key=None)
            for request, answer in zip(good, accepted, strict=True)
            if answer.acceptance is Acceptance.CONFLICT and not await _is_same(connection, request, answer.id)
        ]
        if taken:  # another mail holds the key: send without a key, otherwise the person gets no mail
            _log.error("token_mail_conflict", tokens=len(taken))
            await delivery.accept_batch(connection, taken)
        COLLECTED.labels("mailed").inc(mailed)
        COLLECTED.labels("known").inc(len(accepted) - mailed - len(taken))
        COLLECTED.labels("conflict").inc(len(taken))
        COLLECTED.labels("unmailable").inc(len(tokens) - len(good))

    def _request(self, token: DueToken) -> CheckedRequest | None:
        """The mail of a token; log an invalid token and return None, so that the others are mailed."""
        try:
            return check_request(self._letterhead.request(token))
        except BadInput as bad:
            invalid = [error.field for error in bad.errors]
        except Exception as error:  # noqa: BLE001 - an invalid address, or a row that plain SQL wrote
            invalid = [type(error).__name__]
        _log.warning("token_unmailable", token=token.id, fields=invalid)
        return None


async def _is_same(connection: Connection, request: DeliveryRequest, holder: DeliveryId) -> bool:
    """True if the mail that holds the key is this token's, rendered with another public URL or locale."""
    found = await delivery_store.find_delivery(connection, delivery_id=holder)
    return found is not None and (found.template_id, found.tags) == (request.template, request.tags)


class Collector:
    """One process's collector."""

    def __init__(
        self,
        pool: Pool,
        hand_on: HandOn,
        *,
        ready: Ready | None = None,
        stop: asyncio.Event | None = None,
        options: CollectorOptions | None = None,
        signal: Signal = unheard,
    ) -> None:
        self._pool, self._hand_on, self._ready = pool, hand_on, ready
        self._options, self._signal = options or CollectorOptions(), signal
        self._bell, self.stop = asyncio.Event(), stop or asyncio.Event()
        self._busy_until_s = 0.0

    def wake(self, _payload: str = "") -> None:
        """Wake the collector because tokens may have arrived."""
        self._bell.set()

    def loop(self) -> Loop:
        """`collect` waits by itself; `OutputLost` ends the command that prints tokens."""
        return Loop("collector", self.collect, fatal=(OutputLost,))

    async def collect(self) -> None:
        """Collect all waiting tokens, then wait for more."""
        if await self._count_waiting():
            await self.drain()
        rest = await self._rest_time()
        self._signal("drained")
        if self._is_busy():  # ignore notifications: they are its own
            await wait_for_any(self.stop, timeout_s=rest.total_seconds())
        elif await self._rings(rest.total_seconds()):
            await self._gather()

    async def drain(self) -> int:
        """Take batches until one is not full; then all readable tokens are collected."""
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
        """Drain, also tokens that running transactions delay, until no token is left behind the cursor."""
        total = await self.drain()
        while await self._count_waiting() and not self.stop.is_set():
            await self._rings(self._options.busy_interval.total_seconds())
            total += await self.drain()
        return total

    async def run_once(self, limit: int | None = None) -> int:
        """Collect one batch, or `limit` tokens, in one transaction; returns their number."""
        while await self._is_ready():
            try:
                return await self._take(limit or self._options.batch_limit)
            except ReaderPaused as paused:
                _log.warning("collection_paused", reason=paused.message)
        return 0

    async def _take(self, limit: int) -> int:
        async with self._pool.acquire() as connection, connection.transaction():
            tokens = await store.dequeue(connection, batch_limit=limit)
            self._signal("dequeued")
            if tokens:
                await self._hand_on(connection, tokens)
                self._signal("handed_on")
        return len(tokens)

    async def _is_ready(self) -> bool:
        """Wait until the output can accept tokens; False if the collector is stopped meanwhile."""
        if self._ready is None:
            return True
        ready = asyncio.ensure_future(self._ready())
        if await is_stopped_before(ready, self.stop):
            return False
        ready.result()  # raises the error of the output
        return True

    async def _rest_time(self) -> timedelta:
        """The time until the next poll: short while busy or while a transaction delays committed tokens."""
        stall = await store.measure_stall(self._pool)
        show_stall(stall)
        if stall.is_alarming():
            _log.warning("tokens_stalled", tokens=stall.tokens, seconds=stall.seconds, holder_pid=stall.holder_pid)
        return self._options.busy_interval if self._is_busy() or stall.is_stalled else self._options.poll_interval

    async def _gather(self) -> None:
        """Wait until a batch is full or times out; return at once if another collector took the tokens."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._options.batch_timeout.total_seconds()
        while (left_s := deadline - loop.time()) > 0 and not self.stop.is_set():
            waiting = await self._count_waiting()
            self._signal("counted")
            if waiting == 0 or waiting >= self._options.batch_limit:
                return
            await self._rings(min(left_s, self._options.poll_interval.total_seconds()))

    async def _count_waiting(self) -> int:
        return await store.count_waiting(self._pool, bound=self._options.batch_limit)

    def _is_busy(self) -> bool:
        return asyncio.get_running_loop().time() < self._busy_until_s

    async def _rings(self, longest_s: float) -> bool:
        """True if a notification arrived before the timeout."""
        await wait_for_any(self._bell, self.stop, timeout_s=longest_s)
        rang = self._bell.is_set()
        self._bell.clear()
        return rang


def make_collector(
    room: Room, hand_on: HandOn | None = None, *, stop: asyncio.Event | None = None, ready: Ready | None = None
) -> Collector:
    """The collector with the options of the settings; it enqueues mail unless `hand_on` is given."""
    settings = room.settings
    if hand_on is None:
        hand_on = Deliver(AccountMailOptions.of(settings), idempotency_ttl=settings.idempotency_ttl)
    return Collector(room.pool, hand_on, ready=ready, stop=stop, options=options_of(settings))


def make_mailing_collector(room: Room, *, stop: asyncio.Event) -> Collector | None:
    """The collector of a worker; None if tokens are to be left (`uncollected_for`)."""
    settings = room.settings
    return make_collector(room, stop=stop) if settings.account_mail and not uncollected_for(settings) else None


def uncollected_for(settings: Settings) -> tuple[str, ...]:
    """Variables without which account mail cannot be made: the key of its links, their address, and its sender."""
    key = ("POSTROOM_SECRET_KEY",) if settings.secret_key is None else ()
    return (*key, *settings.unset_for_mail)


def options_of(settings: Settings) -> CollectorOptions:
    return CollectorOptions(batch_limit=settings.batch_limit, batch_timeout=settings.batch_timeout)


def listen(room: Room, collector: Collector) -> AbstractAsyncContextManager[None]:
    """Wake a collector by notifications during the block."""
    return room.listener.hearing(CHANNEL, collector.wake)


async def run_collector(
    room: Room, *, stop: asyncio.Event, hand_on: HandOn | None = None, ready: Ready | None = None
) -> None:
    """Collect in this process until `stop` is set. Also runs token retention, in case no worker does."""
    collector = make_collector(room, hand_on, stop=stop, ready=ready)
    retention = Sweeper(room.pool, RETENTION, room.settings)
    failed = partial(record_loop_failure, room.pool)
    async with listen(room, collector):
        await run_loops([collector.loop(), retention.loop()], stop=stop, failed=failed)
