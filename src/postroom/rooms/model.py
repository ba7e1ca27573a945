"""Models of rooms. Pure."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Self


class RoomState(StrEnum):
    """The state of a room on one server. `pending` and `incompatible` are known only after an inspection."""

    READY = "ready"
    PENDING = "pending"
    INCOMPATIBLE = "incompatible"
    RESTORING = "restoring"
    MOVING = "moving"
    MOVED = "moved"
    DUPLICATE = "duplicate"
    DENIED = "denied"


USABLE = frozenset({RoomState.READY, RoomState.PENDING, RoomState.INCOMPATIBLE})
"""States of a room that is complete and not moving, so that only one server may have it."""


@dataclass(frozen=True, slots=True)
class Move:
    """The mark of a moving room. A copy of the room has the same mark, on the server that it moves to."""

    origin: str
    target: str
    is_done: bool = False  # True: the origin is closed and the copy is the room

    def __str__(self) -> str:
        return f"{'moved' if self.is_done else 'moving'} from {self.origin} to {self.target}"

    def remedy(self, name: str) -> str:
        """The commands that end a move which was killed; `refuse_while_moving` names them too."""
        if self.is_done:
            return f"Use the room on server {self.target}."
        return (
            f'If no command is moving the room now, run "postroom rooms move {name} --to {self.target}" to continue, '
            f'or "postroom rooms move {name} --undo".'
        )

    @classmethod
    def parse(cls, mark: str) -> Self:
        """Read the form of `str`."""
        state, _, origin, _, target = mark.split()
        return cls(origin, target, is_done=state == "moved")


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundRoom:
    """One room on one server. Only an inspection finds version and size."""

    server: str
    name: str
    state: RoomState
    version: str | None = None  # the last migration
    bytes: int | None = None
    move: Move | None = None


@dataclass(frozen=True, slots=True)
class ServerFailure:
    """A server that did not respond, and the reason."""

    server: str
    reason: str


@dataclass(frozen=True, slots=True)
class Discovery:
    """The rooms of all servers that responded, by name, and the servers that did not."""

    rooms: tuple[FoundRoom, ...]
    failures: tuple[ServerFailure, ...] = ()

    @property
    def ready(self) -> tuple[FoundRoom, ...]:
        """The rooms that a process may serve; each name occurs once."""
        return tuple(room for room in self.rooms if room.state is RoomState.READY)


def matches(name: str, pattern: str) -> bool:
    """True if one of the patterns matches: `tenant_*`, or several separated by commas."""
    return any(fnmatchcase(name, part.strip()) for part in pattern.split(","))


def without_duplicates(rooms: Iterable[FoundRoom]) -> tuple[FoundRoom, ...]:
    """The rooms by name and server; those that are usable on several servers have the state `duplicate`."""
    found = sorted(rooms, key=lambda room: (room.name, room.server))
    places = Counter(room.name for room in found if room.state in USABLE)
    return tuple(
        replace(room, state=RoomState.DUPLICATE) if room.state in USABLE and places[room.name] > 1 else room
        for room in found
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Watcher:
    """A process in which rooms sleep, and the work that it does at all."""

    pid: int
    host: str
    collects_tokens: bool
    publishers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Watched:
    """A sleeping room: whether its watcher was registered just now, and the seconds until it has work."""

    room: str
    is_new: bool
    wait_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetOptions:
    """Options of a worker of many rooms; `awake` is a setting."""

    awake: int = 50
    check: timedelta = timedelta(seconds=10)
    renewal: timedelta = timedelta(seconds=90)  # of the registration; after two minutes the doctor misses the worker
    look: timedelta = timedelta(seconds=2)  # twice without work, and an awake room sleeps
    turn: timedelta = timedelta(seconds=30)  # a busy room cannot keep the others asleep for longer
    upkeep: timedelta = timedelta(hours=1)
    discovery: timedelta = timedelta(seconds=10)
