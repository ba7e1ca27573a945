"""The renderer: tries the templates of mail that is due later."""

from datetime import timedelta

from postroom.db.pool import Pool
from postroom.db.retention import Retention
from postroom.mail import store
from postroom.mail.service import TriedBatch, render_ahead
from postroom.mail.versions import TemplateVersions
from postroom.runtime.clock import Clock, database_time
from postroom.runtime.loop import Loop

RETENTION = (Retention(store.delete_old_versions, "template_version_retention", step=100),)
"""A small step: it looks at up to 100 deliveries for each version."""

REST = timedelta(seconds=2)
"""Only mail that is due in more than ten seconds is tried: see functions/accept_deliveries.sql of delivery."""


class RenderWorker:
    """The rendering loop of one process."""

    def __init__(
        self, pool: Pool, versions: TemplateVersions, *, rest: timedelta = REST, clock: Clock = database_time
    ) -> None:
        self._pool, self._versions, self._rest, self._clock = pool, versions, rest, clock

    def loop(self) -> Loop:
        """Try batches until no delivery waits; then rest."""
        return Loop("renderer", self.run_once, rest=self._rest, more=lambda batch: batch.total > 0)

    async def run_once(self) -> TriedBatch:
        return await render_ahead(self._pool, self._versions, now=self._clock())
