"""Erase a person from the files of the archive: delete their rows, replace their address in texts by the pseudonym.

A file is rewritten only if it matches its record, because rewriting would give a damaged file a valid checksum. The
new file has a new path; one statement switches the record to it, and then the old file is removed. After a kill the
record names a complete file, and the path of the spare file to remove. A file of another room is left unchanged: this
room gets a file of its own.
"""

import asyncio
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import Any

from postroom.archive import store as archive_store
from postroom.archive.errors import ArchiveDamaged
from postroom.archive.export import fetch_proven, working_directory
from postroom.archive.model import ArchiveOptions, Manifest, Segment, SegmentState
from postroom.archive.objects import objects_of
from postroom.archive.parquet import ParquetFile, load_arrow, read_tables, text_columns
from postroom.archive.service import delete_file, put_manifest
from postroom.db.pool import Session
from postroom.erasure.columns import PLACES, How
from postroom.erasure.model import ErasureRun
from postroom.runtime.loop import Signal, unheard

LEDGER = "attempts"
"""Its rows stay without the person, by the rules of functions/erase_attempts.sql."""


async def erase_file(
    session: Session, segment: Segment, work: ErasureRun, *, options: ArchiveOptions, signal: Signal = unheard
) -> int:
    """Rewrite one piece if the person is in it; returns the number of changed rows. Raises `ArchiveDamaged`.

    A piece whose table still exists is exported again from the table, which was erased before.
    """
    if segment.state is not SegmentState.ARCHIVED:
        return await _throw_away(session, segment, options=options, signal=signal)
    time_column = await archive_store.find_partition_column(session, table_name=segment.table_name)
    with working_directory(options) as directory:
        before, after = Path(directory) / "before.parquet", Path(directory) / "after.parquet"
        await fetch_proven(objects_of(segment, options), segment, before)
        rewriting = Rewriting(segment, work)
        manifest = await asyncio.to_thread(rewriting.write, before, after, time_column)
        if manifest.content_sha256 == segment.content_sha256:
            return 0
        signal("rewritten")
        await _put(session, segment, manifest, after, options=options)
    signal("replaced")
    columns = archive_store.manifest_columns(manifest)
    del columns["columns"]
    await archive_store.switch_file(session, id=segment.id, is_foreign=segment.is_foreign, **columns)
    signal("switched")
    if not segment.is_foreign:
        await remove_spare(session, segment.id, segment.path, options=options)
    return rewriting.touched


async def remove_spare(session: Session, segment_id: int, path: str, *, options: ArchiveOptions) -> None:
    """Remove a file that the record does not use: an old file, or an unfinished new one."""
    segment = await archive_store.find_segment(session, id=segment_id)
    if segment is not None and not segment.is_foreign:
        objects = objects_of(segment, options)
        if segment.state is SegmentState.ARCHIVED and not await objects.exists(segment.path):
            # The room was restored from an older state: the other file may be the only copy of these rows.
            raise ArchiveDamaged(f"{segment.path} is not in the archive; {path} may be its newer version.")
        await delete_file(objects, replace(segment, path=path))
    await archive_store.forget_spare(session, id=segment_id)


async def _put(session: Session, segment: Segment, manifest: Manifest, local: Path, *, options: ArchiveOptions) -> None:
    fresh = replace(segment, path=await archive_store.reserve_path(session, id=segment.id), is_foreign=False)
    objects = objects_of(fresh, options)
    await objects.claim(fresh.path)
    await objects.put(fresh.path, local)
    await put_manifest(objects, fresh, manifest, local.parent)


async def _throw_away(session: Session, segment: Segment, *, options: ArchiveOptions, signal: Signal) -> int:
    """Mark the piece first: a table must never be dropped because of a file that is deleted."""
    marked = await archive_store.mark_stale(session, id=segment.id)
    signal("marked_stale")
    if segment.store_url is not None:  # None: no file was ever written
        await delete_file(objects_of(segment, options), segment)
    return marked


