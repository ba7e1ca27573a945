"""The errors of rooms; the whole tree is drawn in `postroom.errors`."""

from postroom.db.errors import DatabaseError
from postroom.errors import ConflictError, NotFoundError


class ServerUnknown(NotFoundError):
    """POSTROOM_SERVERS has no server of this name."""


class RoomNotFound(NotFoundError):
    """There is no such room on any server."""


class ServerUnreachable(DatabaseError):
    """A server does not respond, so it is unknown whether it has the room."""


class RoomNotReady(DatabaseError):
    """The room is moving, being restored, or on several servers."""


class RoomExists(ConflictError):
    """A room of this name exists."""


class MoveUnfinished(ConflictError):
    """The room is moving; finish that move or undo it."""


class DeliveriesWaiting(ConflictError):
    """The room has waiting deliveries."""
