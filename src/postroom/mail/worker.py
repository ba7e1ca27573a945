"""The renderer's loop: render what waits, ring the lanes that can send it, wait for more."""

import asyncio
from datetime import timedelta

import structlog

from postroom.db.faults import FLICKER
from postroom.db.pool import Pool
from postroom.delivery.wake import Waker
from postroom.mail.catalog import Catalog
from postroom.mail.service import RenderedBatch, render_waiting
from postroom.runtime.clock import Clock, database_time

_log = structlog.get_logger()


class Renderer:
    """One process's share of the rendering. `run` until `stop`; `run_once` for one batch."""

    def __init__(
        self,
        pool: Pool,
        catalog: Catalog,
        *,
        waker: Waker,
        poll_interval: timedelta = timedelta(milliseconds=500),
        clock: Clock = database_time,
    ) -> None:
        self._pool, self._catalog, self._waker = pool, catalog, waker
        self._poll_interval, self._clock = poll_interval, clock
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        self._stopping.set()
        self._waker.notified("")

    async def run(self) -> None:
        while not self._stopping.is_set():
            try:
                batch = await self.run_once()
            except FLICKER as error:
                _log.warning("rendering_postponed", error=type(error).__name__)
                await asyncio.sleep(self._poll_interval.total_seconds())
                continue
            if not batch.total:
                await self._waker.wait_renderer(self._poll_interval)

    async def run_once(self) -> RenderedBatch:
        batch = await render_waiting(self._pool, self._catalog, now=self._clock())
        for lane in batch.lanes:
            self._waker.ring(lane)
        return batch
