"""`postroom backup` and `postroom restore`."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from postroom.archive.cli import Endpoint
from postroom.runtime.terminal import AsJson, actor, existing, in_room, load_settings, print_json, run, say

if TYPE_CHECKING:
    from postroom.backup.model import BackupManifest
    from postroom.settings import Settings


def backup(
    target: Annotated[
        str | None,
        typer.Argument(
            help="File or s3://bucket/prefix/name; default: a file in this folder, named after room and time."
        ),
    ] = None,
    *,
    verify: Annotated[bool, typer.Option(help="Restore it into a temporary server and compare.")] = True,
    check: Annotated[
        str | None, typer.Option("--check", help="Only verify an existing backup: a file or s3://….")
    ] = None,
    endpoint: Endpoint = None,
    as_json: AsJson = False,
) -> None:
    """Write the room into one file, and verify it by restoring it."""
    from postroom.backup.stores import make_backup_at

    if check is not None:
        _need(check)
        _tell("good", check, run(_check(load_settings(), check, endpoint)), as_json=as_json)
        return
    moment = datetime.now(UTC)

    def path_for(name: str) -> str:
        default = f"{name}-{moment:%Y%m%dT%H%M%SZ}.backup"
        return f"{target}{default}" if target is not None and target.endswith("/") else target or default

    made = in_room(
        lambda room: make_backup_at(
            room,
            path_for(room.name),
            actor=actor(),
            verify=verify,
            endpoint=endpoint or room.settings.archive_endpoint,
        )
    )
    _tell("written and verified" if verify else "written", path_for(made.room), made, as_json=as_json)


def restore(
    source: Annotated[str, typer.Argument(help="Backup with its manifest: a file or s3://bucket/prefix/name.")],
    *,
    room: Annotated[str | None, typer.Option("--as", help="New name of the room; default: its own.")] = None,
    endpoint: Endpoint = None,
    as_json: AsJson = False,
) -> None:
    """Restore a room from a backup. The room must not exist in the database."""
    _need(source)
    manifest = run(_restore(load_settings(), source, room, endpoint))
    name = room or manifest.room
    _tell(f"restored as {name}", source, replace(manifest, room=name), as_json=as_json)


def _need(source: str) -> None:
    """Reject a local file that does not exist; an object store is queried later."""
    if "://" not in source:
        existing(Path(source))


async def _check(settings: "Settings", source: str, endpoint: str | None) -> "BackupManifest":
    from postroom.backup.service import verify_backup
    from postroom.backup.stores import fetched_backup

    async with fetched_backup(source, endpoint=endpoint or settings.archive_endpoint) as local:
        return await verify_backup(local)


async def _restore(settings: "Settings", source: str, room: str | None, endpoint: str | None) -> "BackupManifest":
    from postroom.backup.service import restore_backup
    from postroom.backup.stores import fetched_backup
    from postroom.db.room import open_database

    async with (
        fetched_backup(source, endpoint=endpoint or settings.archive_endpoint) as local,
        open_database(settings) as (_, direct_url),
    ):
        return await restore_backup(direct_url, local, actor=actor(), room=room)


def _tell(what: str, path: str, manifest: "BackupManifest", *, as_json: bool) -> None:
    if as_json:
        print_json(
            {
                "file": path,
                **{name: getattr(manifest, name) for name in ("room", "made_at", "server")},
                "bytes": manifest.bytes,
                "rows": manifest.rows,
                "sha256": manifest.sha256,
            }
        )
    else:
        say(f"{what}: {path}, {manifest.rows} rows in {len(manifest.tables)} tables, {manifest.bytes} bytes")
