"""Use cases of the archive: run, list, verify, adopt. One lock allows one process at a time to work on the archive.

A run first continues unfinished pieces, then begins pieces for old months, then deletes expired ones. Each step sends a
test signal when it is done, so that tests can kill a run there.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
import msgspec
import structlog

from postroom.archive import store
from postroom.archive.errors import (
    ArchiveBusy,
    ArchiveDamaged,
    ArchiveExtraMissing,
    ArchiveUnreachable,
    SegmentNotFound,
)
from postroom.archive.export import check_file, content_in_table, working_directory, write_file
from postroom.archive.model import (
    HAS_FILE,
    MAY_HAVE_FILE,
    ArchiveOptions,
    FileCheck,
    Manifest,
    RunReport,
    Segment,
    SegmentState,
)
from postroom.archive.objects import Objects, normal_url, objects_of, open_objects
from postroom.db.partitions import ensure_partitions
from postroom.db.pool import Pool, Session, connected
from postroom.db.room import Room
from postroom.errors import BadInput, PostroomError
from postroom.events.audit import record_audit
from postroom.runtime.clock import Clock, database_time
from postroom.runtime.loop import Signal, unheard
from postroom.runtime.pace import Pace
from postroom.runtime.page import OLDEST_FIRST, Found, read_page

_log = structlog.get_logger()

LOCK_TRIES = 20  # with LOCK_PAUSE_S about 5 s of tries; statements of the queue hold their locks for milliseconds
LOCK_PAUSE_S = 0.25  # lets the queue of waiting statements drain before the next try

Progress = Callable[[Segment], None]


@asynccontextmanager
async def archive_session(room: Room) -> AsyncIterator[Session]:
    """A connection that holds the archive's lock; raises `ArchiveBusy` if another process holds it."""
    async with connected(room.direct_url, room.name) as session:
        if not await store.try_archive_lock(session):
            raise ArchiveBusy
        await store.settle(session)
        yield session


async def run_archive(
    room: Room,
    options: ArchiveOptions,
    *,
    actor: str,
    clock: Clock = database_time,
    signal: Signal = unheard,
    progress: Progress = lambda _segment: None,
) -> RunReport:
    """Create future partitions, archive old months, delete expired pieces.

    Without an archive URL it only creates partitions.
    """
    async with archive_session(room) as session:
        await drop_unfinished_restores(session, options)
        archiver = Archiver(session, options, actor=actor, clock=clock, signal=signal)
        return await archiver.run(progress)


async def list_segments(
    pool: Pool, *, table: str | None = None, after_id: int | None = None, limit: int = 1000
) -> list[Segment]:
    """The pieces of the archive, finished and in progress, in the order they were begun."""
    return await store.list_segments(pool, table_name=table, after_id=after_id, page_limit=limit)


async def list_page(
    pool: Pool, *, table: str | None = None, cursor: str | None = None, limit: int = 50
) -> Found[Segment]:
    """A page of `list_segments`."""
    return await read_page(store.list_segments, pool, cursor, limit, order=OLDEST_FIRST, table_name=table)


async def each_with_file(pool: Pool, table: str | None) -> AsyncIterator[Segment]:
    """Yield pieces that have a file, each read just before its turn: an erasure may have rewritten it meanwhile."""
    for listed in await list_segments(pool, table=table, limit=1_000_000):
        segment = await store.find_segment(pool, id=listed.id)
        if segment is not None and segment.state in HAS_FILE:
            yield segment


async def verify_archive(pool: Pool, options: ArchiveOptions, *, table: str | None = None) -> AsyncIterator[FileCheck]:
    """Read every file back and compare it with its record; then report files without a record.

    An unreachable store is reported as a problem of its files.
    """
    check_table(options, table)
    async for segment in each_with_file(pool, table):
        yield FileCheck(segment.path, segment, await _problem(segment, options))
    for finding in await _unknown_files(pool, options, table):
        yield finding


def check_table(options: ArchiveOptions, table: str | None) -> None:
    """Raise `BadInput` for a table that is not archived."""
    if table is not None and table not in options.tables:
        raise BadInput.of("table", f"must be one of {', '.join(options.tables)}")


async def _problem(segment: Segment, options: ArchiveOptions) -> str | None:
    try:
        await check_file(objects_of(segment, options), segment, options)
    except (ArchiveDamaged, ArchiveUnreachable, OSError) as error:
        return str(error)
    return None


