"""`postroom rooms`: the rooms of all servers."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from postroom.runtime.terminal import AsJson, load_settings, print_json, print_table, run, say

if TYPE_CHECKING:
    from postroom.rooms.model import Discovery
    from postroom.settings import Settings

rooms = typer.Typer()
Pattern = Annotated[str, typer.Argument(help="Name, or a pattern such as 'tenant_*'; several separated by commas.")]
COLUMNS = ("name", "server", "state", "version", "bytes")


@rooms.command("list")
def list_rooms(pattern: Pattern = "*", *, as_json: AsJson = False) -> None:
    """List the rooms on all servers of POSTROOM_SERVERS. Exit 1 if a server does not respond."""
    found = run(_found(load_settings(), pattern))
    if as_json:
        print_json(found)
    elif found.rooms:
        print_table(COLUMNS, ([getattr(room, column) for column in COLUMNS] for room in found.rooms))
    else:
        say(f"No room matches {pattern!r}.")
    _report_failures(found)


async def _found(settings: "Settings", pattern: str) -> "Discovery":
    from postroom.rooms.service import find_rooms, open_servers

    async with open_servers(settings) as servers:
        return await find_rooms(servers, pattern, inspecting=True)


def _report_failures(found: "Discovery") -> None:
    for failure in found.failures:
        sys.stderr.write(f"postroom: server {failure.server}: {failure.reason}\n")
    if found.failures:
        raise typer.Exit(1)
