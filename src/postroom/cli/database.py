"""`postroom db-url`, `postroom psql` and `postroom schema`: the room in the hands of other programs."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from postroom.db.connection import current
from postroom.db.errors import DatabaseUnreachable
from postroom.db.iam import with_token
from postroom.db.url import for_programs, parameters_of, with_parameter
from postroom.errors import BadInput
from postroom.runtime.terminal import run, say
from postroom.settings import Settings, read_settings


def room_url(url: str, room: str) -> str:
    """A URL whose sessions find the room's tables without naming its schema."""
    # `options` may be there already; libpq takes several switches separated by spaces.
    return with_parameter(url, "options", f"{parameters_of(url).get('options', '')} -csearch_path={room}".strip())


def db_url(
    *, room: Annotated[bool, typer.Option("--room", help="With the room's schema as its search path.")] = False
) -> None:
    """Print the URL of the database for other programs. It holds the password."""
    from postroom.embedded.server import running_url

    settings = read_settings()
    url = settings.database_direct_url or settings.database_url
    if url is None:
        url = run(running_url(settings.data_dir.absolute()))
    if url is None:
        raise DatabaseUnreachable("The embedded server is not running; start it with `postroom up`.")
    url = run(with_token(url))
    say(room_url(url, settings.schema) if room else url)


def psql(context: typer.Context) -> None:
    """Open psql in the room; everything after `psql` is passed on to it."""
    from postroom.embedded.binaries import find_client

    settings = read_settings()
    url = settings.database_direct_url or settings.database_url
    if url is None:
        sys.exit(run(_with_embedded(settings, context.args)))
    url = run(with_token(url))
    command, environment = psql_command(find_client("psql", url), room_url(url, settings.schema), context.args)
    sys.stdout.flush()
    os.execve(command[0], command, environment)  # noqa: S606 - a path we found, and no shell


async def _with_embedded(settings: Settings, arguments: Sequence[str]) -> int:
    """Keep the embedded server running while psql does."""
    from postroom.db.room import open_database
    from postroom.embedded.binaries import find_binaries

    program = find_binaries().tool("psql")
    async with open_database(settings) as (url, _):
        command, environment = psql_command(program, room_url(current(url), settings.schema), arguments)
        # Ctrl-C is psql's: it cancels a query. A handler of ours, unlike an ignored signal, is not passed on to it.
        before = signal.signal(signal.SIGINT, lambda *_: None)
        try:
            child = subprocess.Popen(command, env=environment)  # noqa: S603, ASYNC220 - a path we found
            return await asyncio.to_thread(child.wait)
        finally:
            signal.signal(signal.SIGINT, before)


def psql_command(program: Path, url: str, arguments: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Arguments and environment of psql; the password goes into the latter, because everybody sees the former."""
    address, password = for_programs(url)
    given = {} if password is None else {"PGPASSWORD": password}
    return [str(program), "-d", address, *arguments], {**os.environ, **given}


def schema(
    *,
    events: Annotated[
        bool, typer.Option("--events", help="Only the event store: events, commands and their functions.")
    ] = False,
    seed_names: Annotated[
        bool, typer.Option("--seed-names", help="Only a schema of views for a room that exists, <room>_seed_names.")
    ] = False,
) -> None:
    """Print the SQL that creates the room, for psql or a migration tool of your own. Nothing is connected to."""
    from postroom.db.install import EVENT_STORE, room_script, seed_names_script

    if events and seed_names:
        raise BadInput.of("--seed-names", "cannot be combined with --events")
    room = read_settings().schema
    sys.stdout.write(seed_names_script(room) if seed_names else room_script(room, only=EVENT_STORE if events else ()))
