"""The errors of db; the whole tree is drawn in `postroom.errors`."""

from postroom.errors import PostroomError


class DatabaseError(PostroomError):
    """The database does not match this version of Postroom."""


class DatabaseNewer(DatabaseError):
    """The database was migrated by a later version of Postroom; upgrade this process."""


class DatabaseUnreachable(DatabaseError):
    """The database does not respond."""


class MigrationChanged(DatabaseError):
    """A migration was edited after it was applied."""


class MigrationPending(DatabaseError):
    """The database lacks migrations; run `postroom migrate`."""


class OldProcessRuns(DatabaseError):
    """Processes of an older release still run on the room; stop them, then migrate."""


class RoomMissing(DatabaseError):
    """There is no room. Run `postroom up` to create one, or set POSTROOM_DATABASE_URL."""
