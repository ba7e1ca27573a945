"""`manage.py postroom …`: a command of Postroom on the room of the site's database."""

import os
import sys
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote, urlencode

from django.core.management.base import BaseCommand, CommandError
from django.db import connections

from postroom.dropins.django.options import database_alias, room_name

_TLS = ("sslmode", "sslrootcert", "sslcert", "sslkey")


class RoomCommand(BaseCommand):  # type: ignore[misc] # Django has no types of its own
    help = "Run a command of Postroom on the room of this site: manage.py postroom migrate"

    def run_from_argv(self, argv: Sequence[str]) -> None:
        """Replace this process: options, output and exit code are those of `postroom`."""
        environment = {**room_environment(), **os.environ}
        sys.stdout.flush()
        os.execve(sys.executable, [sys.executable, "-m", "postroom.cli", *argv[2:]], environment)  # noqa: S606 - no shell

    def handle(self, *_arguments: Any, **_options: Any) -> None:
        raise CommandError("Run it from the command line: manage.py postroom migrate")


Command = RoomCommand  # the name that Django looks for


def room_environment() -> dict[str, str]:
    """The settings that lead Postroom to the site's room; the environment may give others."""
    alias = database_alias()
    if alias is None:
        raise SystemExit("POSTROOM['URL'] is set: run `postroom` where the room is.")
    chosen = connections[alias].settings_dict
    login = ":".join(quote(str(part), safe="") for part in (chosen["USER"], chosen["PASSWORD"]) if part)
    host = quote(chosen["HOST"] or "localhost", safe="[]:,.")
    port = f":{chosen['PORT']}" if chosen["PORT"] else ""
    parameters = urlencode({name: value for name, value in chosen["OPTIONS"].items() if name in _TLS})
    url = f"postgresql://{login}{'@' if login else ''}{host}{port}/{quote(str(chosen['NAME']), safe='')}"
    return {"POSTROOM_DATABASE_URL": f"{url}?{parameters}" if parameters else url, "POSTROOM_SCHEMA": room_name()}
