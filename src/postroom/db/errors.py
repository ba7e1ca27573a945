"""The errors of db; the whole tree is drawn in `postroom.errors`."""

from collections.abc import Sequence

from postroom.errors import PostroomError

_SHOWN = 5  # rooms; a database may have thousands


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


class RoomMissing(MigrationPending):
    """There is no room. Run `postroom up` to create one, or set POSTROOM_DATABASE_URL."""

    def __init__(self, problem: str | None = None, advice: str = "") -> None:
        super().__init__(f"{problem} {advice}" if problem else None)
        self.problem, self.advice = problem or self.message, advice

    @classmethod
    def named(cls, room: str, others: Sequence[str]) -> "RoomMissing":
        """The error for a room that a database does not have; it names the rooms that are there."""
        shown = [repr(name) for name in others[:_SHOWN]]
        named = " and ".join(part for part in (", ".join(shown[:-1]), *shown[-1:]) if part)
        more = f", and {len(others) - _SHOWN} more" if len(others) > _SHOWN else ""
        has = f"; it has {named}{more}" if others else ""
        wrong = "POSTROOM_SCHEMA" if others else "POSTROOM_DATABASE_URL"
        advice = f"Create it with `postroom migrate`, or correct {wrong}."
        return cls(f"There is no room {room!r} in this database{has}.", advice)
