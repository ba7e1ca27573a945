"""One function per statement of `queries.sql`, under the same name."""

import json
from collections.abc import Sequence
from datetime import datetime, timedelta

from postroom.db.queries import Connection, load
from postroom.delivery.model import Unrendered
from postroom.delivery.rows import read_unrendered
from postroom.mail.model import TemplateSummary, TemplateVersion, VersionFiles
from postroom.mail.template_files import TemplateSource
from postroom.runtime.record import read_row

QUERIES = load("postroom.mail")


async def count_templates(connection: Connection) -> int:
    count: int = (await QUERIES["count_templates"].one(connection))["templates"]
    return count


async def delete_old_versions(
    connection: Connection, *, retention: timedelta, batch_limit: int, now: datetime | None
) -> int:
    return await QUERIES["delete_old_versions"].exec(connection, retention=retention, batch_limit=batch_limit, now=now)


async def find_version(connection: Connection, *, template: str, version_id: int | None) -> VersionFiles | None:
    row = await QUERIES["find_version"].maybe(connection, template=template, version_id=version_id)
    if row is None:
        return None
    return VersionFiles(read_row(TemplateVersion, row), json.loads(row["files"]))


async def find_version_before(connection: Connection, *, template: str, version_id: int) -> int | None:
    row = await QUERIES["find_version_before"].maybe(connection, template=template, version_id=version_id)
    return None if row is None else row["id"]


async def list_current_hashes(connection: Connection) -> dict[str, str]:
    return {row["template"]: row["content_hash"] for row in await QUERIES["list_current_hashes"].many(connection)}


async def list_current_versions(connection: Connection) -> dict[str, int]:
    return {row["template"]: row["version_id"] for row in await QUERIES["list_current_versions"].many(connection)}


async def list_templates(connection: Connection) -> list[TemplateSummary]:
    return [read_row(TemplateSummary, row) for row in await QUERIES["list_templates"].many(connection)]


async def list_unrendered(connection: Connection, *, delivery_ids: Sequence[int]) -> list[Unrendered]:
    rows = await QUERIES["list_unrendered"].many(connection, delivery_ids=delivery_ids)
    return [read_unrendered(row) for row in rows]


async def list_version_sources(connection: Connection, *, version_ids: Sequence[int]) -> dict[int, TemplateSource]:
    rows = await QUERIES["list_version_sources"].many(connection, version_ids=version_ids)
    return {
        row["id"]: TemplateSource.stored(row["template"], json.loads(row["files"]), version_id=row["id"])
        for row in rows
    }


async def list_versions(
    connection: Connection, *, template: str, before_id: int | None, page_limit: int
) -> list[TemplateVersion]:
    rows = await QUERIES["list_versions"].many(
        connection, template=template, before_id=before_id, page_limit=page_limit
    )
    return [read_row(TemplateVersion, row) for row in rows]


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
