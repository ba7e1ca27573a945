"""Render templated mail for workers: a claim's versions are loaded once, and each mail is rendered as it leaves."""

from collections.abc import Sequence

from msgspec.structs import replace

from postroom.delivery.attempt import RenderFailed
from postroom.delivery.model import Outgoing
from postroom.mail.render import RenderError
from postroom.mail.versions import TemplateVersions


class TemplateRendering:
    """Renders the version that each delivery was accepted with."""

    def __init__(self, versions: TemplateVersions) -> None:
        self._versions = versions

    async def prepare(self, claim: Sequence[Outgoing]) -> None:
        """Load the versions of these deliveries."""
        await self._versions.load(outgoing.template_version_id for outgoing in claim)

    def write(self, outgoing: Outgoing) -> Outgoing:
        """The delivery with its content; unchanged without a template. `RenderFailed`: it can never be rendered."""
        if outgoing.template_id is None:
            return outgoing
        rendered = self._versions.render(
            outgoing.template_id,
            outgoing.template_version_id,
            locale=outgoing.locale,
            variables=outgoing.variables,
        )
        if isinstance(rendered, RenderError):
            raise RenderFailed(rendered.text)
        return replace(outgoing, subject=rendered.subject, text=rendered.text, html=rendered.html)
