"""A room in a worker of many rooms: how the worker begins when the room wakes, and when its loops begin."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Protocol

from postroom.db.processes import RegisteredProcess
from postroom.db.room import Room
from postroom.runtime.loop import FIRST_PAUSE_S, LONGEST_PAUSE_S, Backoff


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


@dataclass(slots=True, eq=False)
class Member:
    """A room that this process serves."""

    name: str
    upkeep_at: float
    check_at: float = 0.0  # 0: as soon as possible, but after the rooms whose time has come
    again_at: float = 0.0  # the check after its registration
    renew_at: float = 0.0
    writes: int | None = None  # rows that were written to its tables, as far as known
    serving: asyncio.Task[None] | None = None
    leaving: asyncio.Event = field(default_factory=asyncio.Event)
    on_notification: Callable[[str], None] = field(default=lambda _payload: None)
    lanes: set[str] = field(default_factory=set)  # notified since the room fell asleep
    gates: Gates = field(default_factory=Gates)  # of the loops while it is awake
    is_awake: bool = False  # False while it waits for its turn
    is_gone: bool = False  # dropped, or moving to another server
    failure: Backoff = field(default_factory=partial(Backoff, FIRST_PAUSE_S, LONGEST_PAUSE_S))


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
