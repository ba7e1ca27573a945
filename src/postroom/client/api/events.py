"""The endpoints of events, and their types.

Generated from the table of endpoints by `./dev docs`: do not edit.
"""

from __future__ import annotations  # evaluated when an endpoint is first called

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct, field

from postroom.client.calls import Kind, Resource, ResultPage, call, listing


class KeptCommand(Struct, frozen=True, kw_only=True):
    """A command, when it was executed, and its result; its events carry the same transaction id."""

    id: int
    transaction_id: int
    occurred_at: datetime
    type: str
    command_id: str
    data: Any
    metadata: Any
    result: Any


class EventPage(Struct, frozen=True, kw_only=True):
    """Events in order. `cursor` is safe as `after` of a condition; `next_cursor` is set if more events may follow."""

    items: list[SequencedEvent]
    next_cursor: str | None
    cursor: str


class SequencedEvent(Struct, frozen=True, kw_only=True):
    """A stored event. `GET /v1/commands?transaction_id=…` finds the command that appended it."""

    position: int
    transaction_id: int
    occurred_at: datetime
    type: str
    tags: list[str]
    data: Any
    correlation_id: str | None
    causation_id: str | None


class NewEvent(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An event to append."""

    type: str
    data: Any = field(default_factory=dict)
    tags: Sequence[str] = ()
    correlation_id: str | None = None
    causation_id: str | None = None


class Condition(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """No event that matches the query was appended after the cursor; without a cursor, none exists at all."""

    query: Sequence[QueryItem]
    after: str | None = None


class QueryItem(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Matches events with one of these types (empty: any) and all of these tags (empty: any)."""

    types: Sequence[str] = ()
    tags: Sequence[str] = ()


class Appended(Struct, frozen=True, kw_only=True):
    """The transaction and position of the last appended event.

    `cursor`, if there was a condition: the `after` of the next append with the same query.
    """

    position: int
    transaction_id: int
    events_count: int
    cursor: str | None


class Head(Struct, frozen=True, kw_only=True):
    """The end of the store: the largest position, and a cursor after all events."""

    position: int
    cursor: str


class EventsApi(Resource[Kind]):
    """The endpoints of events."""

    @listing("/v1/commands")
    def list_commands(
        self, *, cursor: str | None = None, limit: int = 50, transaction_id: int | None = None
    ) -> ResultPage[KeptCommand]:
        """List executed commands with their results, newest first."""

    @listing("/v1/events")
    def list(
        self,
        *,
        type: str | Sequence[str] | None = None,
        tag: str | Sequence[str] | None = None,
        query: str | None = None,
        cursor: str | None = None,
        limit: int = 100,
        backwards: bool = False,
    ) -> EventPage:
        """List matching events in order; newest first with backwards=true."""

    @call("POST", "/v1/events", body=True, keyed=True)
    def append(
        self,
        *,
        events: Sequence[NewEvent],
        condition: Condition | None = None,
        idempotency: Sequence[QueryItem] | None = None,
        occurred_at: datetime | None = None,
        idempotency_key: str | None = None,
    ) -> Appended:
        """Append events, all or none, if the condition holds; 409 names the event that matched."""

    @call("GET", "/v1/events/head")
    def get_head(self) -> Head:
        """Show the end of the store."""
