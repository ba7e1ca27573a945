"""Load during failovers: deliveries over HTTP and in a caller's transaction, events appended with conditions.

Everything that was acknowledged is recorded with its time. A result that is unknown, because the connection was lost
before the answer, is repeated with the same idempotency key over HTTP and dropped elsewhere.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from itertools import count

import postroom
from postroom.client.asynchronous import Client
from postroom.db.faults import DATABASE_ERRORS
from postroom.db.pool import Pool, open_pool
from postroom.db.primary import primary_followed
from postroom.errors import PostroomError
from postroom.events import Event, EventStore, Query

ROOM = "postroom"
PACE_S = 0.05  # between two requests of one client: the rate is constant, so that runs can be compared
RETRY_S = 0.2
ANSWER_S = 5.0  # timeout of a client that retries
COUNTED = "Counted"
COUNTER = Query.of(COUNTED, tags={"counter": 1})

_PASSING = (*DATABASE_ERRORS, PostroomError)


@dataclass
class Acknowledged:
    """Results that a caller has received, with the time."""

    over_http: dict[int, float] = field(default_factory=dict)  # by delivery id
    in_transaction: dict[int, float] = field(default_factory=dict)  # by delivery id
    events: dict[int, float] = field(default_factory=dict)  # by position

    @property
    def deliveries(self) -> dict[int, float]:
        return {**self.over_http, **self.in_transaction}


@asynccontextmanager
async def load(url: str, api: str, key: str) -> AsyncIterator[Acknowledged]:
    """Accept deliveries and append events for as long as the block runs."""
    known, stop = Acknowledged(), asyncio.Event()
    async with (
        Client(api, key, timeout_s=ANSWER_S, retries=0) as client,
        await open_pool(url, ROOM, size=4, timeout=timedelta(seconds=ANSWER_S)) as pool,
        primary_followed(pool.connector),
        asyncio.TaskGroup() as group,
    ):
        group.create_task(_repeat(stop, partial(_accept_over_http, client, known)))
        group.create_task(_repeat(stop, partial(_accept_in_transaction, pool, known), retry=False))
        for store in (EventStore(pool), EventStore(pool)):  # two, so that conditions fail
            group.create_task(_repeat(stop, partial(_count, store, known), retry=False))
        try:
            yield known
        finally:
            stop.set()


async def _repeat(stop: asyncio.Event, once: Callable[[int], Awaitable[None]], *, retry: bool = True) -> None:
    """Call with 0, 1, 2, …; with `retry`, with the same number until it succeeds."""
    numbers = count()
    number = next(numbers)
    while not stop.is_set():
        try:
            await once(number)
        except _PASSING:
            await asyncio.sleep(RETRY_S)
            if retry:
                continue
        number = next(numbers)
        await asyncio.sleep(PACE_S)


async def _accept_over_http(client: Client, known: Acknowledged, number: int) -> None:
    sent = await client.deliveries.send(
        to=f"http-{number}@example.org", subject="Failover", text="Over HTTP.", idempotency_key=f"http-{number}"
    )
    known.over_http[sent.id] = time.time()


async def _accept_in_transaction(pool: Pool, known: Acknowledged, number: int) -> None:
    async with pool.acquire() as connection:
        async with connection.transaction():
            await connection.execute("INSERT INTO public.orders (number) VALUES ($1)", number)
            delivery = await postroom.send(
                connection,
                to=f"order-{number}@example.org",
                subject="Failover",
                text="In a transaction.",
                idempotency_key=f"order-{number}",
            )
        known.in_transaction[delivery] = time.time()


async def _count(store: EventStore, known: Acknowledged, _number: int) -> None:
    """Append the next number, on the condition that no other client has appended it."""
    appended = await store.decide(
        COUNTER,
        0,
        {COUNTED: lambda number, _event: number + 1},
        lambda number: Event.of(COUNTED, {"number": number + 1}, counter=1),
    )
    assert appended is not None
    known.events[appended.position] = time.time()
