"""A decider keeps the state of a query between decisions and reads only new events.

    wallet = store.decider(Query.of(tags={"wallet": 1}), 0, {Deposited: lambda total, e: total + e.amount})
    await wallet.decide(lambda total: Withdrawn(wallet=1, amount=5) if total >= 5 else None)

The state is kept in this process. Another process may append at any time: then the append is rejected, the decider
reads the new events and decides again, now serialised with all other deciders that lost once, so that one of them
always succeeds. Decisions of one decider are always serialised.
"""

import asyncio
from typing import TYPE_CHECKING, Generic, TypeVar

import asyncpg

from postroom.events.model import Appended, Query
from postroom.events.projection import Decision, Handlers, Projection
from postroom.events.retry import ATTEMPTS, OVERTAKEN, retried

if TYPE_CHECKING:
    from postroom.events.service import EventStore

State = TypeVar("State")


class Decider(Generic[State]):
    """The state of one query, and decisions by it."""

    def __init__(self, store: "EventStore", query: Query, initial: State, handlers: Handlers[State]) -> None:
        self._store, self._query = store, query
        self._projection = Projection(query, initial, handlers)
        self._turn = asyncio.Lock()  # decisions on one state conflict anyway: each waits instead of failing

    async def decide(
        self, decision: Decision[State], *, idempotency: Query | None = None, attempts: int = ATTEMPTS
    ) -> Appended | None:
        """Decide and append; see `EventStore.decide`."""
        async with self._turn:
            try:
                return await self._projection.decide(self._store, decision, idempotency)
            except OVERTAKEN:
                if attempts <= 1:
                    raise
            return await retried(lambda: self._decide_in_turn(decision, idempotency), attempts=attempts - 1)

    async def state(self) -> State:
        """The state after all events appended until now."""
        async with self._turn:
            return await self._projection.read(self._store)

    async def _decide_in_turn(self, decision: Decision[State], idempotency: Query | None) -> Appended | None:
        try:
            async with self._store.in_turn(self._query) as session:
                return await self._projection.decide(session, decision, idempotency)
        except asyncpg.LockNotAvailableError:  # another transaction holds the lock too long: decide without it
            return await self._projection.decide(self._store, decision, idempotency)
