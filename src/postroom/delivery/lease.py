"""The registration of a worker, and the leases of its claims."""

import asyncio
import os
import socket
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import timedelta
from time import monotonic

import structlog

from postroom.db.faults import INTERRUPTIONS
from postroom.db.pool import Pool
from postroom.db.retention import STEP
from postroom.delivery import store
from postroom.delivery.model import ClaimId, Outgoing
from postroom.runtime.clock import Clock
from postroom.runtime.loop import FIRST_INTERRUPTION_S, LONGEST_INTERRUPTION_S, Backoff, Loop, wait_for_any
from postroom.runtime.tracing import ended_span, is_tracing

WORKER_SILENCE = timedelta(minutes=5)
"""A worker not seen for this long is considered dead."""

_log = structlog.get_logger()


class Leases:
    """Renews the claims of `held`; `on_renewed` receives claims and their expiry by the monotonic clock."""

    def __init__(
        self,
        pool: Pool,
        *,
        lease: timedelta,
        clock: Clock,
        held: Callable[[], list[ClaimId]],
        on_renewed: Callable[[Iterable[ClaimId], float], None],
        worker_id: int = 0,
    ) -> None:
        self._pool, self._clock, self._held, self._on_renewed = pool, clock, held, on_renewed
        self.lease = lease
        self.worker_id = worker_id  # 0 until `register`
        self._lapsed: set[ClaimId] = set()

    async def register(self, stopping: asyncio.Event) -> None:
        """Get an id for this worker; retries until the database answers or the worker stops."""
        backoff = Backoff(FIRST_INTERRUPTION_S, LONGEST_INTERRUPTION_S)
        while not self.worker_id and not stopping.is_set():
            try:
                async with self._pool.acquire() as connection:
                    self.worker_id = await store.register_worker(connection, pid=os.getpid(), host=socket.gethostname())
            except INTERRUPTIONS as error:
                pause_s = backoff.fail()
                _log.warning("registration_postponed", error=type(error).__name__, retry_in_s=round(pause_s, 2))
                await wait_for_any(stopping, timeout_s=pause_s)

    def has_lapsed(self, claim_id: ClaimId) -> bool:
        """True if the lease expired once: results are still written, but nothing more is started."""
        return claim_id in self._lapsed

    def renewed(self, claim_ids: Iterable[ClaimId], asked_at: float) -> None:
        """Record renewed claims; they are valid for at least one lease from the time of the request."""
        self._on_renewed(claim_ids, asked_at + self.lease.total_seconds())

    def loop(self) -> Loop:
        """Renew the leases three times in their duration."""
        loop = Loop("leases", self._renew, rest=self.lease / 3)
        loop.postpone(self.lease / 3)  # there is no claim yet, and the first one should not wait for a renewal
        return loop

    async def say_goodbye(self) -> None:
        with suppress(*INTERRUPTIONS):
            async with self._pool.acquire() as connection:
                await store.forget_workers(
                    connection, worker_id=self.worker_id, retention=WORKER_SILENCE, batch_limit=STEP, now=self._clock()
                )

    async def _renew(self) -> None:
        asked_at, held = monotonic(), self._held()
        async with self._pool.acquire() as connection:
            renewed = await store.renew_claims(
                connection, worker_id=self.worker_id, claim_ids=held, lease=self.lease, now=self._clock()
            )
        self._lapsed = {each for each in held if each in self._lapsed or not renewed.get(each)}
        self.renewed(set(held) - self._lapsed, asked_at)


def trace_claim(claimed: Iterable[Outgoing], asked_at: float) -> None:
    """Add a claim to the trace of each of its deliveries that has one."""
    if not is_tracing():
        return
    for each in claimed:
        if each.traceparent is not None:
            ids = {"delivery_id": each.id, "claim_id": each.claim_id}
            ended_span("claim", since=asked_at, traceparent=each.traceparent, lane=each.lane.value, **ids)
