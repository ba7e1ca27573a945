"""An instance's seat: one connection, held open around any pooler, that carries its locks and hears notifications.

Whoever holds the lock of a pair leads it. The locks live exactly as long as the connection: when the process is killed
or the line is cut, the server frees them and somebody else can take over. The row only tells people, and tells the
others whether a silent holder is still alive.
"""

import asyncio
import contextlib
import os
import secrets
import socket
from collections.abc import Sequence
from datetime import timedelta
from types import TracebackType
from typing import Any, Protocol, Self

from postroom.db.connection import Url
from postroom.db.pool import Session, connect
from postroom.outbox import store
from postroom.outbox.model import Subscription, assign


def instance_name() -> str:
    """A name no other instance has, and that says where to look for it."""
    return f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(3)}"


class Wake(Protocol):
    """What is called on a notification: events are there, or somebody changed something by hand."""

    def __call__(self, *, by_hand: bool) -> None: ...


class Leadership:
    """The held connection of one instance. Not safe for two tasks at once: its owner's tick is the only caller."""

    def __init__(self, url: Url, room: str, *, publishers: Sequence[str], on_wake: Wake) -> None:
        self._url, self._room, self._publishers, self._on_wake = url, room, list(publishers), on_wake
        self._connection: Session = None
        self.instance = instance_name()
        self.lost = asyncio.Event()

    async def __aenter__(self) -> Self:
        self._connection = await connect(self._url, self._room)
        self._connection.add_termination_listener(lambda _connection: self.lost.set())
        try:
            await store.prepare_seat(self._connection)
            for channel in ("events", "outbox"):
                await self._connection.add_listener(f"{self._room}_{channel}", self._notified)
            await store.announce(self._connection, publishers=self._publishers)
        except BaseException:
            self._connection.terminate()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Closing frees every lock; a connection that does not answer is dropped."""
        try:
            async with asyncio.timeout(2):
                await self._connection.close()
        except Exception:  # noqa: BLE001 - it is of no use any more, whatever is wrong with it
            with contextlib.suppress(Exception):
                self._connection.terminate()

    @property
    def pid(self) -> int:
        return int(self._connection.get_server_pid())

    async def beat(self, silence: timedelta) -> set[Subscription]:
        """Say that we live, end those that hold a lock and do not; answers what we lead."""
        led = await store.beat(self._connection, instance=self.instance)
        await store.break_stale_leads(self._connection, silence=silence)
        return led

    async def duties(self, silence: timedelta) -> set[Subscription]:
        """What we should lead, by everybody's reckoning."""
        instances = await store.list_instances(self._connection, silence=silence)
        pairs = await store.list_pairs(self._connection)
        return {pair for pair, pid in assign(pairs, instances).items() if pid == self.pid}

    async def take(self, pair: Subscription) -> tuple[bool, int | None]:
        """Lead a pair if nobody does; answers whether, and the row its sleeping leaders use."""
        if not await store.try_lock(self._connection, **pair._asdict()):
            return False, None
        is_there, follower_id = await store.take_lead(self._connection, **pair._asdict(), instance=self.instance)
        if not is_there:
            await self.release(pair)
        return is_there, follower_id

    async def release(self, pair: Subscription) -> None:
        await store.release_lead(self._connection, **pair._asdict(), instance=self.instance)

    def _notified(self, _connection: Session, _pid: int, channel: str, _payload: Any) -> None:
        self._on_wake(by_hand=channel == f"{self._room}_outbox")
