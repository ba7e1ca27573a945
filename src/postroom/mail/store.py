"""One function per statement of `queries.sql`, under the same name."""

from collections.abc import Sequence

from postroom.db.queries import Connection, load

QUERIES = load("postroom.mail")


async def list_current_hashes(connection: Connection) -> dict[str, str]:
    return {row["template"]: row["content_hash"] for row in await QUERIES["list_current_hashes"].many(connection)}


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
