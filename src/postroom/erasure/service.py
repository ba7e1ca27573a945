"""Erase a person, from the request to the last file.

The first part, one transaction, changes every row that an index finds: queue, ledger, accounts, opens, clicks,
suppressions. The second searches texts in bounded steps: events, replies, captured and unreadable mail. The third
rewrites files of the archive. Each part can be repeated; the row in `erasures` records the current part.
"""

from contextlib import suppress

import asyncpg
import structlog

from postroom.archive import store as archive_store
from postroom.archive.errors import (
    ArchiveBusy,
    ArchiveDamaged,
    ArchiveExtraMissing,
    ArchiveForeign,
    ArchivePathTaken,
    ArchiveUnreachable,
)
from postroom.archive.model import MAY_HAVE_FILE, ArchiveOptions
from postroom.archive.service import archive_session
from postroom.db.pool import Pool, Session
from postroom.db.room import Room
from postroom.erasure import store
from postroom.erasure.columns import PLACES, ErasedColumns, How
from postroom.erasure.errors import ErasureNotFound
from postroom.erasure.files import erase_file, remove_spare
from postroom.erasure.model import Erasure, ErasureRun, ErasureState
from postroom.errors import BadInput
from postroom.events.audit import record_audit
from postroom.post.address import parse_address
from postroom.runtime.loop import Signal, unheard
from postroom.runtime.page import Found, read_page

_log = structlog.get_logger()

FILE_PROBLEMS = (ArchiveDamaged, ArchiveForeign, ArchivePathTaken, ArchiveUnreachable, OSError)
"""Failures of one file, after which the other files are tried."""

WAITS = (*FILE_PROBLEMS, ArchiveBusy, ArchiveExtraMissing)
"""Failures of the archive part. The database is erased by then; another process or a later run continues."""


async def erase(
    room: Room,
    options: ArchiveOptions,
    *,
    address: str,
    actor: str,
    keep_accounts: bool = False,
    signal: Signal = unheard,
) -> Erasure:
    """Erase the person with this address. The result is unfinished while files of the archive cannot be rewritten."""
    work = await _begin(room.pool, _checked(address), actor=actor, keep_accounts=keep_accounts)
    signal("begun")
    try:
        await _go_on(room, options, work.id, signal=signal)
    except WAITS as error:
        _log.warning("erasure_waits_for_archive", erasure=work.id, reason=str(error))
    return await get_erasure(room.pool, work.id)


async def preview_erasure(room: Room, *, address: str, keep_accounts: bool = False) -> dict[str, int]:
    """The number of rows per table that an erasure would change by index; nothing is changed.

    The erasure runs in a transaction that is rolled back. Unlike an erasure, a preview does not search texts and files
    of the archive.
    """
    async with room.pool.acquire() as connection:
        transaction = connection.transaction()
        await transaction.start()
        try:
            await store.make_erasure_key(connection)
            work, _ = await store.begin_erasure(connection, actor="preview", address=_checked(address))
            before = await store.find_erasure(connection, id=work.id)
            await _erase_found(connection, work, keep_accounts=keep_accounts)
            after = await store.find_erasure(connection, id=work.id)
        finally:
            await transaction.rollback()
    assert before is not None
    assert after is not None
    changed = {name: amount - before.counts.get(name, 0) for name, amount in after.counts.items()}
    return {name: amount for name, amount in changed.items() if amount}


async def resume_erasures(room: Room, options: ArchiveOptions) -> int:
    """Resume unfinished erasures, each on its own; returns their number."""
    running = await store.list_running(room.pool)
    for erasure_id in running:
        try:
            await _go_on(room, options, erasure_id)
        except WAITS as error:
            _log.warning("erasure_waits_for_archive", erasure=erasure_id, reason=str(error))
        except Exception:  # noqa: BLE001 - a failed erasure does not stop the others
            _log.exception("erasure_failed", erasure=erasure_id)
    return len(running)


async def get_erasure(pool: Pool, erasure_id: int) -> Erasure:
    """Raises `ErasureNotFound`."""
    return ErasureNotFound.unless(await store.find_erasure(pool, id=erasure_id))


