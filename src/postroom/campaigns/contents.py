"""Renders the content of deliveries for readers: mail by template, and mail of campaigns with example links."""

from collections.abc import Mapping, Sequence

from postroom.campaigns import store
from postroom.campaigns.model import CampaignContent
from postroom.campaigns.preview import EXAMPLE_LINKS
from postroom.campaigns.rendering import person_variables
from postroom.campaigns.template import PreparedTemplate, ready
from postroom.db.pool import Pool
from postroom.delivery.contents import Contents, RenderedContent
from postroom.errors import BadInput
from postroom.mail.contents import template_renderer
from postroom.mail.render import Rendered


def contents_of(pool: Pool) -> Contents:
    """The contents of a room's mail that is not stored; keep it, because it caches the versions of templates."""
    by_template = template_renderer(pool)

    async def render(delivery_ids: Sequence[int]) -> Mapping[int, RenderedContent]:
        return {**await by_template(delivery_ids), **await _render_letters(pool, delivery_ids)}

    return Contents(render)


async def _render_letters(pool: Pool, delivery_ids: Sequence[int]) -> dict[int, RenderedContent]:
    """The mail of campaigns. A mail that cannot be rendered is left out."""
    async with pool.acquire() as connection:
        mails = await store.list_mail(connection, delivery_ids=delivery_ids)
        campaign_ids = list({campaign_id for campaign_id, *_ in mails.values()})
        found = await store.list_letters(connection, campaign_ids=campaign_ids) if campaign_ids else {}
    letters = {campaign_id: letter for campaign_id in found if (letter := _read(found[campaign_id])) is not None}
    shown = {}
    for delivery_id, (campaign_id, email, name, fields) in mails.items():
        if campaign_id in letters:
            rendered = letters[campaign_id].render({**person_variables(email, name, fields), **EXAMPLE_LINKS})
            if isinstance(rendered, Rendered):
                shown[delivery_id] = RenderedContent(rendered.subject, rendered.text, rendered.html)
    return shown


def _read(content: CampaignContent) -> PreparedTemplate | None:
    try:
        return ready(content)
    except BadInput:  # stored by plain SQL
        return None
