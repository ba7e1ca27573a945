"""The errors of backup; the whole tree is drawn in `postroom.errors`."""

from postroom.errors import ConflictError, PostroomError


class RoomNotEmpty(ConflictError):
    """The room already exists; a backup is restored only into a new room."""


class BackupFailed(PostroomError):
    """The backup failed, or its verification did."""
