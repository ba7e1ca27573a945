"""The public URLs of rooms that one process serves. Pure.

The public URL of the process may have `{room}` in its host or in its path; without it, rooms are at `/rooms/{room}`
below it. In a host name `_` is written `-`, which no name of a room has.
"""

import re
from urllib.parse import urlsplit

PLACE = "{room}"
_NAME = r"(?P<room>[a-z_][a-z0-9_]{0,47})"
_LABEL = r"(?P<room>[a-z-][a-z0-9-]{0,47})"


class RoomAddress:
    """Makes the URL of a room, and finds the room of a request."""

    def __init__(self, base_url: str) -> None:
        self._url = base_url if PLACE in base_url else f"{base_url}/rooms/{PLACE}"
        parts = urlsplit(self._url)
        self._is_by_host = PLACE in parts.netloc
        pattern = parts.netloc if self._is_by_host else parts.path
        before, _, after = pattern.partition(PLACE)
        name = _LABEL if self._is_by_host else _NAME
        self._pattern = re.compile(
            re.escape(before) + name + re.escape(after) + ("" if self._is_by_host else "(?=/|$)")
        )

    def url_of(self, room: str) -> str:
        return self._url.replace(PLACE, room.replace("_", "-") if self._is_by_host else room)

    def find(self, host: str, path: str) -> tuple[str, str] | None:
        """The room of a request and the path within it; None if the request names no room."""
        if self._is_by_host:
            found = self._pattern.fullmatch(host.lower())
            return None if found is None else (found["room"].replace("-", "_"), path)
        found = self._pattern.match(path)
        return None if found is None else (found["room"], path[found.end() :] or "/")
