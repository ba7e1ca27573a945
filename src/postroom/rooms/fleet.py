"""A worker process for many rooms on several servers."""

import asyncio
from collections.abc import Iterator, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from time import monotonic

import structlog

from postroom.db.errors import DatabaseUnreachable
from postroom.db.pool import Pool
from postroom.intake.source import CommandWatch
from postroom.mail.watcher import signature_of
from postroom.rooms.model import FleetOptions, Watcher
from postroom.rooms.server_rooms import ServerRooms
from postroom.rooms.service import ROOMS_UNKNOWN, Server, find_rooms
from postroom.rooms.wake import RunRoom
from postroom.runtime.loop import Loop, Signal, run_loops, unheard

WATCH_REST = timedelta(milliseconds=100)  # the watch itself waits for commands
WOKEN_S = 4.0  # a room without work sleeps after this time; one that fails is not woken without a pause

_log = structlog.get_logger()


class Fleet:
    """Serves all rooms whose names match a pattern; new rooms join, and dropped or moving ones leave, as it runs."""

    def __init__(  # noqa: PLR0913 - the servers, their rooms, and how they are served
        self,
        servers: Sequence[Server],
        pattern: str,
        *,
        run_room: RunRoom,
        watcher: Watcher,
        templates: Path | None = None,
        watches: Sequence[CommandWatch] = (),
        options: FleetOptions | None = None,
        signal: Signal = unheard,
    ) -> None:
        self._servers, self._pattern, self._options = servers, pattern, options or FleetOptions()
        self._members = [ServerRooms(server, run_room, watcher, self._options, signal=signal) for server in servers]
        self._templates = templates
        self._signature = signature_of(templates) if templates is not None else frozenset()
        self._down: frozenset[str] = frozenset()
        self._is_complete = False  # until the first discovery
        self._watches = watches
        self._woken: dict[str, float] = {}  # by commands: the time until which nothing wakes the room again

    async def run(self, stop: asyncio.Event, beside: Sequence[Loop] = ()) -> None:
        """Serve until `stop` is set. A server that is down does not concern the rooms of the others.

        The loops `beside` belong to the process, not to a room.
        """
        discovery = Loop("room discovery", self.discover, rest=self._options.discovery, interruptible=True)
        async with asyncio.TaskGroup() as together:
            for members in self._members:
                together.create_task(members.run(stop), name=f"server {members.name}")
            together.create_task(run_loops([discovery, *map(self._watching, self._watches), *beside], stop=stop))

    def pools(self) -> Iterator[tuple[str, Pool]]:
        """The rooms and their connections; ends with `DatabaseUnreachable` while some rooms are not known."""
        for members in self._members:
            yield from members.pools()
        if self._down or not self._is_complete:
            raise DatabaseUnreachable(ROOMS_UNKNOWN)

    async def discover(self) -> None:
        """Find the rooms of all servers that respond; rooms of the others stay as they are."""
        found = await find_rooms(self._servers, self._pattern)
        self._report(frozenset(failure.server for failure in found.failures))
        for members in self._members:
            if members.name not in self._down:
                ready = [room.name for room in found.ready if room.server == members.name]
                members.adopt(ready, upkeep_now=self._templates is not None)
        self._is_complete = True
        await self._follow_templates()

    def _watching(self, watch: CommandWatch) -> Loop:
        once = partial(self._wake_for_commands, watch)
        return Loop("room commands", once, rest=WATCH_REST, interruptible=True, expected=watch.interruptions)

    async def _wake_for_commands(self, watch: CommandWatch) -> None:
        """Wake the rooms whose streams have commands; an awake room reads its own stream."""
        now = monotonic()
        self._woken = {room: until for room, until in self._woken.items() if until > now}
        rooms = frozenset[str]().union(*(members.rooms for members in self._members)) - self._woken.keys()
        for room in await watch.rooms_with_commands(rooms):
            self._woken[room] = monotonic() + WOKEN_S
            for members in self._members:
                members.wake(room)

    def _report(self, down: frozenset[str]) -> None:
        for name in down ^ self._down:
            _log.warning("server_down" if name in down else "server_back", server=name)
        self._down = down

    async def _follow_templates(self) -> None:
        """Let every room publish the template files when they have changed."""
        if self._templates is None:
            return
        before, self._signature = self._signature, await asyncio.to_thread(signature_of, self._templates)
        if before != self._signature:
            for members in self._members:
                members.bring_upkeep_forward()
