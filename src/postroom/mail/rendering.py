"""Render templated mail for workers: a claim's versions are loaded once, and each mail is rendered as it leaves."""

from collections.abc import Collection, Sequence

from msgspec.structs import replace

from postroom.db.pool import Pool
from postroom.delivery import store as deliveries
from postroom.delivery.attempt import RenderFailed
from postroom.delivery.model import ClaimId, Outgoing
from postroom.mail.render import Rendered, RenderError
from postroom.mail.versions import TemplateVersions
from postroom.runtime.metrics import RENDERS


class TemplateRendering:
    """Renders the version that each delivery was accepted with."""

    def __init__(self, pool: Pool, versions: TemplateVersions) -> None:
        self._pool, self._versions = pool, versions

    async def prepare(self, claim: Sequence[Outgoing], open_claims: Collection[ClaimId]) -> None:
        """Load the versions of these deliveries of one claim."""
        await self._versions.load_claim(claim[0].claim_id, {each.template_version_id for each in claim}, open_claims)

    def write(self, outgoing: Outgoing) -> Outgoing:
        """The delivery with its content; unchanged without a template, and with stored content.

        `RenderFailed`: it can never be rendered.
        """
        if outgoing.template_id is None or _is_stored(outgoing):
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
        return _filled(outgoing, rendered)

    async def store(self, started: Sequence[Outgoing]) -> list[Outgoing]:
        """Store the content of deliveries that are about to leave (POSTROOM_STORE_RENDERED).

        Returns them with the stored content, which is sent. It is stored once: retries send it, although a later
        release of a library could render other bytes. A delivery that cannot be rendered is returned unchanged.
        """
        leaving = [self._storable(mail) for mail in started]
        new = [mail for mail, before in zip(leaving, started, strict=True) if mail is not before]
        if new:
            await deliveries.store_rendered(
                self._pool,
                delivery_id=[mail.id for mail in new],
                subject=[mail.subject for mail in new],
                text_body=[mail.text for mail in new],
                html_body=[mail.html for mail in new],
            )
        return leaving

    def _storable(self, mail: Outgoing) -> Outgoing:
        """The delivery with its content; unchanged if it has none to store."""
        if mail.template_id is None or mail.problem is not None or _is_stored(mail):
            return mail
        rendered = self._render(mail, mail.template_id)
        return mail if isinstance(rendered, RenderError) else _filled(mail, rendered)

    def _render(self, mail: Outgoing, template: str) -> Rendered | RenderError:
        return self._versions.render(template, mail.template_version_id, locale=mail.locale, variables=mail.variables)


def _filled(mail: Outgoing, content: Rendered) -> Outgoing:
    return replace(
        mail, subject=content.subject, text=content.text, html=content.html, is_canonical=content.is_canonical
    )


def _is_stored(mail: Outgoing) -> bool:
    """True if a mail by template has its content: a request with a template has no text of its own."""
    return mail.text is not None
