"""How a worker of many rooms begins in a room that wakes, and when its loops begin."""

import asyncio
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Protocol

from postroom.db.processes import RegisteredProcess
from postroom.db.room import Room


class Gates:
    """Lets the loops of an awake room begin when they have work, by the name of the function that says when."""

    def __init__(self) -> None:
        self._events = defaultdict[str, asyncio.Event](asyncio.Event)
        self._are_open = False

    def of(self, function: str) -> asyncio.Event:
        if self._are_open:
            self._events[function].set()
        return self._events[function]

    def open(self, functions: Iterable[str]) -> None:
        for function in functions:
            self._events[function].set()

    def open_all(self) -> None:
        self._are_open = True
        self.open(list(self._events))


@dataclass(frozen=True, slots=True, kw_only=True)
class RoomWake:
    """The start of a worker in a room that wakes: its registrations, and the lanes whose mail has woken it.

    Without lanes, something else has, and all loops begin; otherwise each begins when its gate is open. The loops of
    upkeep start after `upkeep_in`.
    """

    worker_id: int
    process: RegisteredProcess
    lanes: frozenset[str]
    upkeep_in: timedelta
    gates: Gates = field(default_factory=Gates)


class RunRoom(Protocol):
    """Runs the loops of a worker in one room until `stop` is set."""

    async def __call__(self, room: Room, *, stop: asyncio.Event, wake: RoomWake) -> None: ...
