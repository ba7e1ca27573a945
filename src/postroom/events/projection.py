"""The state of a query: a fold over its events, and decisions by it."""

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from typing import Any, Generic, Protocol, TypeVar

from postroom.events.model import AppendCondition, Appended, Cursor, Event, Query, SequencedEvent
from postroom.events.typed import typed_handlers

State = TypeVar("State")
Handlers = Mapping[Any, Callable[[State, Any], State]]
"""By type name, or by a class declared with @event."""
Decision = Callable[[State], "Event | object | Sequence[Event | object] | None"]


class EventAccess(Protocol):
    """The methods that a decision needs: of the store, or of a session on one connection."""

    async def append(
        self,
        events: Event | object | Sequence[Event | object],
        condition: AppendCondition | None = None,
        *,
        idempotency: Query | None = None,
    ) -> Appended: ...

    async def project(
        self, initial: State, handlers: Handlers[State], query: Query, *, after: Cursor | None = None
    ) -> tuple[State, Cursor]: ...


class Projection(Generic[State]):
    """The state of one query after the events that were read, and the cursor behind them."""

    def __init__(self, query: Query, initial: State, handlers: Handlers[State]) -> None:
        self._query, self._handlers = query, handlers
        self._initial, self._state = initial, deepcopy(initial)
        self._seen: Cursor | None = None

    async def decide(self, via: EventAccess, decision: Decision[State], idempotency: Query | None) -> Appended | None:
        """Read the new events, decide, and append unless another append has overtaken the decision."""
        decided = decision(await self.read(via))
        if decided is None or (isinstance(decided, Sequence) and not decided):
            return None
        return await via.append(decided, AppendCondition(self._query, self._seen), idempotency=idempotency)

    async def read(self, via: EventAccess) -> State:
        """The state after all visible events."""
        try:
            self._state, self._seen = await via.project(self._state, self._handlers, self._query, after=self._seen)
        except BaseException:
            # Handlers may change the state in place: continuing after a partial fold would apply events twice.
            self._state, self._seen = deepcopy(self._initial), None
            raise
        return self._state


def fold(initial: State, handlers: Handlers[State], events: Sequence[SequencedEvent]) -> State:
    """Apply the handler of each event's type, in order."""
    by_type = typed_handlers(handlers)
    state = initial
    for event in events:
        handler = by_type.get(event.type)
        if handler is not None:
            state = handler(state, event)
    return state
