"""A decision that is made again and again: its state is kept, and only what is new is read.

    wallet = store.decider(Query.of(tags={"wallet": 1}), 0, {Deposited: lambda total, e: total + e.amount})
    await wallet.decide(lambda total: Withdrawn(wallet=1, amount=5) if total >= 5 else None)

The state belongs to this process and costs what it weighs. Another process may append at any time: then the append is
refused, the news is read, and the decision is made again, now in turn with all others who were overtaken: however many
want the same, somebody always gets on. Decisions of one decider take turns anyway.
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
    """What is known so far about one query, and how to decide by it."""

    def __init__(self, store: "EventStore", query: Query, initial: State, handlers: Handlers[State]) -> None:
        self._store, self._query, self._handlers = store, query, handlers
        self._initial, self._state = initial, deepcopy(initial)
        self._seen: Cursor | None = None
        self._turn = asyncio.Lock()

    async def decide(
        self, decision: "Decision[State]", *, idempotency: Query | None = None, attempts: int = ATTEMPTS
    ) -> Appended | None:
        """As `EventStore.decide`."""
        async with self._turn:
            try:
                return await self._decide(self._store, decision, idempotency)
            except OVERTAKEN:
                if attempts <= 1:
                    raise
            return await retried(lambda: self._decide_in_turn(decision, idempotency), attempts=attempts - 1)

    async def state(self) -> State:
        """What follows from everything that was appended until now."""
        async with self._turn:
            return await self._learn(self._store)

    async def _decide_in_turn(self, decision: "Decision[State]", idempotency: Query | None) -> Appended | None:
        try:
            async with self._store.in_turn(self._query) as session:
                return await self._decide(session, decision, idempotency)
        except asyncpg.LockNotAvailableError:  # somebody holds up the line: go on without
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
            # Handlers may change the state in place: what is half learnt would be learnt twice.
            self._state, self._seen = deepcopy(self._initial), None
            raise
        return self._state
