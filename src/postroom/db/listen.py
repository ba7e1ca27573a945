"""Wake-ups by NOTIFY.

A listener has one connection of its own, outside any pooler. It pings the server every `PING_S`, because a connection
whose server vanished looks like one without notifications. After any error the listener reconnects and wakes its owner
once, because notifications may have been missed. Owners also poll: a notification is never the only trigger of work.
"""

import asyncio
import contextlib
from collections.abc import Callable
from datetime import timedelta
from types import TracebackType
from typing import Any, Self

import structlog

from postroom.db.connection import Url
from postroom.db.pool import Session, connect
from postroom.db.queries import load
from postroom.runtime.loop import Loop

PING_S = 10.0  # a broken connection is found within PING_S and PING_TIMEOUT_S; until then workers poll
PING_TIMEOUT_S = 5.0  # a server that needs longer is as good as lost for notifications
RECONNECT = timedelta(milliseconds=100)  # first pause; polling finds the work meanwhile

_QUERIES = load("postroom.db")
_log = structlog.get_logger()


class Listener:
    """Calls `on_wake(payload)` for each notification, and with an empty payload after a reconnect."""

    def __init__(self, url: Url, room: str, *, channel: str, on_wake: Callable[[str], None]) -> None:
        self._url, self._room, self._channel, self._on_wake = url, room, channel, on_wake
        self._task: asyncio.Task[None] | None = None
        self.listening = asyncio.Event()

    async def __aenter__(self) -> Self:
        loop = Loop(f"listener {self._channel}", self._listen_until_lost, rest=RECONNECT)
        self._task = asyncio.create_task(loop.run(asyncio.Event()), name=loop.name)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def _listen_until_lost(self) -> None:
        connection = await connect(self._url, self._room)
        lost = asyncio.Event()
        connection.add_termination_listener(lambda _connection: lost.set())
        try:
            async with asyncio.timeout(PING_TIMEOUT_S):
                await connection.add_listener(self._channel, self._notified)
            self.listening.set()
            self._on_wake("")
            await ping_until(lost, connection, every_s=PING_S, timeout_s=PING_TIMEOUT_S)
            _log.warning("listener_lost", channel=self._channel)
        finally:
            self.listening.clear()
            with contextlib.suppress(Exception):
                await connection.close(timeout=1)

    def _notified(self, _connection: Session, _pid: int, _channel: str, payload: Any) -> None:
        self._on_wake(payload)


async def ping_until(lost: asyncio.Event, connection: Session, *, every_s: float, timeout_s: float) -> None:
    """Return when the connection is lost; raise `TimeoutError` when the server no longer responds."""
    while not lost.is_set():
        try:
            async with asyncio.timeout(every_s):
                await lost.wait()
        except TimeoutError:
            async with asyncio.timeout(timeout_s):
                await _QUERIES["ping"].one(connection)