async def _unknown_files(pool: Pool, options: ArchiveOptions, table: str | None) -> list[FileCheck]:
    """Files in the room's folder without a record, such as files written after the backup a room was restored from."""
    folder = await store.find_folder(pool)
    if folder is None:
        return []
    listed = await list_segments(pool, limit=1_000_000)
    urls = {options.copy_url or segment.store_url for segment in listed if segment.state in HAS_FILE}
    findings, found = [], set[str]()
    for url in sorted(url for url in urls | {options.copy_url or options.url} if url is not None):
        try:
            found.update(await open_objects(url, endpoint=options.endpoint).paths_in(f"{folder}/{table or ''}"))
        except (ArchiveDamaged, ArchiveUnreachable, OSError) as error:
            findings.append(FileCheck(url, None, str(error)))
    # Read the records after the files: a run records a path before it writes the file.
    known = {piece.path for piece in await list_segments(pool, limit=1_000_000) if piece.state in MAY_HAVE_FILE}
    known.update((await store.list_spares(pool)).values())
    found -= known | {manifest_path(path) for path in known}
    unknown = sorted(path for path in found if path.endswith((".parquet", ".manifest.json")))
    return [*findings, *(FileCheck(path, None, "this file has no record") for path in unknown)]


async def adopt_archive(room: Room, *, actor: str) -> int:
    """Take over the files of the original room, when it no longer exists. Returns the number of pieces."""
    async with archive_session(room) as session, session.transaction():
        pieces = await store.adopt_pieces(session)
        if pieces:
            subject, after = f"room:{room.name}", {"pieces": pieces}
            await record_audit(session, actor, "archive.adopt", subject, after=after)
    return pieces


async def drop_unfinished_restores(session: Session, options: ArchiveOptions) -> None:
    """Drop the tables of restores that were killed."""
    for name in await store.list_unfinished_restores(session, tables=options.tables):
        try:
            await store.drop_restored_table(session, name=name)
        except asyncpg.LockNotAvailableError:
            _log.warning("unfinished_restore_left", table=name)


