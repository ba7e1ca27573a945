"""The system checks of the app: `manage.py check`, and with `--database default` whether the room exists."""

from collections.abc import Sequence
from typing import Any

from django.conf import settings
from django.core import checks
from django.core.exceptions import ImproperlyConfigured
from django.db import connections

from postroom.dropins.django.options import database_alias, read_options, room_name
from postroom.dropins.django.room import find_missing

BACKEND = "postroom.dropins.django.EmailBackend"


def register() -> None:
    checks.register(check_settings, "postroom")
    checks.register(check_room, checks.Tags.database)


def check_settings(**_given: Any) -> list[Any]:
    """The settings fit together, and mail goes through Postroom."""
    try:
        read_options()
    except ImproperlyConfigured as error:
        return [checks.Error(str(error), id="postroom.E001")]
    found = []
    alias = database_alias()
    if alias is not None and connections[alias].vendor != "postgresql":
        problem = f"The database {alias!r} cannot hold a room, because it is not PostgreSQL."
        found.append(checks.Error(problem, hint="Set POSTROOM['URL'] and POSTROOM['KEY'].", id="postroom.E002"))
    if settings.EMAIL_BACKEND != BACKEND:
        problem = f"EMAIL_BACKEND is {settings.EMAIL_BACKEND}: mail does not go through Postroom."
        found.append(checks.Warning(problem, hint=f"Set EMAIL_BACKEND = {BACKEND!r}.", id="postroom.W001"))
    return found


def check_room(databases: Sequence[str] | None = None, **_given: Any) -> list[Any]:
    """The room exists. A warning: `migrate` runs this check before it makes the room."""
    alias = database_alias()
    if alias is None or alias not in (databases or ()) or connections[alias].vendor != "postgresql":
        return []
    missing = find_missing(connections[alias])
    if missing is None:
        return []
    hint = f"`manage.py migrate` creates it; POSTROOM['ROOM'] is {room_name()!r}."
    return [checks.Warning(missing.problem, hint=hint, id="postroom.W002")]
