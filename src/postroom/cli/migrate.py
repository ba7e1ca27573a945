"""`postroom migrate`: bring the room up to this version, or say what that would take."""

from typing import Annotated

import typer

from postroom.runtime.terminal import AsJson, load_settings, print_json, run, say


def migrate(
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be applied.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="List every file.")] = False,
    as_json: AsJson = False,
) -> None:
    """Bring the room's schema up to this version. Safe to run from several hosts at once."""
    from postroom.app import settle_room
    from postroom.db.migrate import Plan
    from postroom.db.migrate import migrate as apply
    from postroom.db.room import open_database

    settings = load_settings()

    async def migrated() -> Plan:
        async with open_database(settings, creating=not dry_run) as (_, direct_url):
            done = await apply(direct_url, settings.schema, dry_run=dry_run)
            if not dry_run:
                await settle_room(direct_url, settings)
            return done

    plan = run(migrated())
    names = [file.name for file in (*plan.migrations, *plan.functions)]
    if as_json:
        print_json({"room": settings.schema, "dry_run": dry_run, "files": names})
        return
    done = "would apply" if dry_run else "applied"
    if verbose:
        for name in names:
            say(f"{done} {name}")
    if names:
        say(f"Room {settings.schema!r}: {done} {len(plan.migrations)} migrations, {len(plan.functions)} functions.")
    else:
        say(f"The room {settings.schema!r} is up to date.")
