"""The scheduler: hand over due events and keep the plan complete.

Any number of schedulers may run. Each run claims batches until no event is due, because a whole zone falls due in the
same second, and a day of downtime at once. Between runs it sleeps until the next event is due, at most for the poll
interval. Two slower loops handle expired leases, people changed by SQL, people with missing events, and plans made with
older time zone data.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import timedelta
from uuid import UUID

import asyncpg
import structlog

from postroom.db.pool import Pool
from postroom.db.retention import Retention
from postroom.runtime.clock import Clock, database_time
from postroom.runtime.loop import Loop, Rest, Signal, unheard
from postroom.schedule import store
from postroom.schedule.engine import LEASE, hand_over_due
from postroom.schedule.model import ScheduledEventStatus, SchedulePolicy
from postroom.schedule.planner import Keep, plan_for

STEP = 1000
"""People per transaction of a sweep or a refresh."""

SHORTEST_REST = timedelta(milliseconds=5)
"""First back-off while a due event is locked by another transaction; it doubles up to the poll interval."""

OVERLAP = (asyncpg.IntegrityConstraintViolationError,)
"""Raised when two schedulers plan the same event at once; the next run finds it planned."""

RETENTION = (Retention(store.delete_old_events, "schedule_retention"),)

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerOptions:
    """Options of a scheduler, with the same defaults as the settings."""

    policy: SchedulePolicy = field(default_factory=SchedulePolicy)
    poll_interval: timedelta = timedelta(milliseconds=500)
    sweep_interval: timedelta = timedelta(seconds=2)  # a person added by SQL is planned within this time
    audit_interval: timedelta = timedelta(minutes=15)  # reads everyone, and finds something only after a mistake


class Scheduler:
    """Hand over due events and keep the plan complete."""

    def __init__(
        self,
        pool: Pool,
        options: SchedulerOptions | None = None,
        *,
        clock: Clock = database_time,
        signal: Signal = unheard,
    ) -> None:
        self._pool, self._options, self._clock, self._signal = pool, options or SchedulerOptions(), clock, signal
        self._patience = self._rest = SHORTEST_REST

    def loops(self) -> list[Loop]:
        """Due events at once, leases and SQL changes every 2 seconds, the audit of the plan every 15 minutes."""
        options = self._options

        def loop(name: str, run_once: Callable[[], Awaitable[None]], rest: Rest) -> Loop:
            return Loop(name, run_once, rest=rest, interruptible=True, expected=OVERLAP)

        return [
            loop("scheduler", self._hand_over, lambda: self._rest),
            loop("schedule sweep", self._sweep_all, options.sweep_interval),
            loop("schedule audit", self._audit_all, options.audit_interval),
        ]

    async def _hand_over(self) -> None:
        await self.run_once()
        self._rest = await self._time_to_next()

    async def _sweep_all(self) -> None:
        await self.recover()
        await self.sweep()

    async def _audit_all(self) -> None:
        await self.refresh()
        await self.audit()

    async def run_once(self) -> int:
        """Hand over all due events; returns their number."""
        total = late = failed = 0
        while results := await hand_over_due(self._pool, self._options.policy, now=self._clock(), signal=self._signal):
            total += len(results)
            late += sum(result.late_by is not None for result in results)
            failed += sum(result.status is ScheduledEventStatus.FAILED for result in results)
        if total:
            _log.info("events_handed_over", events=total, late=late, failed=failed)
        return total

    async def recover(self) -> int:
        """Recover events whose lease has expired; returns their number."""
        total = 0
        async with self._pool.acquire() as connection:
            while found := await store.recover_events(connection, lease=LEASE, now=self._clock()):
                total += len(found)
                again = sum(status is ScheduledEventStatus.PENDING for status in found)
                _log.warning("events_recovered", events=len(found), planned_again=again)
        return total

    async def sweep(self) -> int:
        """Plan for people that SQL added or changed; returns their number."""
        total, found = 0, STEP
        while found == STEP:
            async with self._pool.acquire() as connection, connection.transaction():
                users = await store.lock_unplanned_users(connection, batch_limit=STEP)
                if users:
                    await plan_for(connection, users, self._options.policy, now=self._clock())
            found = len(users)
            total += found
        if total:
            _log.info("users_planned", users=total)
        return total

    async def audit(self) -> int:
        """Check everyone and plan missing events of birthdays and open occasions; returns the number of people."""
        total, after = 0, None
        while True:
            async with self._pool.acquire() as connection, connection.transaction():
                found, after = await store.lock_unscheduled_users(connection, after_id=after)
                if found:
                    done = await plan_for(connection, found, self._options.policy, now=self._clock(), keep=Keep.ALL)
                    total += sum(each.added > 0 for each in done.values())
            if after is None:
                break
        if total:
            _log.warning("users_without_plan", users=total)
        return total

    async def refresh(self) -> int:
        """Plan everyone again if the time zone data or the settings have changed; returns the number of people."""
        basis = self._options.policy.basis
        async with self._pool.acquire() as connection:
            recorded = await store.find_basis(connection)
            if recorded is None:  # first start: no plan was made with another basis
                await store.save_basis(connection, basis=basis, now=self._clock())
            if recorded in (None, basis):
                return 0
        total, after = 0, None
        while (last := await self._refresh_step(after)) is not None:
            after, total = last[0], total + last[1]
        await store.save_basis(self._pool, basis=basis, now=self._clock())
        _log.info("plan_refreshed", users=total, basis=basis)
        return total

    async def _refresh_step(self, after: UUID | None) -> tuple[UUID, int] | None:
        async with self._pool.acquire() as connection, connection.transaction():
            users = await store.lock_users(connection, after_id=after, batch_limit=STEP)
            if not users:
                return None
            await plan_for(connection, users, self._options.policy, now=self._clock(), keep=Keep.BROUGHT)
        return users[-1].id, len(users)

    async def _time_to_next(self) -> timedelta:
        """The time until the next run: until the next event is due, within limits; doubled while one is locked."""
        wait, is_due = await store.find_next_due(self._pool, now=self._clock())
        longest = self._options.poll_interval
        # Still due after the last run: it fell due since, or another transaction has locked it or its person.
        self._patience = min(self._patience * 2, longest) if is_due else SHORTEST_REST
        soonest = self._patience if is_due else longest
        return min(soonest, longest if wait is None else max(wait, SHORTEST_REST))
