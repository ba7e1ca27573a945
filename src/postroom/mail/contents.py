"""Renders the content of mail by template for readers: the API, the dashboard, the command line."""

from collections.abc import Mapping, Sequence

from postroom.db.pool import Pool
from postroom.delivery.contents import Render, RenderedContent
from postroom.mail import store
from postroom.mail.render import Rendered
from postroom.mail.versions import TemplateVersions


def template_renderer(pool: Pool) -> Render:
    """Renders a room's mail by template; keep it, because it caches the versions."""
    versions = TemplateVersions(pool)

    async def render(delivery_ids: Sequence[int]) -> Mapping[int, RenderedContent]:
        found = await store.list_unrendered(pool, delivery_ids=delivery_ids)
        await versions.load(mail.template_version_id for mail in found)
        rendered = {mail.id: versions.render_mail(mail) for mail in found}
        return {
            delivery_id: RenderedContent(content.subject, content.text, content.html)
            for delivery_id, content in rendered.items()
            if isinstance(content, Rendered)
        }

    return render
