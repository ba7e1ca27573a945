"""The dedicated connection of an instance: it bypasses any pooler, holds the locks and receives notifications.

An instance leads a pair while it holds the pair's lock. The locks last exactly as long as the connection: when the
process is killed or the connection is cut, the server frees them and another instance can take over. The row in the
database only shows the leader to operators, and its heartbeat shows the other instances that a lock holder is alive.
"""

import asyncio
import contextlib
import os
import secrets
import socket
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Protocol, Self

from postroom.db.connection import Connector
from postroom.db.pool import Session
from postroom.outbox import store
from postroom.outbox.model import Subscription, assign


def instance_name() -> str:
    """A unique name of this instance, with its host and process id."""
    return f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(3)}"


class Wake(Protocol):
    """Called on a notification of new events; `by_hand` if an operator changed something."""

    def __call__(self, *, by_hand: bool) -> None: ...


class Leadership:
    """The dedicated connection of one instance. Not safe for concurrent tasks: only its owner's tick may call it."""

    def __init__(self, connector: Connector, room: str, *, publishers: Sequence[str], on_wake: Wake) -> None:
        self._connector, self._room, self._publishers, self._on_wake = connector, room, list(publishers), on_wake
        self._connection: Session = None
        self.instance = instance_name()
        self.lost = asyncio.Event()

    async def __aenter__(self) -> Self:
        self._connection = await self._connector()
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

    async def __aexit__(self, *_error: object) -> None:
        """Close the connection, which frees every lock; terminate it if it does not respond within two seconds."""
        try:
            async with asyncio.timeout(2):
                await self._connection.close()
        except Exception:  # noqa: BLE001 - the connection is discarded, whatever is wrong with it
            with contextlib.suppress(Exception):
                self._connection.terminate()

    @property
    def pid(self) -> int:
        return int(self._connection.get_server_pid())

    async def beat(self, silence: timedelta) -> set[Subscription]:
        """Update our heartbeat, terminate lock holders whose heartbeat has stopped, and return the pairs we lead."""
        led = await store.beat(self._connection, instance=self.instance)
        await store.break_stale_leads(self._connection, silence=silence)
        return led

    async def duties(self, silence: timedelta) -> set[Subscription]:
        """The pairs that this instance should lead; every instance computes the same assignment."""
        instances = await store.list_instances(self._connection, silence=silence)
        pairs = await store.list_pairs(self._connection)
        return {pair for pair, pid in assign(pairs, instances).items() if pid == self.pid}

    async def take(self, pair: Subscription) -> tuple[bool, int | None]:
        """Take the lead of a free pair; returns whether it succeeded, and the follower id of the pair's leaders."""
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
