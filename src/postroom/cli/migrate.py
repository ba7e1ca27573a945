"""`postroom migrate`: bring the room up to this version, or say what that would take."""

from typing import TYPE_CHECKING, Annotated

import typer

from postroom.rooms.cli import After, Backup
from postroom.runtime.terminal import AsJson, actor, load_settings, print_json, run, say

if TYPE_CHECKING:
    from postroom.db.migrate import MigrationPlan
    from postroom.settings import Settings


def migrate(
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be applied.")] = False,
    backup: Backup = True,
    after: After = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="List every file.")] = False,
    as_json: AsJson = False,
) -> None:
    """Bring the room's schema up to this version. Safe to run from several hosts at once."""
    settings = load_settings()
    plan, saved = run(_migrated(settings, dry_run=dry_run, backup=backup, after=after))
    names = [file.name for file in (*plan.migrations, *plan.functions)]
    if as_json:
        later = [file.name for file in plan.later]
        print_json({"room": settings.schema, "dry_run": dry_run, "files": names, "later": later, "backup": saved})
        return
    if saved:
        say(f"Backed up to {saved}; `postroom backup --check` verifies it.")
    done = "would apply" if dry_run else "applied"
    if verbose:
        for name in names:
            say(f"{done} {name}")
    if names:
        say(f"Room {settings.schema!r}: {done} {len(plan.migrations)} migrations, {len(plan.functions)} functions.")
    else:
        say(f"The room {settings.schema!r} is up to date.")
    if plan.later:
        say(f"{len(plan.later)} migrations wait: run `postroom migrate --after` when no older process is left.")


async def _migrated(
    settings: "Settings", *, dry_run: bool, backup: bool, after: bool
) -> "tuple[MigrationPlan, str | None]":
    """The files that were applied, or would be, and where the room was backed up before."""
    from postroom.db.room import open_database
    from postroom.rooms.lifecycle import migrate_room

    async with open_database(settings, creating=not dry_run) as (_, direct_url):
        return await migrate_room(direct_url, settings, actor=actor(), backup=backup, dry_run=dry_run, after=after)
