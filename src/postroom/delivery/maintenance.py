"""Keeping house: recover what the dead left, expire what is late, drop what is old, make room for next month.

Every step is bounded, safe to run in any number of processes at once, and done again at the next turn if it failed.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

import structlog

from postroom.db.faults import FLICKER
from postroom.db.pool import Pool, Session
from postroom.delivery import service, store
from postroom.delivery.check import check_request
from postroom.delivery.lease import WORKER_SILENCE
from postroom.delivery.model import DeliveryRequest, Lane, Recovered
from postroom.post.address import Address
from postroom.runtime.clock import Clock, database_time
from postroom.runtime.metrics import RECOVERED
from postroom.runtime.pace import Pace

_log = structlog.get_logger()

STEP = 1000
NOBODY = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceOptions:
    """How long things are kept and who is told; the defaults are those of the settings."""

    held_lanes: Sequence[str] = ("bulk",)
    lease: timedelta = timedelta(seconds=30)
    delivery_retention: timedelta = timedelta(days=7)
    dead_letter_retention: timedelta = timedelta(days=30)
    payload_retention: timedelta = timedelta(days=3)
    malformed_command_retention: timedelta = timedelta(days=30)
    recovery_interval: timedelta = timedelta(seconds=2)
    cleanup_interval: timedelta = timedelta(minutes=5)
    share: float = 0.05  # of the time that retention works; the rest of it is for those who have mail to send
    admin: Address | None = None
    message_id: Callable[[int, datetime], str] | None = None  # of a delivery by id and creation, for attempts recovered


class Maintenance:
    """Two rhythms: recovery and expiry every few seconds, retention every few minutes."""

    def __init__(self, pool: Pool, options: MaintenanceOptions | None = None, *, clock: Clock = database_time) -> None:
        self._pool, self._options, self._clock = pool, options or MaintenanceOptions(), clock
        self._stopping = asyncio.Event()
        self._failed_at = -math.inf

    def stop(self) -> None:
        self._stopping.set()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as rhythms:
            rhythms.create_task(self._repeat(self._options.recovery_interval, self.recover, self.expire))
            rhythms.create_task(
                self._repeat(
                    self._options.cleanup_interval,
                    self.make_partitions,
                    self.forget_workers,
                    self.tell_admin,
                    self.clean_up,  # the last, because it takes its time
                )
            )

    async def recover(self) -> int:
        """Take over every claim whose lease ran out; after an outage, only when its worker had time to renew it."""
        total = 0
        try:
            async with self._pool.acquire() as connection:
                while found := await self._recover(connection):
                    total += len(found)
                    ambiguous = sum(1 for delivery in found if delivery.is_ambiguous)
                    RECOVERED.labels("yes").inc(ambiguous)
                    RECOVERED.labels("no").inc(len(found) - ambiguous)
                    _log.warning("claims_recovered", deliveries=len(found), ambiguous=ambiguous)
        except Exception:
            self._failed_at = asyncio.get_running_loop().time()
            raise
        return total

    async def _recover(self, connection: Session) -> list[Recovered]:
        lease = self._options.lease
        async with connection.transaction():
            found = await store.recover_claims(
                connection,
                held_lanes=self._options.held_lanes,
                batch_limit=STEP,
                lease=lease,
                after_outage=asyncio.get_running_loop().time() < self._failed_at + lease.total_seconds(),
                now=self._clock(),
            )
            await self._name_messages(connection, [delivery for delivery in found if delivery.is_ambiguous])
        return found

    async def _name_messages(self, connection: Session, found: Sequence[Recovered]) -> None:
        """Record which messages may have been handed over: an operator looks for them in the relay's log."""
        name = self._options.message_id
        if name is not None and found:
            await store.record_message_ids(
                connection,
                delivery_id=[delivery.id for delivery in found],
                message_id=[name(delivery.id, delivery.created_at) for delivery in found],
            )

    async def expire(self) -> int:
        """Cancel what waits and must not leave any more."""
        return await self._in_steps(store.expire_waiting)

    async def make_partitions(self) -> int:
        async with self._pool.acquire() as connection:
            return await store.ensure_attempt_partitions(connection, now=self._clock())

    async def clean_up(self) -> int:
        """Retention: bodies first, then unreadable commands, then whole deliveries."""
        options = self._options
        bodies = await self._delete_finished(store.delete_old_payloads, options.payload_retention)
        commands = await self._delete_commands(options.malformed_command_retention)
        delete = partial(store.delete_old_deliveries, dead_letter_retention=options.dead_letter_retention)
        return bodies + commands + await self._delete_finished(delete, options.delivery_retention)

    async def forget_workers(self) -> int:
        """Forget workers that died in their sleep: every acceptance would go on notifying them."""
        async with self._pool.acquire() as connection:
            return await store.forget_workers(connection, worker_id=NOBODY, silence=WORKER_SILENCE, now=self._clock())

    async def tell_admin(self) -> int:
        """One mail to the administrator about dead letters nobody was told of."""
        admin = self._options.admin
        if admin is None:
            return 0
        async with self._pool.acquire() as connection, connection.transaction():
            count = await store.mark_dead_letters_notified(connection, now=self._clock())
            if count:
                await service.accept(connection, check_request(_notice(admin, count)), now=self._clock())
        return count

    async def _delete_finished(self, delete: "Callable[..., Awaitable[list[datetime]]]", retention: timedelta) -> int:
        """Step by step, oldest first, each from where the one before ended."""
        since: datetime | None = None

        async def step(connection: Session) -> int:
            nonlocal since
            gone = await delete(connection, retention=retention, since=since, batch_limit=STEP, now=self._clock())
            since = max(gone, default=since)
            return len(gone)

        return await self._giving_way(step)

    async def _delete_commands(self, retention: timedelta) -> int:
        async def step(connection: Session) -> int:
            return await store.delete_old_malformed_commands(
                connection, retention=retention, batch_limit=STEP, now=self._clock()
            )

        return await self._giving_way(step)

    async def _giving_way(self, step: "Callable[[Session], Awaitable[int]]") -> int:
        """Until a step finds less than it could take; a rest after each, so that mail does not wait for the broom."""
        total, pace = 0, Pace(self._options.share, self._rest)
        while not self._stopping.is_set():
            async with self._pool.acquire() as connection:
                deleted = await step(connection)
            total += deleted
            if deleted < STEP:
                break
            await pace.rest()
        return total

    async def _in_steps(self, step: "Callable[..., Awaitable[Sequence[object]]]") -> int:
        total = 0
        async with self._pool.acquire() as connection:
            while found := await step(connection, batch_limit=STEP, now=self._clock()):
                total += len(found)
        return total

    async def _repeat(self, interval: timedelta, *steps: Callable[[], Awaitable[int]]) -> None:
        while not self._stopping.is_set():
            for step in steps:
                try:
                    await step()
                except FLICKER as error:
                    _log.warning("maintenance_postponed", step=step.__name__, error=type(error).__name__)
            await self._rest(interval.total_seconds())

    async def _rest(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopping.wait()


def _notice(admin: Address, count: int) -> DeliveryRequest:
    things = "1 delivery was" if count == 1 else f"{count} deliveries were"
    return DeliveryRequest(
        to=(admin,),
        subject=f"Postroom: {things} given up",
        text=f"{things} given up since the last notice.\n\nLook at them with: postroom dead-letters list\n",
        lane=Lane.TRANSACTIONAL,
        source="postroom",
    )
