"""Maintenance of the queue: recovery of expired claims, expiry of late mail, partitions of the ledger, retention.

Every step is bounded, safe to run in any number of processes at once, and repeated by the next run if it failed.
"""

import asyncio
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import structlog

from postroom.db.partitions import make_partitions
from postroom.db.pool import Pool, Session
from postroom.db.queries import Connection
from postroom.db.retention import STEP, Retention
from postroom.delivery import store
from postroom.delivery.lease import WORKER_SILENCE
from postroom.delivery.model import Recovered
from postroom.delivery.notices import Notice
from postroom.events.store import delete_old_facts
from postroom.runtime.clock import Clock, database_time
from postroom.runtime.loop import Backoff, Loop
from postroom.runtime.metrics import RECOVERED

_log = structlog.get_logger()

COMPARING_INTERVAL = timedelta(seconds=10)
"""The interval at which a thousand deliveries are compared with the queue: ten million take a day."""

RETENTION = (
    Retention(store.delete_old_payloads, "payload_retention"),  # bodies are deleted before their deliveries
    Retention(store.delete_old_deliveries, "delivery_retention", also=("dead_letter_retention",)),
    Retention(delete_old_facts, "fact_retention"),
    Retention(store.forget_workers, WORKER_SILENCE),
)


async def report_dead_letters(connection: Connection, *, now: datetime | None) -> tuple[str, str] | None:
    """Mark new dead letters as reported; returns the notice about them."""
    count = await store.mark_dead_letters_notified(connection, now=now)
    things = "1 delivery was" if count == 1 else f"{count} deliveries were"
    text = f"{things} given up since the last notice.\n\nLook at them with: postroom dead-letters list\n"
    return (f"Postroom: {things} given up", text) if count else None


NOTICE = Notice("dead_letters", "cleanup_interval", report_dead_letters)


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceOptions:
    """Policy and interval of recovery, with the defaults of the settings."""

    held_lanes: Sequence[str] = ("bulk",)
    lease: timedelta = timedelta(seconds=30)
    recovery_interval: timedelta = timedelta(
        seconds=2
    )  # added to the lease, it is the time until mail of a dead worker continues
    partition_interval: timedelta = timedelta(
        minutes=5
    )  # partitions exist months ahead; a failed run only needs to be repeated
    message_id: Callable[[int, datetime], str] | None = None  # of a delivery by id and creation, for attempts recovered


class Maintenance:
    """Recovery and expiry every few seconds, partitions every few minutes."""

    def __init__(self, pool: Pool, options: MaintenanceOptions | None = None, *, clock: Clock = database_time) -> None:
        self._pool, self._options, self._clock = pool, options or MaintenanceOptions(), clock
        self._failed_at = -math.inf
        self._compared = 0  # the delivery up to which the queue was compared

    def loops(self) -> list[Loop]:
        options = self._options
        every, every_s = options.partition_interval, options.partition_interval.total_seconds()
        return [
            Loop("recovery", self.recover, rest=options.recovery_interval),
            Loop("expiry", self.expire, rest=options.recovery_interval),
            Loop("queue repair", self.repair, rest=COMPARING_INTERVAL),
            # A report may hold the lock for long. An attempt blocks the writers: it is not repeated before the next
            # run.
            Loop("attempt partitions", self.make_partitions, rest=every, interruption=Backoff(every_s, every_s)),
        ]

    async def recover(self) -> int:
        """Take over every claim whose lease expired; after an outage, only after its worker had time to renew it."""
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
        """Record the Message-IDs of ambiguous attempts: an operator searches the relay's log for them."""
        name = self._options.message_id
        if name is not None and found:
            await store.record_message_ids(
                connection,
                delivery_id=[delivery.id for delivery in found],
                message_id=[name(delivery.id, delivery.created_at) for delivery in found],
            )

    async def expire(self) -> int:
        """Cancel waiting deliveries that have expired."""
        total = 0
        async with self._pool.acquire() as connection:
            while found := await store.expire_waiting(connection, batch_limit=STEP, now=self._clock()):
                total += len(found)
        return total

    async def repair(self) -> int:
        """Compare the next deliveries with the queue; the first follow the last. Returns the repaired rows."""
        async with self._pool.acquire() as connection:
            last_id, missing, orphans = await store.repair_queue(connection, after=self._compared, batch_limit=STEP)
        if missing or orphans:
            _log.warning("queue_repaired", after=self._compared, missing=missing, orphans=orphans)
        self._compared = last_id or 0
        return int(missing + orphans)

    async def make_partitions(self) -> int:
        return await make_partitions(self._pool, ("attempts", "delivery_steps"), now=self._clock())
