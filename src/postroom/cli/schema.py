"""`postroom schema`: the room as one file of SQL."""

import sys
from typing import Annotated

import typer


def schema(
    *,
    events: Annotated[
        bool, typer.Option("--events", help="Only the event store: events, commands and their functions.")
    ] = False,
) -> None:
    """Print the SQL that creates the room, for psql or a migration tool of your own. Nothing is connected to."""
    from postroom.db.install import EVENT_STORE, room_script
    from postroom.settings import read_settings

    sys.stdout.write(room_script(read_settings().schema, only=EVENT_STORE if events else ()))
