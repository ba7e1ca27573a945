"""Backups in a folder or a bucket: made on a schedule or before a migration, deleted when enough newer ones exist.

A backup is made and verified on this machine, then stored; the copy in a bucket is downloaded and its checksum
compared. The manifest is stored last: a backup without one is incomplete and ignored.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Self

import structlog

from postroom.archive.objects import Objects, open_objects
from postroom.backup import store
from postroom.backup.model import BackupManifest
from postroom.backup.service import check_file, make_backup, manifest_path, write_backup
from postroom.db.connection import Url
from postroom.db.pool import connected
from postroom.db.room import Room
from postroom.runtime.clock import Clock, database_time
from postroom.settings import Settings

_log = structlog.get_logger()

BEFORE_MIGRATE = "before-migrate"
MANIFEST = ".manifest.json"
WRITTEN_BY_MIGRATIONS = (
    "migrations",
    "admin_notices",
    "archive_room",
    "busy_jobs",
    "event_clock",
    "jobs",
    "recorded_facts",
    "stats_cursor",
    "template_versions",
    "templates",
)
"""Tables that have rows in a new room, built-in templates included; a test compares the list with one."""

_BUCKET = "s3://"
_MOMENT = "%Y%m%dT%H%M%SZ"
_STAMP = re.compile(r"-(\d{8}T\d{6}Z)\.backup$")


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupOptions:
    """The store, interval and number of scheduled backups."""

    url: str | None = None  # None: no scheduled backups
    endpoint: str | None = None
    interval: timedelta = timedelta(days=7)
    keep: int = 4

    @classmethod
    def of(cls, settings: Settings) -> Self:
        return cls(
            url=settings.backup_url,
            endpoint=settings.archive_endpoint,
            interval=settings.backup_interval,
            keep=settings.backup_keep,
        )


@dataclass(frozen=True, slots=True)
class StoredBackup:
    """A finished backup in the room's store."""

    path: str
    made_at: datetime
    is_scheduled: bool  # False: made before a migration


def is_bucket(place: str) -> bool:
    return place.startswith(_BUCKET)


async def make_backup_at(
    room: Room, target: str, *, actor: str, verify: bool = True, endpoint: str | None = None
) -> BackupManifest:
    """Make a backup at a local path or at `s3://bucket/prefix/name`, where no file may exist."""
    if not is_bucket(target):
        return await make_backup(room, Path(target), actor=actor, verify=verify)
    base, _, name = target.rpartition("/")
    objects = open_objects(base, endpoint=endpoint)
    return await _store(objects, name, lambda local: make_backup(room, local, actor=actor, verify=verify))


@asynccontextmanager
async def fetched_backup(source: str, *, endpoint: str | None = None) -> AsyncIterator[Path]:
    """A local copy of a backup and its manifest; one in a bucket is downloaded for the duration of the block."""
    if not is_bucket(source):
        yield Path(source)
        return
    base, _, name = source.rpartition("/")
    objects = open_objects(base, endpoint=endpoint)
    with TemporaryDirectory(prefix="postroom-backup-") as directory:
        local = Path(directory) / name
        await objects.fetch(name, local)
        await objects.fetch(name + MANIFEST, manifest_path(local))
        yield local


async def back_up_if_due(room: Room, options: BackupOptions, *, actor: str, clock: Clock = database_time) -> str | None:
    """Make the scheduled backup if the newest one is older than the interval; returns its path.

    Any number of processes may call this; the one that gets the lock makes the backup.
    """
    if options.url is None:
        return None
    async with connected(room.direct_url, room.name) as session:
        if not await store.try_backup_lock(session):
            return None
        folder = await store.find_folder(session)
        objects, now = open_objects(options.url, endpoint=options.endpoint), clock() or datetime.now(UTC)
        finished = _finished(await objects.paths_in(folder))
        if finished and _made_at(finished[-1]) + options.interval > now:
            return None
        path = f"{folder}/{_name(room.name, now)}"
        made = await _store(objects, path, lambda local: make_backup(room, local, actor=actor))
        _log.info("backup_made", path=path, rows=made.rows, bytes=made.bytes)
        await _delete_old(objects, folder, keep=options.keep)
        return path


async def list_backups(room: Room) -> list[StoredBackup]:
    """The finished backups of a room, newest first: the scheduled ones, and those made before migrations."""
    folder = await store.find_folder(room.pool)
    objects = _open_store(room.settings)
    paths = [*await objects.paths_in(folder), *await objects.paths_in(BEFORE_MIGRATE)]
    ours = (path for path in _finished(paths) if path.startswith((f"{folder}/", f"{BEFORE_MIGRATE}/{room.name}-")))
    found = (StoredBackup(path, _made_at(path), is_scheduled=path.startswith(f"{folder}/")) for path in ours)
    return sorted(found, key=lambda each: each.made_at, reverse=True)


async def back_up_before_migrating(url: Url, settings: Settings) -> str | None:
    """Back up a room with data, unverified, before its schema changes; returns the path of the backup."""
    async with connected(url, settings.schema) as session:
        if not await store.holds_data(session, name=settings.schema, written_by_migrations=WRITTEN_BY_MIGRATIONS):
            return None
    path = f"{BEFORE_MIGRATE}/{_name(settings.schema, datetime.now(UTC))}"
    await _store(_open_store(settings), path, lambda local: write_backup(url, settings.schema, local, verify=False))
    return f"{_place(settings).rstrip('/')}/{path}"


def _place(settings: Settings) -> str:
    return settings.backup_url or str(settings.data_dir.absolute() / "backups")


def _open_store(settings: Settings) -> Objects:
    return open_objects(_place(settings), endpoint=settings.archive_endpoint)


async def _store(objects: Objects, path: str, make: Callable[[Path], Awaitable[BackupManifest]]) -> BackupManifest:
    """Claim the path, make the backup locally, store it, and compare the stored file with its checksum."""
    await objects.claim(path)
    with TemporaryDirectory(prefix="postroom-backup-") as directory:
        local, again = Path(directory) / path.rpartition("/")[2], Path(directory) / "again"
        try:
            manifest = await make(local)
            await objects.put(path, local)
            await objects.fetch(path, again)
            await check_file(again, manifest)
            await objects.put(path + MANIFEST, manifest_path(local))
        except BaseException:
            await asyncio.shield(objects.delete(path))
            raise
    return manifest


async def _delete_old(objects: Objects, folder: str, *, keep: int) -> None:
    """Delete all but the newest backups, and incomplete ones; the manifest first, so that half a backup has none."""
    paths = await objects.paths_in(folder)
    finished = _finished(paths)
    kept = set(finished[-keep:])
    for path in (each for each in paths if _STAMP.search(each) and each not in kept and each < finished[-1]):
        await objects.delete(path + MANIFEST)
        await objects.delete(path)


def _finished(paths: list[str]) -> list[str]:
    """Backups that have a manifest, oldest first."""
    there = set(paths)
    return sorted(path for path in paths if _STAMP.search(path) and path + MANIFEST in there)


def _name(room: str, moment: datetime) -> str:
    return f"{room}-{moment.astimezone(UTC).strftime(_MOMENT)}.backup"


def _made_at(path: str) -> datetime:
    found = _STAMP.search(path)
    assert found is not None
    return datetime.strptime(found[1], _MOMENT).replace(tzinfo=UTC)
