"""Country and city of the address that a hit came from."""

from functools import lru_cache
from pathlib import Path
from typing import Any

from postroom.errors import SettingInvalid
from postroom.runtime.extra import extra_needed

_REMEMBERED = 8192  # addresses; one page view asks several times


class GeoDatabase:
    """Country and city of addresses, from a MaxMind database that the operator supplies."""

    def __init__(self, database: Path) -> None:
        with extra_needed("POSTROOM_GEOIP_DATABASE", "geoip"):
            import maxminddb

        try:
            self._reader = maxminddb.open_database(database)
        except (OSError, maxminddb.InvalidDatabaseError) as error:
            raise SettingInvalid("POSTROOM_GEOIP_DATABASE", f"cannot be read: {error}") from error
        self.find = lru_cache(maxsize=_REMEMBERED)(self._look)

    def close(self) -> None:
        self._reader.close()

    def _look(self, address: str) -> tuple[str | None, str | None]:
        try:
            found: Any = self._reader.get(address)
        except ValueError:  # an IPv6 address and a database with IPv4 only
            return None, None
        if not isinstance(found, dict):
            return None, None
        country = _inside(found, "country", "iso_code")
        return country, _inside(found, "city", "names", "en")


def nowhere(_address: str) -> tuple[str | None, str | None]:
    """Used without a database of places."""
    return None, None


def _inside(found: Any, *path: str) -> str | None:
    """The text at a path; None if the database does not have it."""
    for name in path:
        found = found.get(name) if isinstance(found, dict) else None
    return found if isinstance(found, str) else None
