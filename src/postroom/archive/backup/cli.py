"""`postroom backup` and `postroom restore`."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from postroom.runtime.terminal import AsJson, actor, in_room, load_settings, print_json, run, say

if TYPE_CHECKING:
    from postroom.archive.backup.model import BackupManifest
    from postroom.settings import Settings


def backup(
    target: Annotated[Path | None, typer.Argument(help="The file; named after room and time unless given.")] = None,
    *,
    verify: Annotated[bool, typer.Option(help="Restore it into a scratch server and compare.")] = True,
    check: Annotated[Path | None, typer.Option("--check", help="Only verify a backup that is there.")] = None,
    as_json: AsJson = False,
) -> None:
    """Write the room into one file, and prove that it comes back."""
    from postroom.archive.backup.service import make_backup, verify_backup

    if check is not None:
        _tell("good", check, run(verify_backup(check)), as_json=as_json)
        return
    moment = datetime.now(UTC)

    def path_for(name: str) -> Path:
        return target or Path(f"{name}-{moment:%Y%m%dT%H%M%SZ}.backup")

    made = in_room(lambda room: make_backup(room, path_for(room.name), actor=actor(), verify=verify))
    _tell("written and verified" if verify else "written", path_for(made.room), made, as_json=as_json)


def restore(
    source: Annotated[Path, typer.Argument(help="A file that `postroom backup` made, with its manifest beside it.")],
    *,
    room: Annotated[str | None, typer.Option("--as", help="The room's new name; its own unless given.")] = None,
    as_json: AsJson = False,
) -> None:
    """Bring a room back from a backup. It must not exist in the database yet."""
    manifest = run(_restore(load_settings(), source, room))
    name = room or manifest.room
    _tell(f"restored as {name}", source, replace(manifest, room=name), as_json=as_json)


async def _restore(settings: "Settings", source: Path, room: str | None) -> "BackupManifest":
    from postroom.archive.backup.service import restore_backup
    from postroom.db.room import open_database

    async with open_database(settings, creating=True) as (_, direct_url):
        return await restore_backup(direct_url, source, actor=actor(), room=room)


def _tell(what: str, path: Path, manifest: "BackupManifest", *, as_json: bool) -> None:
    if as_json:
        print_json(
            {
                "file": str(path),
                **{name: getattr(manifest, name) for name in ("room", "made_at", "server")},
                "bytes": manifest.bytes,
                "rows": manifest.rows,
                "sha256": manifest.sha256,
            }
        )
    else:
        say(f"{what}: {path}, {manifest.rows} rows in {len(manifest.tables)} tables, {manifest.bytes} bytes")
