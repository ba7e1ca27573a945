"""One function per statement of `queries.sql`, under the same name. Rows become models here and nowhere else."""

from typing import Any

import asyncpg
import msgspec

from postroom.archive.model import Column, Manifest, Segment
from postroom.db.queries import Connection, column, columns, load, model
from postroom.runtime.record import read_row

QUERIES = load("postroom.archive")


def manifest_columns(manifest: Manifest) -> dict[str, Any]:
    """The columns of a manifest."""
    return {
        "rows": manifest.rows,
        "bytes": manifest.bytes,
        "min_time": manifest.min_time,
        "max_time": manifest.max_time,
        "columns": msgspec.json.encode(manifest.columns).decode(),
        "file_checksum": manifest.file_sha256,
        "content_checksum": manifest.content_sha256,
    }


def _segment(row: asyncpg.Record) -> Segment:
    return read_row(Segment, {**row, "columns": msgspec.json.decode(row["columns"] or "[]")})


adopt_pieces = QUERIES["adopt_pieces"].exec
attach_restored_table = QUERIES["attach_restored_table"].exec
collect_late_rows = QUERIES["collect_late_rows"].one_as(column("moved", int))
compose_export = QUERIES["compose_export"].one_as(column("statement", str))
count_pages = QUERIES["count_pages"].one_as(column("pages", int))
count_rows = QUERIES["count_rows"].one_as(column("rows", int))
detach_partition = QUERIES["detach_partition"].exec
drop_restored_table = QUERIES["drop_restored_table"].one_as(column("pieces", int))
drop_source = QUERIES["drop_source"].exec
find_folder = QUERIES["find_folder"].maybe_as(column("name", str))
find_partition_column = QUERIES["find_partition_column"].one_as(columns("name"))
find_segment = QUERIES["find_segment"].maybe_as(_segment)
forget_spare = QUERIES["forget_spare"].exec
list_columns = QUERIES["list_columns"].many_as(model(Column))
list_expiring = QUERIES["list_expiring"].many_as(column("id", int))


async def list_segments(
    connection: Connection, *, table_name: str | None = None, after_id: int | None = None, page_limit: int = 100_000
) -> list[Segment]:
    rows = await QUERIES["list_segments"].many(
        connection, table_name=table_name, after_id=after_id, page_limit=page_limit
    )
    return [_segment(row) for row in rows]


list_spares = QUERIES["list_spares"].dict_as("id", column("spare_path", str))
list_unfinished = QUERIES["list_unfinished"].many_as(column("id", int))
list_unfinished_restores = QUERIES["list_unfinished_restores"].many_as(column("name", str))
make_restored_table = QUERIES["make_restored_table"].exec
mark_collected = QUERIES["mark_collected"].exec
mark_expired = QUERIES["mark_expired"].exec
mark_exported = QUERIES["mark_exported"].exec
"""`columns` are those of `manifest_columns`."""
mark_restored = QUERIES["mark_restored"].exec
mark_stale = QUERIES["mark_stale"].exec
mark_verified = QUERIES["mark_verified"].exec
open_late_segment = QUERIES["open_late_segment"].one_as(columns("id"))
open_segments = QUERIES["open_segments"].many_as(column("id", int))
reserve_path = QUERIES["reserve_path"].one_as(column("spare_path", str))
keep = QUERIES["keep"].exec
settle = QUERIES["settle"].exec
switch_file = QUERIES["switch_file"].exec
"""`columns` are those of `manifest_columns` without `columns`, which a rewritten file keeps."""
try_archive_lock = QUERIES["try_archive_lock"].one_as(column("is_locked", bool))
use_store = QUERIES["use_store"].exec
