"""Make, verify and restore backups.

Verification, and a restore under another name, use a temporary server: that needs no privilege on the real server,
puts no load on it, and is another cluster, as after a disaster.

A restore is complete when its cursors are corrected. Until then the room has a table `restoring`, which keeps every
other process out; the same restore, started again, continues a killed one.
"""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from postroom.archive.parquet import file_sha256
from postroom.archive.store import keep, settle
from postroom.backup import programs, store
from postroom.backup.errors import BackupFailed, RoomNotEmpty
from postroom.backup.model import BackupManifest, TableCount, differences
from postroom.db.connection import Url
from postroom.db.migrate import migrate
from postroom.db.pool import connected, quote_identifier
from postroom.db.room import Room
from postroom.db.settings import parse_schema
from postroom.embedded.server import EmbeddedServer, ServerOptions
from postroom.errors import BadInput
from postroom.events.audit import record_audit
from postroom.events.store import adopt_restored_events
from postroom.runtime.loop import Signal, unheard


async def make_backup(room: Room, target: Path, *, actor: str, verify: bool = True) -> BackupManifest:
    """Write the room into a file with its manifest beside it, and verify it."""
    manifest = await write_backup(room.direct_url, room.name, target, verify=verify)
    after = {"bytes": manifest.bytes, "rows": manifest.rows, "verified": verify, "sha256": manifest.sha256}
    await record_audit(room.pool, actor, "backup.make", f"room:{room.name}", after=after)
    return manifest


async def write_backup(url: Url, name: str, target: Path, *, verify: bool = True) -> BackupManifest:
    """Write a backup without an audit entry, because the room may have an older schema."""
    if await asyncio.to_thread(target.exists):
        raise BackupFailed(f"{target} already exists; choose another name.")
    fresh = target.with_name(f".{target.name}.unfinished")
    try:
        await asyncio.to_thread(
            _write_private, fresh, b""
        )  # pg_dump writes into the existing file, which has mode 0600
        manifest = await _dump(url, name, fresh)
        if verify:
            await _prove(fresh, manifest)
        await asyncio.to_thread(_publish, fresh, target, manifest)
    finally:
        await asyncio.to_thread(fresh.unlink, missing_ok=True)
    return manifest


async def verify_backup(source: Path) -> BackupManifest:
    """Restore a backup into a temporary server and compare it with its manifest; raises `BackupFailed`."""
    manifest = await read_manifest(source)
    await _prove(source, manifest)
    return manifest


async def restore_backup(
    url: Url, source: Path, *, actor: str, room: str | None = None, is_move: bool = False, signal: Signal = unheard
) -> BackupManifest:
    """Restore a room into the database at `url`, under its own name or another; it must not exist there.

    In a move the original is closed: its rows are compared with the restored ones, and its archive stays its own.
    """
    manifest = await read_manifest(source)
    name = manifest.room if room is None else _checked_name(room)
    await check_file(source, manifest)
    is_made, is_empty = await _begin_restore(url, name, manifest.sha256)
    if is_empty:
        signal("begun")
        try:
            if name == manifest.room:
                await programs.restore(url, name, source)
            else:
                await _restore_renamed(url, name, source, manifest)
        except Exception:
            await _abandon(url, name, drop=is_made)
            raise
    if is_move:
        _compare(manifest, await _counts(url, name))
    signal("restored")
    await _renew_functions(url, name)  # a dump has no privileges; the function files grant them
    signal("migrated")
    await _go_on(url, name, actor=actor, source=source, is_move=is_move)
    return manifest


async def read_manifest(source: Path) -> BackupManifest:
    """The manifest beside a backup; raises `BackupFailed` if it is missing."""
    manifest = manifest_path(source)
    if not await asyncio.to_thread(source.exists):
        raise BackupFailed(f"{source} does not exist.")
    try:
        return msgspec.json.decode(await asyncio.to_thread(manifest.read_bytes), type=BackupManifest)
    except FileNotFoundError as error:
        raise BackupFailed(
            f"{source} is not a backup of Postroom, or its manifest {manifest.name} was not copied with it."
        ) from error
    except (OSError, msgspec.MsgspecError) as error:
        raise BackupFailed(f"{manifest} is not the manifest of a backup: {error}") from error


def manifest_path(source: Path) -> Path:
    return source.with_name(source.name + ".manifest.json")


async def _dump(url: Url, name: str, target: Path) -> BackupManifest:
    """The dump and its counts use one snapshot, so concurrent changes do not matter."""
    async with connected(url, name) as session, session.transaction(isolation="repeatable_read", readonly=True):
        snapshot = await store.export_snapshot(session)
        await programs.dump(url, name, target, snapshot=snapshot)
        facts = await store.describe_room(session)
        tables = await store.list_table_counts(session)
    size, checksum = await asyncio.to_thread(lambda: (target.stat().st_size, file_sha256(target)))
    return BackupManifest(room=name, bytes=size, sha256=checksum, tables=tables, **facts)


async def _prove(source: Path, manifest: BackupManifest) -> None:
    await check_file(source, manifest)
    async with _scratch_server() as url:
        await _make_room(url, manifest.room)
        await programs.restore(url, manifest.room, source)
        _compare(manifest, await _counts(url, manifest.room))


