"""Renders templates with their variables to stored content."""

from dataclasses import dataclass
from datetime import datetime

import structlog

from postroom.db.pool import Pool
from postroom.delivery import store as deliveries
from postroom.delivery.model import Lane, Unrendered
from postroom.mail.catalog import Catalog
from postroom.mail.render import Rendered, RenderError
from postroom.runtime.metrics import RENDERS

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class RenderedBatch:
    """The result of a rendering pass, and the lanes that have mail to send because of it."""

    rendered: int
    failed: int
    lanes: frozenset[Lane]

    @property
    def total(self) -> int:
        return self.rendered + self.failed


async def render_waiting(
    pool: Pool, catalog: Catalog, *, batch_limit: int = 200, now: datetime | None = None
) -> RenderedBatch:
    """Render one batch in one transaction: its rows are locked, and unchanged if this process crashes.

    A template that fails with these variables ends its delivery as failed (`render_failed`) with the reason; the
    rest of the batch is not affected.
    """
    async with pool.acquire() as connection, connection.transaction():
        waiting = await deliveries.lock_unrendered(connection, batch_limit=batch_limit)
        if not waiting:
            return RenderedBatch(0, 0, frozenset())
        results = [(delivery, _render(catalog, delivery)) for delivery in waiting]
        good = [(delivery, content) for delivery, content in results if isinstance(content, Rendered)]
        bad = [(delivery, error) for delivery, error in results if isinstance(error, RenderError)]
        if good:
            await deliveries.mark_rendered(
                connection,
                delivery_id=[delivery.id for delivery, _ in good],
                subject=[content.subject for _, content in good],
                text_body=[content.text for _, content in good],
                html_body=[content.html for _, content in good],
                now=now,
            )
        if bad:
            await deliveries.fail_rendering(
                connection,
                delivery_id=[delivery.id for delivery, _ in bad],
                detail=[f"{error.template}/{error.part}: {error.message}" for _, error in bad],
                now=now,
            )
        lanes = frozenset(delivery.lane for delivery, _ in good)
        await deliveries.wake_workers(connection, lanes=[lane.value for lane in lanes])
    RENDERS.labels("rendered").inc(len(good))
    RENDERS.labels("failed").inc(len(bad))
    return RenderedBatch(len(good), len(bad), lanes)


def _render(catalog: Catalog, delivery: Unrendered) -> Rendered | RenderError:
    """The content, or a render error. Any exception counts as a failure of this delivery; the rest is rendered."""
    if delivery.problem is not None:
        return RenderError(delivery.template_id, "variables", delivery.problem)
    try:
        content = catalog.render(delivery.template_id, locale=delivery.locale, variables=delivery.variables)
    except Exception as error:  # noqa: BLE001 - raised inside a transaction that holds up to 200 deliveries
        _log.exception("rendering_crashed", delivery_id=delivery.id, template=delivery.template_id)
        return RenderError(delivery.template_id, "template", f"rendering raised {type(error).__name__}")
    if isinstance(content, Rendered) and "\0" in content.subject + (content.text or "") + (content.html or ""):
        return RenderError(
            delivery.template_id, "template", "the rendered content contains a NUL, which cannot be stored"
        )
    return content