class Archiver:
    """Moves pieces from state to state, on a session that holds the archive's lock."""

    def __init__(
        self,
        session: Session,
        options: ArchiveOptions,
        *,
        actor: str,
        clock: Clock = database_time,
        signal: Signal = unheard,
    ) -> None:
        self._session, self._options, self._actor = session, options, actor
        self._clock, self._signal = clock, signal
        self._steps: dict[SegmentState, Callable[[Segment], Awaitable[None]]] = {
            SegmentState.COLLECTING: self._collect,
            SegmentState.EXPORTING: self._export,
            SegmentState.EXPORTED: self._verify,
            SegmentState.VERIFIED: self._detach_or_drop,
            SegmentState.DETACHED: self._drop,
        }

    async def run(self, progress: Progress) -> RunReport:
        report = RunReport(partitions_made=await self._make_partitions())
        if self._options.url is None:
            return report
        await self._advance(await store.list_unfinished(self._session), report, progress)
        for table in self._options.tables:
            while opened := await self._open(table):
                before = len(report.archived)
                await self._advance(opened, report, progress)
                if len(report.archived) < before + len(opened):
                    break  # a lock or an unreachable store: the next run continues
            await self._expire(table, report)
        return report

    async def advance(self, segment_id: int) -> Segment:
        """Advance one piece as far as possible."""
        segment = await self._find(segment_id)
        while step := self._steps.get(segment.state):
            await step(segment)
            segment = await self._find(segment_id)
        return segment

    async def _advance(self, segment_ids: list[int], report: RunReport, progress: Progress) -> None:
        """Advance each piece; a failure does not stop the others."""
        for segment_id in segment_ids:
            try:
                segment = await self.advance(segment_id)
            except asyncpg.LockNotAvailableError:
                segment = await self._find(segment_id)
                _log.warning("archive_postponed", piece=segment.label, state=segment.state.value)
                report.postponed.append(segment.label)
                continue
            except ArchiveExtraMissing:
                raise  # no file can be written at all
            except Exception as error:  # noqa: BLE001 - reported with the piece; the others continue
                self._note_failure(await self._find(segment_id), error, report)
                continue
            _log.info("archived", piece=segment.label, rows=segment.rows, bytes=segment.bytes)
            report.archived.append(segment)
            progress(segment)

    def _note_failure(self, segment: Segment, error: Exception, report: RunReport) -> None:
        is_ours = isinstance(error, PostroomError | OSError | asyncpg.PostgresError)
        reason = str(error) or type(error).__name__
        _log.error("archive_piece_failed", piece=segment.label, error=reason, exc_info=None if is_ours else error)
        report.failed[segment.label] = reason

    async def _make_partitions(self) -> int:
        made = 0
        for table in self._options.tables:
            try:
                made += await ensure_partitions(
                    self._session, table_name=table, months=self._options.months_ahead, now=self._clock()
                )
            except asyncpg.LockNotAvailableError:
                _log.warning("partitions_postponed", table=table)
        return made

    async def _open(self, table: str) -> list[int]:
        """Begin pieces for the old months of this table; late rows become a piece of their own."""
        when: dict[str, Any] = {"table_name": table, "retention": self._options.hot_for(table), "now": self._clock()}
        opened = await store.open_segments(self._session, **when)
        if not opened and (late := await store.open_late_segment(self._session, **when)) is not None:
            opened = [late]
        if opened:
            self._signal("opened")
        return opened

    async def _collect(self, segment: Segment) -> None:
        pace = Pace(self._options.share)
        while await store.collect_late_rows(self._session, id=segment.id, batch_limit=self._options.batch_limit):
            self._signal("collected")
            await pace.rest()
        await store.mark_collected(self._session, id=segment.id)

    async def _export(self, begun: Segment) -> None:
        segment = await self._choose_place(begun)
        objects = objects_of(segment, self._options)
        with working_directory(self._options) as directory:
            local = Path(directory) / "piece.parquet"
            manifest = await write_file(self._session, segment, local, options=self._options, signal=self._signal)
            self._signal("written")
            await objects.claim(segment.path)
            self._signal("claimed")
            await objects.put(segment.path, local)
            await put_manifest(objects, segment, manifest, Path(directory))
        self._signal("stored")
        columns = store.manifest_columns(manifest)
        await store.mark_exported(self._session, id=segment.id, now=self._clock(), **columns)
        self._signal("exported")

    async def _choose_place(self, segment: Segment) -> Segment:
        """Record a new path in the current store before the file is written; first remove the file of a killed run."""
        if segment.store_url is not None:
            try:
                await delete_file(objects_of(segment, self._options), segment)
            except (ArchiveUnreachable, OSError):
                _log.warning("archive_file_left", store=segment.store_url, path=segment.path)
        await store.use_store(self._session, id=segment.id, store_url=normal_url(self._options.url or ""))
        return await self._find(segment.id)

    async def _verify(self, segment: Segment) -> None:
        try:
            await check_file(objects_of(segment, self._options), segment, self._options)
        except ArchiveDamaged:
            await store.mark_stale(self._session, id=segment.id)
            raise
        except (ArchiveUnreachable, OSError) as error:
            if segment.store_url == normal_url(self._options.url or ""):
                raise
            _log.warning("archive_repeated", piece=segment.label, store=segment.store_url, reason=str(error))
            await store.mark_stale(self._session, id=segment.id)  # the setting names another store now: export it again
            return
        self._signal("read_back")
        await store.mark_verified(self._session, id=segment.id, now=self._clock())
        self._signal("verified")

    async def _detach_or_drop(self, segment: Segment) -> None:
        if not segment.is_attached:
            await self._drop(segment)
            return
        for attempt in range(1, LOCK_TRIES + 1):
            try:
                await store.detach_partition(self._session, id=segment.id)
                break
            except asyncpg.LockNotAvailableError:
                if attempt == LOCK_TRIES:
                    raise
                await asyncio.sleep(LOCK_PAUSE_S)
        self._signal("detached")

    async def _drop(self, segment: Segment) -> None:
        """Compare again, now that the detached table cannot change; drop it if the file is complete."""
        found = await content_in_table(self._session, segment, options=self._options)
        self._signal("compared")
        if found != segment.content_sha256:
            _log.warning("archive_repeated", piece=segment.label, reason="the table changed after it was written")
            await store.mark_stale(self._session, id=segment.id)
            return
        async with self._session.transaction():
            await store.drop_source(self._session, id=segment.id, now=self._clock())
            await record_audit(
                self._session,
                self._actor,
                "archive.drop",
                f"partition:{segment.source_name}",
                after={"rows": segment.rows, "path": segment.path, "content_sha256": segment.content_sha256},
            )
        self._signal("dropped")

    async def _expire(self, table: str, report: RunReport) -> None:
        for segment_id in await store.list_expiring(
            self._session, table_name=table, retention=self._options.keep_for(table), now=self._clock()
        ):
            segment = await self._find(segment_id)
            try:
                await delete_file(objects_of(segment, self._options), segment)
            except (ArchiveDamaged, ArchiveUnreachable, OSError) as error:  # the piece stays, and the others continue
                self._note_failure(segment, error, report)
                continue
            self._signal("deleted")
            report.expired.append(await self._mark_expired(segment))

    async def _mark_expired(self, segment: Segment) -> Segment:
        async with self._session.transaction():
            await store.mark_expired(self._session, id=segment.id, now=self._clock())
            await record_audit(
                self._session,
                self._actor,
                "archive.expire",
                f"archive:{segment.id}",
                before={"path": segment.path, "store": segment.store_url, "rows": segment.rows},
            )
        return await self._find(segment.id)

    async def _find(self, segment_id: int) -> Segment:
        return SegmentNotFound.unless(await store.find_segment(self._session, id=segment_id))


async def delete_file(objects: Objects, segment: Segment) -> None:
    """Delete a piece's file and its manifest, if they exist."""
    await objects.delete(segment.path)
    await objects.delete(manifest_path(segment.path))


def manifest_path(path: str) -> str:
    return path.removesuffix(".parquet") + ".manifest.json"


async def put_manifest(objects: Objects, segment: Segment, manifest: Manifest, directory: Path) -> None:
    """Write the record of a file beside it, so that the archive can be read without its database."""
    local = directory / "manifest.json"
    said = {"table": segment.table_name, "month": segment.month, "part": segment.part, **msgspec.to_builtins(manifest)}
    await asyncio.to_thread(local.write_bytes, msgspec.json.format(msgspec.json.encode(said)))
    await objects.put(manifest_path(segment.path), local)