async def _restore_renamed(url: Url, name: str, source: Path, manifest: BackupManifest) -> None:
    """Rename the room in a temporary server first: a dump can be restored only under its original name."""
    async with _scratch_server() as scratch:
        await _make_room(scratch, manifest.room)
        await programs.restore(scratch, manifest.room, source)
        _compare(manifest, await _counts(scratch, manifest.room))
        async with connected(scratch, manifest.room) as session:
            await session.execute(f"ALTER SCHEMA {quote_identifier(manifest.room)} RENAME TO {quote_identifier(name)}")
        await _renew_functions(scratch, name)
        with TemporaryDirectory(prefix="postroom-restore-") as directory:
            renamed = Path(directory) / "renamed.backup"
            await programs.dump(scratch, name, renamed)
            await programs.restore(url, name, renamed)


async def _renew_functions(url: Url, name: str) -> None:
    async with connected(url, name) as session:
        await store.forget_functions(session)
    await migrate(url, name)


async def _go_on(url: Url, name: str, *, actor: str, source: Path, is_move: bool) -> None:
    """Correct cursors that count transactions of another cluster, or of a later past, before they are used."""
    async with connected(url, name) as session, session.transaction():
        await store.end_restore(session)
        if is_move:
            await keep(session)
        await settle(session)  # decides whether the archive's files belong to this room
        await adopt_restored_events(session, force=True)
        waiting = await store.adopt_restored_tokens(session)
        after = {"file": source.name, "tokens_waiting": waiting}
        await record_audit(session, actor, "backup.restore", f"room:{name}", after=after)


async def _make_room(url: Url, name: str) -> bool:
    """Create an empty schema for the dump, or accept an existing empty one. Returns True if it was created."""
    async with connected(url, name) as session:
        objects = await store.count_objects(session, name=name)
        if objects:
            raise RoomNotEmpty(
                f"The room {name!r} exists; restore into another database, or under another name with --as."
            )
        if objects is None:
            await session.execute(f"CREATE SCHEMA {quote_identifier(name)}")
        return objects is None


async def _begin_restore(url: Url, name: str, sha256: str) -> tuple[bool, bool]:
    """Mark the room as being restored. Returns whether its schema was created, and whether it is still empty.

    It is not empty if a killed restore had already restored its rows.
    """
    is_made = False
    async with connected(url, name) as session:
        marked = await store.find_restore(session, name=name)
        if marked is None:
            is_made = await _make_room(url, name)
            await session.execute(f"CREATE TABLE restoring (); COMMENT ON TABLE restoring IS '{sha256}'")
        elif marked != sha256:
            raise RoomNotEmpty(
                f"The room {name!r} is being restored from another file; finish that restore, or drop the schema."
            )
        return is_made, await store.count_objects(session, name=name) == 1


async def _abandon(url: Url, name: str, *, drop: bool) -> None:
    """Remove the mark of a failed restore; pg_restore itself leaves nothing, because it is one transaction."""
    async with connected(url, name) as session:
        if await store.count_objects(session, name=name) == 1:
            await store.end_restore(session)
            if drop:
                await session.execute(f"DROP SCHEMA {quote_identifier(name)}")


def _checked_name(room: str) -> str:
    if room == "public":
        raise BadInput.of("as", "must not be public, which every database has")
    with BadInput.naming("as"):
        return parse_schema(room)


async def _counts(url: Url, name: str) -> tuple[TableCount, ...]:
    async with connected(url, name) as session:
        return await store.list_table_counts(session)


async def check_file(source: Path, manifest: BackupManifest) -> None:
    """Raise `BackupFailed` unless the file has the checksum of its manifest."""
    try:
        found = await asyncio.to_thread(file_sha256, source)
    except OSError as error:
        raise BackupFailed(f"{source} cannot be read: {error.strerror}") from error
    if found != manifest.sha256:
        raise BackupFailed(f"{source.name} is damaged: its checksum differs from its manifest.")


def _compare(manifest: BackupManifest, found: tuple[TableCount, ...]) -> None:
    if different := differences(manifest.tables, found):
        raise BackupFailed(f"The restored backup differs from its manifest: {'; '.join(different[:5])}.")


def _publish(fresh: Path, target: Path, manifest: BackupManifest) -> None:
    """Publish the manifest first, so that a backup under its final name always has one."""
    beside = manifest_path(target)
    _write_private(beside, msgspec.json.format(msgspec.json.encode(manifest)))
    for path in (beside, fresh):
        handle = os.open(path, os.O_RDONLY)
        os.fsync(handle)
        os.close(handle)
    fresh.replace(target)


def _write_private(path: Path, content: bytes) -> None:
    """Write a new file with mode 0600, replacing one that a killed backup left."""
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)


@asynccontextmanager
async def _scratch_server() -> AsyncIterator[str]:
    with TemporaryDirectory(prefix="postroom-scratch-") as directory:
        async with EmbeddedServer(Path(directory) / "data", ServerOptions(fsync=False)) as server:
            yield server.url
