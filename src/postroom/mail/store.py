"""One function per statement of `queries.sql`, under the same name."""

import json
from collections.abc import Sequence
from datetime import datetime, timedelta

from postroom.db.queries import Connection, column, load, model
from postroom.db.retention import Step
from postroom.delivery.rows import read_unrendered
from postroom.mail.model import TemplateSummary, TemplateVersion, VersionFiles
from postroom.mail.template_files import TemplateSource
from postroom.runtime.record import read_row

QUERIES = load("postroom.mail")

count_templates = QUERIES["count_templates"].one_as(column("templates", int))


async def delete_old_versions(
    connection: Connection, *, retention: timedelta, batch_limit: int, now: datetime | None, after: int | None = None
) -> Step:
    row = await QUERIES["delete_old_versions"].one(
        connection, retention=retention, after=after, batch_limit=batch_limit, now=now
    )
    return Step(row["seen"], row["deleted"], row["last_id"])


async def find_version(connection: Connection, *, template: str, version_id: int | None) -> VersionFiles | None:
    row = await QUERIES["find_version"].maybe(connection, template=template, version_id=version_id)
    if row is None:
        return None
    return VersionFiles(read_row(TemplateVersion, row), json.loads(row["files"]))


find_version_before = QUERIES["find_version_before"].maybe_as(column("id", int))


async def list_current_hashes(connection: Connection) -> dict[str, str]:
    return {row["template"]: row["content_hash"] for row in await QUERIES["list_current_hashes"].many(connection)}


async def list_current_versions(connection: Connection) -> dict[str, int]:
    return {row["template"]: row["version_id"] for row in await QUERIES["list_current_versions"].many(connection)}


list_templates = QUERIES["list_templates"].many_as(model(TemplateSummary))
list_unrendered = QUERIES["list_unrendered"].many_as(read_unrendered)


async def list_version_sources(connection: Connection, *, version_ids: Sequence[int]) -> dict[int, TemplateSource]:
    rows = await QUERIES["list_version_sources"].many(connection, version_ids=version_ids)
    return {
        row["id"]: TemplateSource.stored(row["template"], json.loads(row["files"]), version_id=row["id"])
        for row in rows
    }


list_versions = QUERIES["list_versions"].many_as(model(TemplateVersion))


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