class Rewriting:
    """The rewriting of one file."""

    def __init__(self, segment: Segment, work: ErasureRun) -> None:
        self._segment, self._work = segment, work
        self._patterns = {spelling: address_pattern(spelling) for spelling in work.spellings}
        self._texts = text_columns(segment.columns)
        self._owners = [
            column
            for place in PLACES
            if place.table == segment.table_name and place.how is How.DELETE
            for column in place.columns
        ]
        self.touched = 0

    def write(self, before: Path, after: Path, time_column: str | None) -> Manifest:
        with ParquetFile(after, self._segment.columns, time_column=time_column) as file:
            for table in self._tables(before):
                file.write_table(table)
            return file.finish()

    def _tables(self, before: Path) -> Iterator[Any]:
        for table in read_tables(before):
            kept = self._without_rows(table)
            self.touched += int(table.num_rows - kept.num_rows)
            kept = self._without_ledger_texts(kept)
            for column in self._texts:
                for spelling in self._patterns:
                    kept = self._without_address(kept, column, spelling)
            yield kept

    def _without_rows(self, table: Any) -> Any:
        compute, arrow = load_arrow("compute"), load_arrow()
        for column in self._owners:
            mine = compute.is_in(compute.utf8_lower(table.column(column)), arrow.array(list(self._patterns)))
            table = table.filter(compute.invert(compute.fill_null(mine, fill_value=False)))
        return table

    def _without_ledger_texts(self, table: Any) -> Any:
        """Remove replies of the person's attempts, and tags and custom data where they were the only recipient."""
        if self._segment.table_name != LEDGER:
            return table
        compute, arrow = load_arrow("compute"), load_arrow()
        theirs = compute.is_in(table.column("delivery_id"), arrow.array(self._work.delivery_ids, arrow.int64()))
        alone = compute.is_in(table.column("recipient"), arrow.array(list(self._patterns), arrow.string()))
        mine = compute.or_(theirs, self._mentions(table.column("other_recipients")))
        mine = compute.or_(mine, alone)
        alone = compute.and_(alone, compute.is_null(table.column("other_recipients")))
        table = self._without_text(table, "reply_text", mine)
        named = compute.and_(mine, self._mentions(table.column("idempotency_key")))
        table = self._without_text(table, "idempotency_key", named)
        for column in ("tags", "custom_data"):
            table = self._without_text(table, column, alone)
        return table

    def _mentions(self, texts: Any) -> Any:
        compute = load_arrow("compute")
        found = [compute.match_substring(texts, spelling, ignore_case=True) for spelling in self._patterns]
        return compute.fill_null(reduce(compute.or_, found), fill_value=False)

    def _without_text(self, table: Any, column: str, where: Any) -> Any:
        compute, arrow = load_arrow("compute"), load_arrow()
        where = compute.and_(where, compute.is_valid(table.column(column)))
        self.touched += int(compute.sum(where).as_py() or 0)
        changed = compute.if_else(where, arrow.scalar(None, arrow.string()), table.column(column))
        return table.set_column(table.schema.get_field_index(column), column, changed)

    def _without_address(self, table: Any, column: str, spelling: str) -> Any:
        compute, arrow = load_arrow("compute"), load_arrow()
        found = compute.match_substring(table.column(column), spelling, ignore_case=True)
        if not compute.any(found).as_py():
            return table
        texts = table.column(column).to_pylist()
        changed = [text and self._patterns[spelling].sub(self._work.pseudonym, text) for text in texts]
        self.touched += sum(1 for old, new in zip(texts, changed, strict=True) if old != new)
        return table.set_column(table.schema.get_field_index(column), column, arrow.array(changed, arrow.string()))


def address_pattern(address: str) -> re.Pattern[str]:
    """A pattern for the address that does not match inside a longer one, as the stored function of this name."""
    begin = r"(?:(?<![\w.+-])|(?<=\\[bfnrt])|(?<=\\u[0-9a-f]{4})|(?<=\\[0-7]{3}))"
    return re.compile(begin + re.escape(address) + r"(?![\w-]|\.\w)", re.IGNORECASE)
