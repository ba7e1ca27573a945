"""Templates of a test: written as files, and published into its room."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.support.builders import NOON, routes_to

from postroom.db.pool import Pool
from postroom.delivery.attempt import Writers
from postroom.delivery.model import Channel
from postroom.delivery.worker import Worker
from postroom.mail.catalog import Catalog
from postroom.mail.compose import Composer, MailWriter
from postroom.mail.publishing import publish
from postroom.mail.rendering import TemplateRendering
from postroom.mail.versions import TemplateVersions
from postroom.post.address import Address
from postroom.transports.base import Transport


def write_templates(root: Path, files: Mapping[str, str]) -> Path:
    """Write template files by their paths below a folder."""
    for name, text in files.items():
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    return root


async def published(pool: Pool, root: Path, files: Mapping[str, str]) -> Catalog:
    """Write template files and make them the current versions of the room."""
    catalog = Catalog.load(write_templates(root, files))
    await publish(pool, catalog, actor="cli:tests")
    return catalog


def template_writers(pool: Pool, versions: TemplateVersions | None = None) -> Writers:
    """Writers that render templates."""
    composer = Composer(default_sender=Address("post@example.org"), message_domain="example.org")
    writer = MailWriter(
        composer, templates=TemplateRendering(pool, versions or TemplateVersions(pool)), now=lambda: NOON
    )
    return {Channel.EMAIL: writer}


def a_template_worker(
    pool: Pool, transport: Transport, *, versions: TemplateVersions | None = None, **seams: Any
) -> Worker:
    """A worker that renders templates."""
    return Worker(pool, writers=template_writers(pool, versions), routes=routes_to(transport), **seams)
