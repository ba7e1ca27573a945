"""Publishers that record messages, and helpers that wait for a condition."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta

from tests.support.patience import PATIENCE_S

from postroom.db.pool import Pool
from postroom.events import Event, EventStore
from postroom.outbox.errors import PublishFailed
from postroom.outbox.model import Subscription
from postroom.outbox.publisher import Batch, Message
from postroom.outbox.relay import RelayOptions

HURRY = RelayOptions(first_pause=timedelta(milliseconds=5), longest_pause=timedelta(milliseconds=20), max_errors=3)


class Recorder:
    """Records messages; raises an error while configured to."""

    is_local = False

    def __init__(self, name: str = "recorder", *, poison: int | None = None) -> None:
        self.name, self.poison, self.is_down = name, poison, False
        self.messages: list[Message] = []
        self.batches: list[int] = []
        self.closed = False

    async def publish(self, batch: Batch) -> None:
        self.batches.append(len(batch.messages))
        if self.is_down or any(message.position == self.poison for message in batch.messages):
            raise PublishFailed("the receiver refused the batch")
        self.messages += batch.messages

    async def close(self) -> None:
        self.closed = True

    @property
    def positions(self) -> list[int]:
        return [message.position for message in self.messages]


async def lead(pool: Pool, pair: Subscription, instance: str) -> None:
    """Write the leader to the row, as an instance does."""
    await pool.execute(
        "UPDATE outbox_topic_progress SET leader_instance = $3, leader_since = now(), leader_heartbeat = now()"
        " WHERE topic = $1 AND publisher = $2",
        pair.topic,
        pair.publisher,
        instance,
    )


async def append(store: EventStore, count: int, type_: str = "Deposited", **tags: object) -> list[int]:
    """Append events one by one and wait until they are settled; returns their positions."""
    positions = [(await store.append(Event.of(type_, {"n": n}, **tags))).position for n in range(count)]
    await settled(store._pool)
    return positions


async def settled(pool: Pool) -> None:
    """Wait until events are settled: an open transaction of another test, in any database, holds followers back."""

    async def is_settled() -> bool:
        return not await pool.fetchval("SELECT coalesce(last_event_transaction() >= event_horizon(), false)")

    await until(is_settled)


async def until(is_so: Callable[[], bool | Awaitable[bool]], *, patience_s: float = PATIENCE_S) -> None:
    """Poll until the condition holds."""
    async with asyncio.timeout(patience_s):
        while True:
            answer = is_so()
            if answer if isinstance(answer, bool) else await answer:
                return
            await asyncio.sleep(0.002)
