"""Restore a month from its files into a table of its own, or into its original table.

Rows are copied in short transactions: a long one would hold back followers of events. The month is recorded as
restored in the last step. A restore that fails removes its table; the next restore or run removes the table of a
killed one.
"""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import asyncpg

from postroom.archive import store
from postroom.archive.errors import ArchiveDamaged, ArchiveLocked, MonthTaken, SegmentNotFound
from postroom.archive.export import fetched
from postroom.archive.model import ArchiveOptions, Month, Segment, SegmentState
from postroom.archive.objects import objects_of
from postroom.archive.parquet import read_csv
from postroom.archive.service import archive_session, drop_unfinished_restores
from postroom.db.faults import translated
from postroom.db.pool import Session
from postroom.db.room import Room
from postroom.events.audit import record_audit
from postroom.runtime.loop import Signal, unheard
from postroom.runtime.pace import Pace


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """A restored month."""

    table_name: str  # attempts
    month: str
    restored_name: str  # attempts_restored_2026_01
    rows: int
    is_attached: bool  # attached to its table


async def restore_month(
    room: Room,
    options: ArchiveOptions,
    month: Month,
    *,
    attach: bool,
    actor: str,
    signal: Signal = unheard,
) -> Restored:
    """Restore all pieces of a month, verified by count and checksum; `attach` attaches it to its table."""
    async with archive_session(room) as session:
        await drop_unfinished_restores(session, options)
        pieces = await _pieces(session, month)
        try:
            rows = await _fill_table(session, month, pieces, options=options, signal=signal)
            back = Restored(
                table_name=month.table,
                month=str(month),
                restored_name=month.restored_name,
                rows=rows,
                is_attached=attach,
            )
            await _finish(session, back, pieces, actor=actor)
        except BaseException:
            if not session.is_closed():
                await drop_unfinished_restores(session, options)
            raise
    return back


async def release_month(room: Room, month: Month, *, actor: str) -> int:
    """Drop a restored month; the archive keeps it. Returns the number of its pieces.

    Raises `MonthTaken` if the month's rows differ from its files.
    """
    name = month.restored_name
    async with archive_session(room) as session, session.transaction():
        with translated(), _locks_reported(month.table):
            pieces = await store.drop_restored_table(session, name=name)
        if pieces == 0:
            raise SegmentNotFound(f"There is no restored month {name}.")
        await record_audit(session, actor, "archive.release", f"table:{name}")
    return pieces


async def _pieces(session: Session, month: Month) -> list[Segment]:
    of_table = await store.list_segments(session, table_name=month.table)
    pieces = [piece for piece in of_table if piece.from_time == month.begin and piece.state is SegmentState.ARCHIVED]
    if not pieces:
        raise SegmentNotFound(f"The archive has no piece of {month.table} for {month}.")
    if any(piece.restored_at for piece in pieces):
        raise MonthTaken(f"{month} of {month.table} is already restored, in {month.restored_name}.")
    return pieces


async def _fill_table(
    session: Session, month: Month, pieces: list[Segment], *, options: ArchiveOptions, signal: Signal
) -> int:
    name = month.restored_name
    await store.make_restored_table(session, table_name=month.table, name=name)
    for piece in pieces:
        await _fill(session, piece, name=name, options=options)
        signal("filled")
    rows = sum(piece.rows or 0 for piece in pieces)
    found = await store.count_rows(session, name=name)
    if found != rows:
        raise ArchiveDamaged(f"{name} has {found} rows instead of {rows}.")
    return rows


async def _fill(session: Session, piece: Segment, *, name: str, options: ArchiveOptions) -> None:
    content, pace = hashlib.sha256(), Pace(options.share)
    async with fetched(objects_of(piece, options), piece, options) as local:
        async for csv in _steps(local):
            content.update(csv)
            await session.copy_to_table(
                name,
                source=_once(csv),
                columns=[column.name for column in piece.columns],
                format="csv",
            )
            await pace.rest()
    if content.hexdigest() != piece.content_sha256:
        raise ArchiveDamaged(f"{piece.path} is damaged: the checksum of its rows differs from the record.")


async def _finish(session: Session, back: Restored, pieces: list[Segment], *, actor: str) -> None:
    try:
        async with session.transaction():
            if back.is_attached:
                with _locks_reported(back.table_name):
                    await store.attach_restored_table(
                        session, table_name=back.table_name, name=back.restored_name, from_time=pieces[0].from_time
                    )
            for piece in pieces:
                await store.mark_restored(session, id=piece.id, name=back.restored_name)
            await record_audit(
                session,
                actor,
                "archive.restore",
                f"table:{back.restored_name}",
                after={"rows": back.rows, "is_attached": back.is_attached},
            )
    except (asyncpg.CheckViolationError, asyncpg.InvalidObjectDefinitionError) as error:
        raise MonthTaken(
            f"{back.month} cannot be attached to {back.table_name}, which already has rows of that month. "
            "Archive them first, or restore without --attach."
        ) from error


@contextmanager
def _locks_reported(table: str) -> Iterator[None]:
    try:
        yield
    except asyncpg.LockNotAvailableError as error:
        raise ArchiveLocked(
            f"Another transaction holds a lock on {table}; nothing was changed. End that transaction, or try again "
            "later. `postroom doctor` names the oldest open transaction."
        ) from error


async def _steps(local: Path) -> AsyncIterator[bytes]:
    rows = read_csv(local)
    while (csv := await asyncio.to_thread(next, rows, None)) is not None:
        yield csv


async def _once(csv: bytes) -> AsyncIterator[bytes]:
    yield csv