async def list_erasures(pool: Pool, *, cursor: str | None = None, limit: int = 50) -> Found[Erasure]:
    """A page of erasures, newest first, and the cursor of the next page."""
    return await read_page(store.list_erasures, pool, cursor, limit)


def _checked(address: str) -> str:
    with BadInput.naming("email"):
        return parse_address(address.strip()).email.lower()


async def _begin(pool: Pool, address: str, *, actor: str, keep_accounts: bool) -> ErasureRun:
    """Erase every row that an index finds, in one transaction with the record and its audit entry."""
    async with pool.acquire() as connection, connection.transaction():
        await store.make_erasure_key(connection)
        work, is_new = await store.begin_erasure(connection, actor=actor, address=address)
        if is_new:
            await record_audit(connection, actor, "erasure.begin", f"erasure:{work.id}")
        await _erase_found(connection, work, keep_accounts=keep_accounts)
    return work


async def _erase_found(connection: Session, work: ErasureRun, *, keep_accounts: bool) -> None:
    """Accounts first, then address_limits, then deliveries: other transactions lock several of them in this order."""
    if not keep_accounts:
        await _erase_places(connection, work, is_account=True)
    for who in _who(work):
        amount = await store.erase_accounts(connection, address=who["address"])
        await _count(connection, work, "address_limits", amount)
    for table in sorted({"attempts", *await store.list_searched_tables(connection, table_name="attempts")}):
        await _erase_attempts(connection, work, table=table)
    for who in _who(work):
        deliveries, touched = await store.erase_indexed(connection, **who)
        await store.remember_deliveries(connection, id=work.id, delivery_ids=deliveries)
        for name, amount in touched.items():
            await _count(connection, work, name, amount)
    await _erase_places(connection, work, is_account=False)


async def _erase_attempts(connection: Session, work: ErasureRun, *, table: str) -> None:
    for who in _who(work):
        deliveries = await store.erase_attempts(connection, table_name=table, **who)
        await store.remember_deliveries(connection, id=work.id, delivery_ids=deliveries)
        await _count(connection, work, "attempts", len(deliveries))


async def _erase_places(connection: Session, work: ErasureRun, *, is_account: bool) -> None:
    for place in PLACES:
        if place.how is not How.WITHIN and place.is_account is is_account:
            # The parent includes its partitions; months being archived or restored are separate tables.
            searched = {place.table, *await store.list_searched_tables(connection, table_name=place.table)}
            for table in sorted(searched):
                await _erase_equal_in(connection, work, place, table=table)


async def _erase_equal_in(connection: Session, work: ErasureRun, place: ErasedColumns, *, table: str) -> None:
    for column in place.columns:
        for who in _who(work):
            amount = await store.erase_rows(
                connection, table_name=table, column_name=column, how=place.how.value, **who
            )
            await _count(connection, work, place.table, amount)


async def _go_on(room: Room, options: ArchiveOptions, erasure_id: int, *, signal: Signal = unheard) -> None:
    async with room.pool.acquire() as connection:
        work = await store.find_work(connection, id=erasure_id)
        if work is not None and work.state is ErasureState.DATABASE:
            await _search(connection, work, options=options, signal=signal)
            async with connection.transaction():  # a bounce or open may have arrived during the search
                if await store.lock_work(
                    connection, id=work.id
                ):  # a concurrent request for the same address may have finished it
                    await _erase_found(connection, work, keep_accounts=True)
                    await store.mark_database_erased(connection, id=work.id)
    if work is not None:
        await _erase_archive(room, options, work.id, signal=signal)


async def _search(connection: Session, work: ErasureRun, *, options: ArchiveOptions, signal: Signal) -> None:
    for place in PLACES:
        if place.how is not How.WITHIN:
            continue
        for table in await store.list_searched_tables(connection, table_name=place.table):
            await _search_table(connection, work, place, table=table, pages=options.pages)
        signal("searched")
    for who in _who(work):
        await _search_deliveries(connection, work, who, batch_limit=options.batch_limit)
    async with connection.transaction():
        if await store.lock_work(connection, id=work.id):  # the log refuses changes for an erasure that has ended
            for who in _who(work):
                await _count(connection, work, "audit_log", await store.erase_audit(connection, **who))


