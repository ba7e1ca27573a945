"""The setting `POSTROOM` of a site."""

from collections.abc import Mapping
from typing import Any

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

_KNOWN = frozenset({"DASHBOARD", "DATABASE", "KEY", "ROOM", "SOURCE", "TIMEOUT", "URL"})


def read_options() -> Mapping[str, Any]:
    """The site's options; `ImproperlyConfigured` names one that is unknown or missing."""
    chosen: Mapping[str, Any] = getattr(settings, "POSTROOM", {})
    if unknown := sorted(set(chosen) - _KNOWN):
        raise ImproperlyConfigured(f"POSTROOM has unknown settings: {', '.join(unknown)}.")
    if "URL" in chosen and "KEY" not in chosen:
        raise ImproperlyConfigured("POSTROOM['KEY'], an API key, is required with POSTROOM['URL'].")
    return chosen


def room_name() -> str:
    """The schema of the room in the site's database."""
    return str(getattr(settings, "POSTROOM", {}).get("ROOM", "postroom"))


def database_alias() -> str | None:
    """The alias of the database that has the room; None if the site sends over HTTP."""
    chosen = getattr(settings, "POSTROOM", {})
    return None if "URL" in chosen else chosen.get("DATABASE", "default")
