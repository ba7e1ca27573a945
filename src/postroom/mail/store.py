"""One function per statement of `queries.sql`, under the same name."""

import json
from collections.abc import Sequence

from postroom.db.queries import Connection, load
from postroom.delivery.model import Unrendered
from postroom.delivery.rows import read_unrendered
from postroom.mail.template_files import TemplateSource

QUERIES = load("postroom.mail")


async def list_current_hashes(connection: Connection) -> dict[str, str]:
    return {row["template"]: row["content_hash"] for row in await QUERIES["list_current_hashes"].many(connection)}


async def list_unrendered(connection: Connection, *, delivery_ids: Sequence[int]) -> list[Unrendered]:
    rows = await QUERIES["list_unrendered"].many(connection, delivery_ids=delivery_ids)
    return [read_unrendered(row) for row in rows]


async def list_version_sources(connection: Connection, *, version_ids: Sequence[int]) -> dict[int, TemplateSource]:
    rows = await QUERIES["list_version_sources"].many(connection, version_ids=version_ids)
    return {
        row["id"]: TemplateSource.stored(row["template"], json.loads(row["files"]), version_id=row["id"])
        for row in rows
    }


async def publish_templates(
    connection: Connection,
    *,
    template: Sequence[str],
    content_hash: Sequence[str],
    files: Sequence[str],
    published_by: str,
) -> dict[str, int]:
    """The new current version of each template that changed."""
    rows = await QUERIES["publish_templates"].many(
        connection, template=template, content_hash=content_hash, files=files, published_by=published_by
    )
    return {row["template"]: row["version_id"] for row in rows}
