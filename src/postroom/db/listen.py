"""Wake-ups by NOTIFY.

A listener holds one connection of its own, outside any pooler. It pings the server every `PING_S`: without that, a
connection whose server vanished would look as quiet as one without notifications. After any error the listener
reconnects and wakes its owner once, because notifications may have been missed. Owners also poll: a notification is a
courtesy, never the only way to learn of work.
"""

import asyncio
import contextlib
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

import structlog

from postroom.db.connection import Url
from postroom.db.faults import FLICKER
from postroom.db.pool import Session, connect
from postroom.db.queries import load

PING_S = 10.0
PING_TIMEOUT_S = 5.0

_QUERIES = load("postroom.db")
_log = structlog.get_logger()


class Listener:
    """Calls `on_wake(payload)` for each notification; with an empty payload after a reconnection."""

    def __init__(self, url: Url, room: str, *, channel: str, on_wake: Callable[[str], None]) -> None:
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
            except FLICKER as error:
                _log.warning("listener_lost", channel=self._channel, error=type(error).__name__, retry_in_s=pause_s)
            except Exception:  # noqa: BLE001 - a listener that ended would leave its owner without notifications
                _log.exception("listener_failed", channel=self._channel, retry_in_s=pause_s)
            self.listening.clear()
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, 5)

    async def _listen_until_lost(self) -> None:
        connection = await connect(self._url, self._room)
        lost = asyncio.Event()
        connection.add_termination_listener(lambda _connection: lost.set())
        try:
            async with asyncio.timeout(PING_TIMEOUT_S):
                await connection.add_listener(self._channel, self._notified)
            self.listening.set()
            self._on_wake("")
            await _ping_until(lost, connection)
        finally:
            with contextlib.suppress(Exception):
                await connection.close(timeout=1)

    def _notified(self, _connection: Session, _pid: int, _channel: str, payload: Any) -> None:
        self._on_wake(payload)


async def _ping_until(lost: asyncio.Event, connection: Session) -> None:
    """Return when the connection is lost; raise `TimeoutError` when the server no longer answers."""
    while not lost.is_set():
        try:
            async with asyncio.timeout(PING_S):
                await lost.wait()
        except TimeoutError:
            async with asyncio.timeout(PING_TIMEOUT_S):
                await _QUERIES["ping"].one(connection)
