"""Wake-ups by NOTIFY.

A listener has one connection of its own, outside any pooler, for any number of channels. It pings the server every
`PING_S`, because a connection whose server vanished looks like one without notifications. After any error the listener
reconnects and wakes every owner once, because notifications may have been missed. Owners also poll: a notification is
never the only trigger of work.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import Any, Self, TypeAlias

import structlog

from postroom.db.connection import Connector, Url
from postroom.db.pool import Session, session_options
from postroom.db.queries import load
from postroom.runtime.loop import Loop, wait_for_any

PING_S = 10.0  # a broken connection is found within PING_S and PING_TIMEOUT_S; until then workers poll
PING_TIMEOUT_S = 5.0  # a server that needs longer is as good as lost for notifications
RECONNECT = timedelta(milliseconds=100)  # first pause; polling finds the work meanwhile

OnWake: TypeAlias = Callable[[str], None]

_QUERIES = load("postroom.db")
_log = structlog.get_logger()


class Listener:
    """Calls the owners of a channel for each notification of it. The connection is opened for the first channel."""

    def __init__(self, url: Url, room: str) -> None:
        self.connector = Connector(url, options=session_options(room))
        self._owners: dict[str, list[OnWake]] = {}
        self._new: list[tuple[str, OnWake]] = []
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.listening = asyncio.Event()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    @contextlib.asynccontextmanager
    async def hearing(self, channel: str, on_wake: OnWake, *, missed: bool = True) -> AsyncIterator[None]:
        """Call `on_wake(payload)` for each notification during the block; with an empty payload after connecting.

        An owner that has missed no notification does not get the first empty payload.
        """
        self.hear(channel, on_wake, missed=missed)
        try:
            yield
        finally:
            self.ignore(channel, on_wake)

    def hear(self, channel: str, on_wake: OnWake, *, missed: bool = True) -> None:
        """As `hearing`, until `ignore`."""
        self._owners.setdefault(channel, []).append(on_wake)
        if missed:
            self._new.append((channel, on_wake))
        self._change()
        if self._task is None:
            loop = Loop("listener", self._listen_until_lost, rest=RECONNECT)
            self._task = asyncio.create_task(loop.run(asyncio.Event()), name=loop.name)

    def ignore(self, channel: str, on_wake: OnWake) -> None:
        self._owners[channel].remove(on_wake)
        if not self._owners[channel]:
            del self._owners[channel]
        self._change()

    def _change(self) -> None:
        self.listening.clear()
        self._changed.set()

    async def _listen_until_lost(self) -> None:
        connection = await self.connector()
        lost, heard = asyncio.Event(), set[str]()
        connection.add_termination_listener(lambda _connection: lost.set())
        self._new = [(channel, owner) for channel, owners in self._owners.items() for owner in owners]
        try:
            while not lost.is_set():
                await self._follow_owners(connection, heard)
                await wait_for_any(lost, self._changed, timeout_s=PING_S)
                if not self._changed.is_set() and not lost.is_set():
                    await _ping(connection, PING_TIMEOUT_S)
            _log.warning("listener_lost", channels=len(heard))
        finally:
            self.listening.clear()
            with contextlib.suppress(Exception):
                await connection.close(timeout=1)

    async def _follow_owners(self, connection: Session, heard: set[str]) -> None:
        """Listen on exactly the channels that have owners, then wake the owners that are new."""
        while self._changed.is_set() or self._new:
            self._changed.clear()
            wanted, new, self._new = set(self._owners), self._new, []
            for channel in wanted ^ heard:
                async with asyncio.timeout(PING_TIMEOUT_S):
                    if channel in wanted:
                        await connection.add_listener(channel, self._notified)
                    else:
                        await connection.remove_listener(channel, self._notified)
            heard.clear()
            heard.update(wanted)
            for channel, owner in new:
                if owner in self._owners.get(channel, ()):
                    owner("")
        self.listening.set()

    def _notified(self, _connection: Session, _pid: int, channel: str, payload: Any) -> None:
        for owner in tuple(self._owners.get(channel, ())):
            owner(payload)


async def _ping(connection: Session, timeout_s: float) -> None:
    async with asyncio.timeout(timeout_s):
        await _QUERIES["ping"].one(connection)
