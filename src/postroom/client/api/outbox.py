"""The endpoints of outbox, and their types.

Generated from the table of endpoints by `./dev docs`: do not edit.
"""

from __future__ import annotations  # evaluated when an endpoint is first called

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from postroom.client.api.shared import Lane
from postroom.client.calls import Kind, Resource, ResultPage, call, listing

if TYPE_CHECKING:
    PublisherStatus = Literal["ACTIVE", "FAILED", "PAUSED"]
else:  # a newer server may have more values
    PublisherStatus = str


class Progress(Struct, frozen=True, kw_only=True):
    """One line of the listing: a publisher's progress, lag, leader and last error.

    `lag_is_more`: more events follow than were counted. `lag_seconds`: the age of the oldest unpublished event, by its
    `occurred_at`.
    """

    topic: str
    publisher: str
    status: PublisherStatus
    last_position: int
    last_transaction_id: int
    last_published_at: datetime | None
    error_count: int
    last_error: str | None
    failed_position: int | None
    leader_instance: str | None
    leader_since: datetime | None
    leader_heartbeat: datetime | None
    lag_events: int
    lag_is_more: bool
    lag_seconds: float
    stall: Stall | None


class Stall(Struct, frozen=True, kw_only=True):
    """The open transaction that holds back committed events. `prepared` names one without a session."""

    pid: int | None
    seconds: float
    database: str | None
    application_name: str | None
    state: str | None
    prepared: str | None


class Topic(Struct, frozen=True, kw_only=True):
    """The conditions of the events published under a name. All four must hold; an empty one matches every event."""

    name: str
    types: list[str]
    required_keys: list[str]
    any_keys: list[str]
    exact_tags: list[str]
    created_at: datetime | None
    publishers: list[str]


class Rule(Struct, frozen=True, kw_only=True):
    """A stored rule: events of one type in a topic become mails."""

    topic: str
    event_type: str
    template: str
    recipient_path: str
    locale_path: str | None
    lane: Lane
    id: int
    created_at: datetime | None


class OutboxDone(Struct, frozen=True, kw_only=True):
    """The request was carried out."""

    done: bool


class ProgressReset(Struct, frozen=True, kw_only=True):
    """The result of a reset. `rewinds` is true if events that were published before will be published again."""

    from_position: int
    to_position: int
    rewinds: bool


class Skipped(Struct, frozen=True, kw_only=True):
    """An event that a publisher skipped."""

    position: int
    type: str


class OutboxApi(Resource[Kind]):
    """The endpoints of outbox."""

    @listing("/v1/outbox")
    def list(self) -> ResultPage[Progress]:
        """List the progress of each publisher and the transaction that stalls it."""

    @listing("/v1/outbox/topics")
    def list_topics(self) -> ResultPage[Topic]:
        """List topics."""

    @call("POST", "/v1/outbox/topics", body=True)
    def create_topic(
        self,
        *,
        name: str,
        types: Sequence[str] = (),
        required_keys: Sequence[str] = (),
        any_keys: Sequence[str] = (),
        exact_tags: Sequence[str] = (),
        publishers: Sequence[str] = (),
        start: Literal["beginning", "now"] = "now",
    ) -> Topic:
        """Create a topic."""

    @listing("/v1/outbox/rules")
    def list_rules(self) -> ResultPage[Rule]:
        """List mail rules."""

    @call("POST", "/v1/outbox/rules", body=True)
    def create_rule(
        self,
        *,
        topic: str,
        event_type: str,
        template: str,
        recipient_path: str,
        locale_path: str | None = None,
        lane: Lane = "transactional",
    ) -> Rule:
        """Create a mail rule."""

    @call("DELETE", "/v1/outbox/rules/{rule_id}")
    def delete_rule(self, rule_id: int) -> OutboxDone:
        """Delete a rule."""

    @call("GET", "/v1/outbox/topics/{name}")
    def get_topic(self, name: str) -> Topic:
        """Show a topic."""

    @call("PUT", "/v1/outbox/topics/{name}", body=True)
    def change_topic(
        self,
        name: str,
        *,
        types: Sequence[str] = (),
        required_keys: Sequence[str] = (),
        any_keys: Sequence[str] = (),
        exact_tags: Sequence[str] = (),
        publishers: Sequence[str] = (),
        start: Literal["beginning", "now"] = "now",
        everything: bool = False,
    ) -> Topic:
        """Create a topic, or replace its conditions."""

    @call("DELETE", "/v1/outbox/topics/{name}")
    def delete_topic(self, name: str, *, force: bool = False) -> OutboxDone:
        """Delete a topic."""

    @call("PUT", "/v1/outbox/{topic}/{publisher}", body=True)
    def add_publisher(self, topic: str, publisher: str, *, start: Literal["beginning", "now"] = "now") -> Progress:
        """Subscribe a publisher to a topic; an existing one keeps its position."""

    @call("DELETE", "/v1/outbox/{topic}/{publisher}")
    def remove_publisher(self, topic: str, publisher: str, *, force: bool = False) -> OutboxDone:
        """Unsubscribe a publisher from a topic."""

    @call("POST", "/v1/outbox/{topic}/{publisher}/pause")
    def pause_publisher(self, topic: str, publisher: str) -> Progress:
        """Pause a publisher."""

    @call("POST", "/v1/outbox/{topic}/{publisher}/resume")
    def resume_publisher(self, topic: str, publisher: str) -> Progress:
        """Resume a publisher."""

    @call("POST", "/v1/outbox/{topic}/{publisher}/reset", body=True)
    def reset_publisher(self, topic: str, publisher: str, *, position: int) -> ProgressReset:
        """Continue after a position; reports whether that rewinds."""

    @call("POST", "/v1/outbox/{topic}/{publisher}/skip", body=True)
    def skip_event(self, topic: str, publisher: str, *, position: int) -> Skipped:
        """Skip the next event; audited."""
