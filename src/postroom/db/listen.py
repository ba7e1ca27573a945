"""Wake-ups by NOTIFY.

A listener holds one connection of its own, outside any pooler. When that connection drops it comes back by itself and
wakes everybody once, because nobody knows what was missed. Whoever waits also polls: a notification is a courtesy,
never the only way to learn of work.
"""

import asyncio
import contextlib
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

import asyncpg
import structlog

from postroom.db.pool import Session, connect
from postroom.errors import DatabaseUnreachable

_log = structlog.get_logger()


class Listener:
    """Calls `on_wake(payload)` for each notification; with an empty payload after a reconnection."""

    def __init__(self, url: str, room: str, *, channel: str, on_wake: Callable[[str], None]) -> None:
        self._url, self._room, self._channel, self._on_wake = url, room, channel, on_wake
        self._task: asyncio.Task[None] | None = None
        self.listening = asyncio.Event()

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run(), name="listener")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def _run(self) -> None:
        pause_s = 0.1
        while True:
            try:
                await self._listen_until_lost()
                pause_s = 0.1
            except (OSError, DatabaseUnreachable, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
                _log.warning("listener_lost", channel=self._channel, error=type(error).__name__, retry_in_s=pause_s)
            self.listening.clear()
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, 5)

    async def _listen_until_lost(self) -> None:
        connection = await connect(self._url, self._room)
        lost = asyncio.Event()
        connection.add_termination_listener(lambda _connection: lost.set())
        try:
            await connection.add_listener(self._channel, self._notified)
            self.listening.set()
            self._on_wake("")
            await lost.wait()
        finally:
            with contextlib.suppress(Exception):
                await connection.close(timeout=1)

    def _notified(self, _connection: Session, _pid: int, _channel: str, payload: Any) -> None:
        self._on_wake(payload)
