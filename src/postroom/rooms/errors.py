"""The errors of rooms; the whole tree is drawn in `postroom.errors`."""

from postroom.errors import NotFoundError


class ServerUnknown(NotFoundError):
    """POSTROOM_SERVERS has no server of this name."""
