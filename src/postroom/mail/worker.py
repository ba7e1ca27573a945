"""The renderer: renders accepted deliveries that name a template, and wakes the lanes that can send them."""

from datetime import timedelta

from postroom.db.pool import Pool
from postroom.delivery.lane import LaneWakeups
from postroom.mail.catalog import Catalog
from postroom.mail.service import RenderedBatch, render_waiting
from postroom.runtime.clock import Clock, database_time
from postroom.runtime.loop import Loop


class RenderWorker:
    """The rendering loop of one process."""

    def __init__(
        self,
        pool: Pool,
        catalog: Catalog,
        *,
        waker: LaneWakeups,
        poll_interval: timedelta = timedelta(milliseconds=500),
        clock: Clock = database_time,
    ) -> None:
        self._pool, self._catalog, self._waker = pool, catalog, waker
        self._poll_interval, self._clock = poll_interval, clock

    def loop(self) -> Loop:
        """Render batches until no delivery waits; then wait for a notification or the poll interval."""
        return Loop(
            "renderer",
            self.run_once,
            rest=self._poll_interval,
            more=lambda batch: batch.total > 0,
            wake=self._waker.renderer,
        )

    async def run_once(self) -> RenderedBatch:
        batch = await render_waiting(self._pool, self._catalog, now=self._clock())
        for lane in batch.lanes:
            self._waker.ring(lane)
        return batch
