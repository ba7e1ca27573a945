"""A decider keeps the state of a query between decisions and reads only new events.

    wallet = store.decider(Query.of(tags={"wallet": 1}), 0, {Deposited: lambda total, e: total + e.amount})
    await wallet.decide(lambda total: Withdrawn(wallet=1, amount=5) if total >= 5 else None)

The state is kept in this process. Another process may append at any time: then the append is rejected, the decider
reads the new events and decides again, now serialised with all other deciders that lost once, so that one of them
always succeeds. Decisions of one decider are always serialised.
"""

import asyncio
from collections.abc import Sequence
from copy import deepcopy
from typing import TYPE_CHECKING, Generic, TypeVar

import asyncpg

from postroom.events.model import AppendCondition, Appended, Cursor, Query
from postroom.events.retry import ATTEMPTS, OVERTAKEN, retried
from postroom.events.session import EventSession, Handlers

if TYPE_CHECKING:
    from postroom.events.service import Decision, EventStore

State = TypeVar("State")


class Decider(Generic[State]):
    """The state of one query, and decisions by it."""

    def __init__(self, store: "EventStore", query: Query, initial: State, handlers: Handlers[State]) -> None:
        self._store, self._query, self._handlers = store, query, handlers
        self._initial, self._state = initial, deepcopy(initial)
        self._seen: Cursor | None = None
        self._turn = asyncio.Lock()

    async def decide(
        self, decision: "Decision[State]", *, idempotency: Query | None = None, attempts: int = ATTEMPTS
    ) -> Appended | None:
        """Decide and append; see `EventStore.decide`."""
        async with self._turn:
            try:
                return await self._decide(self._store, decision, idempotency)
            except OVERTAKEN:
                if attempts <= 1:
                    raise
            return await retried(lambda: self._decide_in_turn(decision, idempotency), attempts=attempts - 1)

    async def state(self) -> State:
        """The state after all events appended until now."""
        async with self._turn:
            return await self._learn(self._store)

    async def _decide_in_turn(self, decision: "Decision[State]", idempotency: Query | None) -> Appended | None:
        try:
            async with self._store.in_turn(self._query) as session:
                return await self._decide(session, decision, idempotency)
        except asyncpg.LockNotAvailableError:  # another transaction holds the lock too long: decide without it
            return await self._decide(self._store, decision, idempotency)

    async def _decide(
        self, via: "EventStore | EventSession", decision: "Decision[State]", idempotency: Query | None
    ) -> Appended | None:
        decided = decision(await self._learn(via))
        if decided is None or (isinstance(decided, Sequence) and not decided):
            return None
        return await via.append(decided, AppendCondition(self._query, self._seen), idempotency=idempotency)

    async def _learn(self, via: "EventStore | EventSession") -> State:
        try:
            self._state, self._seen = await via.project(self._state, self._handlers, self._query, after=self._seen)
        except BaseException:
            # Handlers may change the state in place: continuing after a partial fold would apply events twice.
            self._state, self._seen = deepcopy(self._initial), None
            raise
        return self._state
