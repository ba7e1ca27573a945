"""`postroom db-url` and `postroom psql`: the room in the hands of other programs."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

import typer

from postroom.db.url import joined, without_password
from postroom.errors import DatabaseUnreachable
from postroom.runtime.terminal import run, say
from postroom.settings import Settings, read_settings


def room_url(url: str, room: str) -> str:
    """A URL whose sessions find the room's tables without naming its schema."""
    parts = urlsplit(url)
    # `options` may be there already; libpq takes several switches separated by spaces.
    parameters = dict(parse_qsl(parts.query, keep_blank_values=True))
    parameters["options"] = f"{parameters.get('options', '')} -csearch_path={room}".strip()
    return joined(parts._replace(query=urlencode(parameters, quote_via=quote)))


def db_url() -> None:
    """Print a URL of the database with the room on its search path. It holds the password."""
    from postroom.db.embedded import running_url

    settings = read_settings()
    url = settings.database_direct_url or settings.database_url
    if url is None:
        url = run(running_url(settings.data_dir.absolute()))
    if url is None:
        raise DatabaseUnreachable("The embedded server is not running; start it with `postroom up`.")
    say(room_url(url, settings.schema))


def psql(context: typer.Context) -> None:
    """Open psql in the room; everything after `psql` is passed on to it."""
    from postroom.db.binaries import find_binaries

    settings = read_settings()
    program = find_binaries().tool("psql")
    url = settings.database_direct_url or settings.database_url
    if url is None:
        sys.exit(run(_with_embedded(settings, program, context.args)))
    command, environment = psql_command(program, room_url(url, settings.schema), context.args)
    sys.stdout.flush()
    os.execve(program, command, environment)  # noqa: S606 - a path we found, and no shell


async def _with_embedded(settings: Settings, program: Path, arguments: Sequence[str]) -> int:
    """Keep the embedded server running while psql does."""
    from postroom.db.room import open_database

    async with open_database(settings) as (url, _):
        command, environment = psql_command(program, room_url(url, settings.schema), arguments)
        # Ctrl-C is psql's: it cancels a query. A handler of ours, unlike an ignored signal, is not passed on to it.
        before = signal.signal(signal.SIGINT, lambda *_: None)
        try:
            child = subprocess.Popen(command, env=environment)  # noqa: S603, ASYNC220 - a path we found
            return await asyncio.to_thread(child.wait)
        finally:
            signal.signal(signal.SIGINT, before)


def psql_command(program: Path, url: str, arguments: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Arguments and environment of psql; the password goes into the latter, because everybody sees the former."""
    address, password = without_password(url)
    given = {} if password is None else {"PGPASSWORD": password}
    return [str(program), "-d", address, *arguments], {**os.environ, **given}
