"""Export a table to a file, and verify the file against the table.

A table is read a few pages at a time. Each step has its own snapshot, because an old snapshot would keep dead rows of
the queue from being vacuumed, and pauses leave the database to the delivery of mail.
"""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from postroom.archive import store
from postroom.archive.errors import ArchiveDamaged
from postroom.archive.model import ArchiveOptions, Column, Manifest, Segment
from postroom.archive.objects import Objects
from postroom.archive.parquet import ParquetFile, file_sha256, read_tables, render, text_columns
from postroom.db.pool import Session
from postroom.runtime.loop import Signal, unheard
from postroom.runtime.pace import Pace


async def read_pages(
    session: Session, source_name: str, columns: Sequence[Column], *, options: ArchiveOptions
) -> AsyncIterator[bytes]:
    """Yield a table's rows as CSV, some pages at a time, including pages added meanwhile."""
    page, quoted, pace = 0, text_columns(columns), Pace(options.share)
    while page < await store.count_pages(session, source_name=source_name):
        statement = await store.compose_export(
            session, source_name=source_name, from_page=page, to_page=page + options.pages
        )
        collected = bytearray()

        async def collect(data: bytes, collected: bytearray = collected) -> None:
            collected.extend(data)

        await session.copy_from_query(statement, output=collect, format="csv", force_quote=quoted)
        if collected:
            yield bytes(collected)
        page += options.pages
        await pace.rest()


async def write_file(
    session: Session, segment: Segment, target: Path, *, options: ArchiveOptions, signal: Signal = unheard
) -> Manifest:
    """Write a piece's table into a local file."""
    columns = await store.list_columns(session, source_name=segment.source_name)
    time_column = await store.find_partition_column(session, table_name=segment.table_name)
    file = await asyncio.to_thread(ParquetFile, target, columns, time_column=time_column)
    with file:
        async for csv in read_pages(session, segment.source_name, columns, options=options):
            await asyncio.to_thread(file.write, csv)
            signal("read")
        return await asyncio.to_thread(file.finish)


async def content_in_table(session: Session, segment: Segment, *, options: ArchiveOptions) -> str:
    """The checksum of a piece's table as it is now; equal to the file's only if no row changed."""
    content = hashlib.sha256()
    async for csv in read_pages(session, segment.source_name, segment.columns, options=options):
        content.update(csv)
    return content.hexdigest()


@asynccontextmanager
async def fetched(objects: Objects, segment: Segment, options: ArchiveOptions) -> AsyncIterator[Path]:
    """A local copy of a piece's file for the duration of the block, verified by its checksum."""
    with working_directory(options) as directory:
        local = Path(directory) / "piece.parquet"
        await fetch_proven(objects, segment, local)
        yield local


async def fetch_proven(objects: Objects, segment: Segment, local: Path) -> None:
    """Download a piece's file; raises `ArchiveDamaged` if its checksum differs from the record."""
    await objects.fetch(segment.path, local)
    if await asyncio.to_thread(file_sha256, local) != segment.file_sha256:
        raise ArchiveDamaged(
            f"{segment.path} is damaged: its checksum differs from the record. Replace it by a good copy."
        )


async def check_file(objects: Objects, segment: Segment, options: ArchiveOptions) -> None:
    """Read a piece's file back; raises `ArchiveDamaged` unless rows and checksum match the record."""
    async with fetched(objects, segment, options) as local:
        rows, content, pace = 0, hashlib.sha256(), Pace(options.share)
        tables = read_tables(local)
        while (table := await asyncio.to_thread(next, tables, None)) is not None:
            rows += table.num_rows
            content.update(await asyncio.to_thread(render, table))
            await pace.rest()
    if (rows, content.hexdigest()) != (segment.rows, segment.content_sha256):
        raise ArchiveDamaged(f"{segment.path} has {rows} rows that differ from the {segment.rows} of the table.")


def working_directory(options: ArchiveOptions) -> "TemporaryDirectory[str]":
    if options.work_dir is not None:
        options.work_dir.mkdir(parents=True, exist_ok=True)
    return TemporaryDirectory(prefix="postroom-archive-", dir=options.work_dir)
