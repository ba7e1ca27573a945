"""Publishing: the templates of this process's files become the current versions of the room.

Every process that has the files publishes them when it starts, so the last one that started decides. A process with
older files that starts again, in the middle of a deployment, makes its version current again; the next start with the
new files, or `postroom templates publish`, corrects that. Accepted mail keeps the version it was accepted with.
"""

import asyncio
import json

import structlog

from postroom.db.pool import Pool
from postroom.db.queries import Connection
from postroom.db.room import Room
from postroom.errors import SettingInvalid
from postroom.events.audit import audited
from postroom.mail import store
from postroom.mail.catalog import BUILTIN_TEMPLATES, Catalog
from postroom.settings import Settings

_log = structlog.get_logger()


def load_catalog(settings: Settings) -> Catalog:
    """Parse the built-in templates and the installation's own."""
    own = settings.template_dir
    if own is None:
        return Catalog.load(BUILTIN_TEMPLATES)
    if not own.is_dir():
        raise SettingInvalid("POSTROOM_TEMPLATE_DIR", f"there is no folder {own.absolute()}; create it first")
    return Catalog.load(BUILTIN_TEMPLATES, own)


async def publish_files(room: Room, *, actor: str) -> dict[str, int]:
    """Parse the files of this process and publish those that differ from the room's."""
    catalog = await asyncio.to_thread(load_catalog, room.settings)
    async with audited(room.pool, actor, "template.publish", "templates") as (connection, note):
        published = await _publish(connection, catalog, actor=actor)
        note.after, note.is_dropped = published, not published
    return published


async def publish(pool: Pool, catalog: Catalog, *, actor: str) -> dict[str, int]:
    """Publish the templates that differ from the room's; returns the new version of each.

    The samples of these templates are rendered first: `TemplateInvalid` names the first that fails, and then nothing
    is published.
    """
    async with pool.acquire() as connection:
        return await _publish(connection, catalog, actor=actor)


async def _publish(connection: Connection, catalog: Catalog, *, actor: str) -> dict[str, int]:
    current = await store.list_current_hashes(connection)
    sources = [template.source for template in catalog.templates.values()]
    changed = [source for source in sources if current.get(source.template) != source.content_hash]
    for source in changed:
        catalog.templates[source.template].check_samples()
    if not changed:
        return {}
    published = await store.publish_templates(
        connection,
        template=[source.template for source in changed],
        content_hash=[source.content_hash for source in changed],
        files=[json.dumps(source.texts) for source in changed],
        published_by=actor,
    )
    for template, version_id in published.items():
        _log.info("template_published", template=template, version_id=version_id)
    return published
