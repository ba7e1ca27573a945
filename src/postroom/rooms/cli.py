"""`postroom rooms`: the rooms of all servers."""

import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from postroom.limits.cli import DailyQuota, Expires, FromDomain, Rate, read_limits
from postroom.runtime.terminal import AsJson, actor, load_settings, print_json, print_record, print_table, run, say

if TYPE_CHECKING:
    from postroom.rooms.lifecycle import RoomMigration
    from postroom.rooms.model import Discovery
    from postroom.rooms.service import Server

Result = TypeVar("Result")

rooms = typer.Typer()
Name = Annotated[str, typer.Argument(help="Name of the room.")]
Pattern = Annotated[str, typer.Argument(help="Name, or a pattern such as 'tenant_*'; several separated by commas.")]
OnServer = Annotated[str | None, typer.Option("--server", help="Name of the server in POSTROOM_SERVERS.")]
Backup = Annotated[
    bool, typer.Option("--backup/--no-backup", help="Back up a room with data before its tables change.")
]
After = Annotated[bool, typer.Option("--after", help="Finish an upgrade: also remove what only older processes used.")]
COLUMNS = ("name", "server", "state", "version", "bytes")


@rooms.command()
def limit(  # noqa: PLR0913 - one parameter per option
    name: Name,
    *,
    server: OnServer = None,
    expires: Expires = None,
    rate: Rate = None,
    daily_quota: DailyQuota = None,
    from_domain: FromDomain = None,
    as_json: AsJson = False,
) -> None:
    """Set limits of a room, or show them if no option sets one. An expired room accepts no mail."""
    from postroom.rooms.lifecycle import limit_room

    # A key of the room, even one with every scope, cannot: only the operator of the servers sets these limits.
    changes = read_limits(expires, rate, daily_quota, from_domain)
    limits, uses = on_servers(lambda servers: limit_room(servers, name, changes, server=server, actor=actor()))
    if as_json:
        print_json({**limits.columns, **{f"{use.holder}_today": use.day_used for use in uses}})
        return
    if limits.are_none:
        say(f"The room {name!r} has no limits.")
        return
    print_record(limits)
    for use in uses:
        say(f"{use.day_used} mails {'accepted' if use.holder == 'room' else 'sent'} today")


@rooms.command("list")
def list_rooms(pattern: Pattern = "*", *, as_json: AsJson = False) -> None:
    """List the rooms on all servers of POSTROOM_SERVERS. Exit 1 if a server does not respond."""
    from postroom.rooms.service import find_rooms

    found = on_servers(lambda servers: find_rooms(servers, pattern, inspecting=True))
    if as_json:
        print_json(found)
    elif found.rooms:
        print_table(COLUMNS, ([getattr(room, column) for column in COLUMNS] for room in found.rooms))
    else:
        say(f"No room matches {pattern!r}.")
    if _report_failures(found):
        raise typer.Exit(1)


@rooms.command()
def create(name: Name, *, server: OnServer = None) -> None:
    """Create a room. With several servers, --server chooses one."""
    from postroom.rooms.lifecycle import create_room

    async def created(servers: "Sequence[Server]") -> str:
        if server is None and len(servers) > 1:
            raise typer.BadParameter(f"choose one with --server: {', '.join(each.name for each in servers)}")
        on = server or servers[0].name
        await create_room(servers, name, on=on, actor=actor())
        return on

    say(f"Created room {name!r} on server {on_servers(created, creating=True)!r}.")


@rooms.command()
def migrate(pattern: Pattern, *, backup: Backup = True, after: After = False) -> None:
    """Migrate all matching rooms to this version. Exit 1 if a room or a server failed; the others are migrated."""
    from postroom.rooms.lifecycle import migrate_rooms

    done: list[RoomMigration] = []

    def report(result: "RoomMigration") -> None:
        done.append(result)
        _report_migration(result)

    found = on_servers(
        lambda servers: migrate_rooms(servers, pattern, actor=actor(), backup=backup, after=after, report=report)
    )
    if not done:
        say(f"No room matches {pattern!r}.")
    if _report_failures(found) or any(result.error for result in done):
        raise typer.Exit(1)


@rooms.command()
def drop(
    name: Name,
    *,
    server: OnServer = None,
    force: Annotated[bool, typer.Option("--force", help="Also with waiting deliveries.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for the name again.")] = False,
) -> None:
    """Drop a room with everything in it. It cannot be undone: the command asks for the name again."""
    from postroom.rooms.lifecycle import drop_room

    if not yes and typer.prompt("Type the name of the room to drop it") != name:
        raise typer.BadParameter("the names differ; nothing was dropped")
    dropped = on_servers(lambda servers: drop_room(servers, name, actor=actor(), server=server, force=force))
    say(f"Dropped room {name!r} on server {dropped.server!r}.")


@rooms.command()
def move(
    name: Name,
    *,
    to: Annotated[str | None, typer.Option("--to", help="Name of the new server in POSTROOM_SERVERS.")] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the closed room on the old server.")] = False,
    undo: Annotated[bool, typer.Option("--undo", help="Undo a move that was interrupted.")] = False,
) -> None:
    """Move a room to another server.

    While the rows are copied, everything that writes to the room fails with a temporary error. The same command
    continues a move that was interrupted.
    """
    from postroom.rooms.moving import move_room, undo_move

    if undo:
        place = on_servers(lambda servers: undo_move(servers, name, actor=actor()))
        say(f"The room {name!r} is ready on server {place!r}.")
        return
    if to is None:
        raise typer.BadParameter("choose the new server with --to")
    moved = on_servers(lambda servers: move_room(servers, name, to=to, actor=actor(), keep=keep))
    if moved is None:
        say(f"The room {name!r} is on server {to!r} already.")
        return
    say(f"Moved room {name!r} from server {moved.origin!r} to {to!r}.")
    if moved.roles:
        say(f"Grants are not moved. Grant the rights of these roles again: {', '.join(moved.roles)}.")


def on_servers(command: "Callable[[Sequence[Server]], Awaitable[Result]]", *, creating: bool = False) -> Result:
    """Run one command with the servers of the settings."""
    settings = load_settings()

    async def opened() -> Result:
        from postroom.rooms.service import open_servers

        async with open_servers(settings, creating=creating) as servers:
            return await command(servers)

    return run(opened())


def _report_migration(result: "RoomMigration") -> None:
    where = f"{result.room.name} on {result.room.server}"
    if result.plan is None:
        sys.stderr.write(f"postroom: {where}: {result.error}\n")
        return
    saved = f", backed up to {result.backup}" if result.backup else ""
    say(f"{where}: {len(result.plan.migrations)} migrations, {len(result.plan.functions)} functions{saved}")


def _report_failures(found: "Discovery") -> bool:
    """Print the servers that did not respond; returns True if there is one."""
    for failure in found.failures:
        sys.stderr.write(f"postroom: server {failure.server}: {failure.reason}\n")
    return bool(found.failures)