async def _search_table(connection: Session, work: ErasureRun, place: ErasedColumns, *, table: str, pages: int) -> None:
    """Search page by page. A month that the archiver drops meanwhile is searched in its file."""
    page = 0
    with suppress(asyncpg.UndefinedTableError):
        while page < await archive_store.count_pages(connection, source_name=table):
            for who in _who(work):
                touched = await store.erase_pages(
                    connection,
                    table_name=table,
                    columns=list(place.columns),
                    keys=list(place.keys),
                    from_page=page,
                    to_page=page + pages,
                    **who,
                )
                await _count(connection, work, place.table, touched)
            page += pages


async def _search_deliveries(connection: Session, work: ErasureRun, who: dict[str, str], *, batch_limit: int) -> None:
    """Search deliveries to other recipients by id: rows of a queue move too often to be read page by page."""
    after: int | None = 0
    while after is not None:
        after, touched = await store.erase_delivery_batch(connection, after_id=after, batch_limit=batch_limit, **who)
        await _count(connection, work, "deliveries", touched)


async def _erase_archive(room: Room, options: ArchiveOptions, erasure_id: int, *, signal: Signal) -> None:
    """Rewrite file by file, in the order of ids; then the erasure is done and its address removed.

    After a damaged or missing file, or an unreachable store, the other files are rewritten, but the erasure is not
    done and its row names those files.
    """
    async with archive_session(room) as session:
        work = await store.find_work(session, id=erasure_id)
        if work is None or work.state is not ErasureState.ARCHIVE:
            return
        await _search_restored(session, work, options=options)
        problems = await _remove_spares(session, options=options)
        last = work.last_file_id
        for segment in await archive_store.list_segments(session, after_id=last):
            try:
                if segment.state in MAY_HAVE_FILE:
                    amount = await erase_file(session, segment, work, options=options, signal=signal)
                    await _count(session, work, "archive", amount)
            except FILE_PROBLEMS as error:
                problems.append(error)
            if not problems:
                await store.mark_file_erased(session, id=work.id, before_file_id=last, last_file_id=segment.id)
                last = segment.id
        await store.mark_waiting(session, id=work.id, waits_for=[str(problem) for problem in problems])
        if problems:
            raise problems[0]
        await _finish(session, work.id, last_file_id=last)


async def _remove_spares(session: Session, *, options: ArchiveOptions) -> list[Exception]:
    """Remove the spare files of killed erasures; returns the failures."""
    problems = list[Exception]()
    for segment_id, path in (await archive_store.list_spares(session)).items():
        try:
            await remove_spare(session, segment_id, path, options=options)
        except FILE_PROBLEMS as error:
            problems.append(error)
    return problems


async def _search_restored(session: Session, work: ErasureRun, *, options: ArchiveOptions) -> None:
    """Search months restored during the database part. A restore needs the lock that this session holds."""
    for table in await store.list_searched_tables(session, table_name="attempts"):
        if table.startswith("attempts_restored_"):
            await _erase_attempts(session, work, table=table)
    for place in PLACES:
        for table in await store.list_searched_tables(session, table_name=place.table):
            if not table.startswith(f"{place.table}_restored_"):
                continue
            if place.how is How.WITHIN:
                await _search_table(session, work, place, table=table, pages=options.pages)
            else:
                await _erase_equal_in(session, work, place, table=table)


async def _finish(session: Session, erasure_id: int, *, last_file_id: int) -> None:
    async with session.transaction():
        if not await store.mark_done(session, id=erasure_id, last_file_id=last_file_id):
            return  # requested again meanwhile: that run starts from the beginning
        done = await store.find_erasure(session, id=erasure_id)
        assert done is not None
        await record_audit(session, done.requested_by, "erasure.finish", f"erasure:{done.id}", after=done.counts)


async def _count(connection: Session, work: ErasureRun, name: str, amount: int) -> None:
    if amount:
        await store.add_count(connection, id=work.id, name=name, amount=amount)


def _who(work: ErasureRun) -> list[dict[str, str]]:
    return [{"address": spelling, "pseudonym": work.pseudonym} for spelling in work.spellings]
