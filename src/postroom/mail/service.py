"""Tries templates ahead of time: mail that is due later fails now, if its template cannot be rendered.

Mail that is due at once is rendered by the worker that claims it, and needs no trial.
"""

from dataclasses import dataclass
from datetime import datetime

from postroom.db.pool import Pool
from postroom.delivery import store as deliveries
from postroom.delivery.decision import RENDER_FAILED
from postroom.mail.render import RenderError
from postroom.mail.versions import TemplateVersions
from postroom.runtime.metrics import RENDERS


@dataclass(frozen=True, slots=True)
class TriedBatch:
    """The result of one pass."""

    rendered: int
    failed: int

    @property
    def total(self) -> int:
        return self.rendered + self.failed


async def render_ahead(
    pool: Pool, versions: TemplateVersions, *, batch_limit: int = 200, now: datetime | None = None
) -> TriedBatch:
    """Try one batch in one transaction: its rows are locked, and unchanged if this process crashes.

    The content is not stored. A delivery that can be rendered becomes `rendered`; one that cannot ends as failed
    (`render_failed`) with the reason, and does not affect the others.
    """
    async with pool.acquire() as connection, connection.transaction():
        waiting = await deliveries.lock_unrendered(connection, batch_limit=batch_limit)
        await versions.load((delivery.template_version_id for delivery in waiting), connection=connection)
        results = {delivery.id: versions.render_mail(delivery) for delivery in waiting}
        bad = {delivery_id: error.text for delivery_id, error in results.items() if isinstance(error, RenderError)}
        good = [delivery_id for delivery_id in results if delivery_id not in bad]
        if good:
            await deliveries.mark_rendered(connection, delivery_id=good, now=now)
        if bad:
            await deliveries.fail_unwritable(
                connection,
                delivery_id=list(bad),
                claim_id=[],
                reason=[RENDER_FAILED] * len(bad),
                detail=list(bad.values()),
                now=now,
            )
    RENDERS.labels("rendered").inc(len(good))
    RENDERS.labels("failed").inc(len(bad))
    return TriedBatch(len(good), len(bad))
