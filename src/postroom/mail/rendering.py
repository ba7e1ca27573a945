"""Render templated mail for workers: a claim's versions are loaded once, and each mail is rendered as it leaves."""

from collections.abc import Sequence

from msgspec.structs import replace

from postroom.db.pool import Pool
from postroom.delivery import store as deliveries
from postroom.delivery.attempt import RenderFailed
from postroom.delivery.model import Outgoing
from postroom.mail.render import Rendered, RenderError
from postroom.mail.versions import TemplateVersions
from postroom.runtime.metrics import RENDERS


class TemplateRendering:
    """Renders the version that each delivery was accepted with."""

    def __init__(self, pool: Pool, versions: TemplateVersions) -> None:
        self._pool, self._versions = pool, versions

    async def prepare(self, claim: Sequence[Outgoing]) -> None:
        """Load the versions of these deliveries."""
        await self._versions.load(outgoing.template_version_id for outgoing in claim)

    def write(self, outgoing: Outgoing) -> Outgoing:
        """The delivery with its content; unchanged without a template. `RenderFailed`: it can never be rendered."""
        if outgoing.template_id is None:
            return outgoing
        ready = self._versions.render_bytes(
            outgoing.template_version_id, locale=outgoing.locale, variables=outgoing.variables
        )
        if ready is not None:
            return replace(outgoing, subject=ready.subject, text=ready.text, html=ready.html, is_canonical=True)
        rendered = self._render(outgoing, outgoing.template_id)
        if isinstance(rendered, RenderError):
            RENDERS.labels("failed").inc()
            raise RenderFailed(rendered.text)
        return replace(
            outgoing,
            subject=rendered.subject,
            text=rendered.text,
            html=rendered.html,
            is_canonical=rendered.is_canonical,
        )

    async def store(self, started: Sequence[Outgoing]) -> None:
        """Store the content of deliveries that are about to leave (POSTROOM_STORE_RENDERED)."""
        results = [(mail.id, self._render(mail, mail.template_id)) for mail in started if mail.template_id is not None]
        good = [(delivery_id, content) for delivery_id, content in results if isinstance(content, Rendered)]
        if good:
            await deliveries.store_rendered(
                self._pool,
                delivery_id=[delivery_id for delivery_id, _ in good],
                subject=[content.subject for _, content in good],
                text_body=[content.text for _, content in good],
                html_body=[content.html for _, content in good],
            )

    def _render(self, mail: Outgoing, template: str) -> Rendered | RenderError:
        return self._versions.render(template, mail.template_version_id, locale=mail.locale, variables=mail.variables)
