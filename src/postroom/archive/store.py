"""One function per statement of `queries.sql`, under the same name. Rows become models here and nowhere else."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import asyncpg
import msgspec

from postroom.archive.model import Column, Manifest, Segment, SegmentState
from postroom.db.queries import Connection, load

QUERIES = load("postroom.archive")

# ruff: noqa: A002 - `id` is the column's name


async def adopt_pieces(connection: Connection) -> int:
    return await QUERIES["adopt_pieces"].exec(connection)


async def attach_restored_table(connection: Connection, *, table_name: str, name: str, from_time: datetime) -> int:
    return await QUERIES["attach_restored_table"].exec(
        connection, table_name=table_name, name=name, from_time=from_time
    )


async def collect_late_rows(connection: Connection, *, id: int, batch_limit: int) -> int:
    return int((await QUERIES["collect_late_rows"].one(connection, id=id, batch_limit=batch_limit))["moved"])


async def compose_export(connection: Connection, *, source_name: str, from_page: int, to_page: int) -> str:
    row = await QUERIES["compose_export"].one(connection, source_name=source_name, from_page=from_page, to_page=to_page)
    return str(row["statement"])


async def count_pages(connection: Connection, *, source_name: str) -> int:
    return int((await QUERIES["count_pages"].one(connection, source_name=source_name))["pages"])


async def count_rows(connection: Connection, *, name: str) -> int:
    return int((await QUERIES["count_rows"].one(connection, name=name))["rows"])


async def detach_partition(connection: Connection, *, id: int) -> int:
    return await QUERIES["detach_partition"].exec(connection, id=id)


async def drop_restored_table(connection: Connection, *, name: str) -> int:
    return int((await QUERIES["drop_restored_table"].one(connection, name=name))["pieces"])


async def drop_source(connection: Connection, *, id: int, now: datetime | None = None) -> int:
    return await QUERIES["drop_source"].exec(connection, id=id, now=now)


async def ensure_partitions(
    connection: Connection, *, table_name: str, months: int, now: datetime | None = None
) -> int:
    row = await QUERIES["ensure_partitions"].one(connection, table_name=table_name, months=months, now=now)
    return int(row["made"])


async def find_folder(connection: Connection) -> str | None:
    row = await QUERIES["find_folder"].maybe(connection)
    return None if row is None else str(row["name"])


async def find_partition_column(connection: Connection, *, table_name: str) -> str | None:
    row = await QUERIES["find_partition_column"].one(connection, table_name=table_name)
    return None if row["name"] is None else str(row["name"])


async def find_segment(connection: Connection, *, id: int) -> Segment | None:
    row = await QUERIES["find_segment"].maybe(connection, id=id)
    return None if row is None else _segment(row)


async def forget_spare(connection: Connection, *, id: int) -> int:
    return await QUERIES["forget_spare"].exec(connection, id=id)


async def list_columns(connection: Connection, *, source_name: str) -> tuple[Column, ...]:
    rows = await QUERIES["list_columns"].many(connection, source_name=source_name)
    return tuple(Column(row["name"], row["type"]) for row in rows)


async def list_expiring(
    connection: Connection, *, table_name: str, retention: timedelta, now: datetime | None = None
) -> list[int]:
    rows = await QUERIES["list_expiring"].many(connection, table_name=table_name, retention=retention, now=now)
    return [row["id"] for row in rows]


async def list_segments(
    connection: Connection, *, table_name: str | None = None, after_id: int | None = None, page_limit: int = 100_000
) -> list[Segment]:
    rows = await QUERIES["list_segments"].many(
        connection, table_name=table_name, after_id=after_id, page_limit=page_limit
    )
    return [_segment(row) for row in rows]


async def list_spares(connection: Connection) -> dict[int, str]:
    """Paths by piece id."""
    return {row["id"]: row["spare_path"] for row in await QUERIES["list_spares"].many(connection)}


async def list_unfinished(connection: Connection) -> list[int]:
    return [row["id"] for row in await QUERIES["list_unfinished"].many(connection)]


async def list_unfinished_restores(connection: Connection, *, tables: Sequence[str]) -> list[str]:
    rows = await QUERIES["list_unfinished_restores"].many(connection, tables=list(tables))
    return [row["name"] for row in rows]


async def make_restored_table(connection: Connection, *, table_name: str, name: str) -> int:
    return await QUERIES["make_restored_table"].exec(connection, table_name=table_name, name=name)


async def mark_collected(connection: Connection, *, id: int) -> int:
    return await QUERIES["mark_collected"].exec(connection, id=id)


async def mark_expired(connection: Connection, *, id: int, now: datetime | None = None) -> int:
    return await QUERIES["mark_expired"].exec(connection, id=id, now=now)


async def mark_exported(connection: Connection, *, id: int, now: datetime | None = None, **columns: Any) -> int:
    """`columns` are those of `manifest_columns`."""
    return await QUERIES["mark_exported"].exec(connection, id=id, now=now, **columns)


async def mark_restored(connection: Connection, *, id: int, name: str, now: datetime | None = None) -> int:
    return await QUERIES["mark_restored"].exec(connection, id=id, name=name, now=now)


async def mark_stale(connection: Connection, *, id: int) -> int:
    return await QUERIES["mark_stale"].exec(connection, id=id)


async def mark_verified(connection: Connection, *, id: int, now: datetime | None = None) -> int:
    return await QUERIES["mark_verified"].exec(connection, id=id, now=now)


async def open_late_segment(
    connection: Connection, *, table_name: str, retention: timedelta, now: datetime | None = None
) -> int | None:
    row = await QUERIES["open_late_segment"].one(connection, table_name=table_name, retention=retention, now=now)
    return None if row["id"] is None else int(row["id"])


async def open_segments(
    connection: Connection, *, table_name: str, retention: timedelta, now: datetime | None = None
) -> list[int]:
    rows = await QUERIES["open_segments"].many(connection, table_name=table_name, retention=retention, now=now)
    return [row["id"] for row in rows]


async def reserve_path(connection: Connection, *, id: int) -> str:
    return str((await QUERIES["reserve_path"].one(connection, id=id))["spare_path"])


async def keep(connection: Connection) -> int:
    return await QUERIES["keep"].exec(connection)


async def settle(connection: Connection) -> int:
    return await QUERIES["settle"].exec(connection)


async def switch_file(connection: Connection, *, id: int, is_foreign: bool, **columns: Any) -> int:
    """`columns` are those of `manifest_columns` without `columns`, which a rewritten file keeps."""
    return await QUERIES["switch_file"].exec(connection, id=id, is_foreign=is_foreign, **columns)


async def try_archive_lock(connection: Connection) -> bool:
    return bool((await QUERIES["try_archive_lock"].one(connection))["is_locked"])


async def use_store(connection: Connection, *, id: int, store_url: str) -> int:
    return await QUERIES["use_store"].exec(connection, id=id, store_url=store_url)


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
    columns = msgspec.json.decode(row["columns"] or "[]", type=tuple[Column, ...])
    return Segment(**{**row, "state": SegmentState(row["state"]), "columns": columns})
