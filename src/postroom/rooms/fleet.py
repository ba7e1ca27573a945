"""A worker process for many rooms on several servers."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import structlog

from postroom.mail.watcher import signature_of
from postroom.rooms.model import Watcher
from postroom.rooms.server_rooms import FleetOptions, RunRoom, ServerRooms
from postroom.rooms.service import Server, find_rooms
from postroom.runtime.loop import Loop, run_loops
from postroom.runtime.signals import Signal, unheard

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
        options: FleetOptions | None = None,
        signal: Signal = unheard,
    ) -> None:
        self._servers, self._pattern, self._options = servers, pattern, options or FleetOptions()
        self._members = [ServerRooms(server, run_room, watcher, self._options, signal=signal) for server in servers]
        self._templates = templates
        self._signature = signature_of(templates) if templates is not None else frozenset()
        self._down: frozenset[str] = frozenset()

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until `stop` is set. A server that is down does not concern the rooms of the others."""
        discovery = Loop("room discovery", self.discover, rest=self._options.discovery, interruptible=True)
        async with asyncio.TaskGroup() as together:
            for members in self._members:
                together.create_task(members.run(stop), name=f"server {members.name}")
            together.create_task(run_loops([discovery], stop=stop))

    async def discover(self) -> None:
        """Find the rooms of all servers that respond; those of the others stay as they are."""
        found = await find_rooms(self._servers, self._pattern)
        self._report(frozenset(failure.server for failure in found.failures))
        for members in self._members:
            if members.name not in self._down:
                ready = [room.name for room in found.ready if room.server == members.name]
                members.adopt(ready, upkeep_now=self._templates is not None)
        await self._follow_templates()

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
