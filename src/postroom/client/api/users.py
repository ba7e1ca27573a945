"""The endpoints of users, and their types.

Generated from the table of endpoints by `./dev docs`: do not edit.
"""

from __future__ import annotations  # evaluated when an endpoint is first called

from collections.abc import Mapping
from datetime import date, datetime
from typing import TYPE_CHECKING, Any, Literal
from uuid import UUID

from msgspec import Struct

from postroom.client.calls import Kind, Resource, ResultPage, call, listing

if TYPE_CHECKING:
    ScheduledEventStatus = Literal["COMPLETED", "FAILED", "PENDING", "PROCESSING"]
else:  # a newer server may have more values
    ScheduledEventStatus = str


class User(Struct, frozen=True, kw_only=True):
    """A person to greet, as given by the caller."""

    first_name: str
    last_name: str
    date_of_birth: date
    timezone: str
    email: str | None
    webhook_url: str | None
    locale: str | None
    template: str | None
    id: UUID
    version: int
    created_at: datetime
    updated_at: datetime


class ChangedUser(Struct, frozen=True, kw_only=True):
    """A person to greet, as given by the caller."""

    first_name: str
    last_name: str
    date_of_birth: date
    timezone: str
    email: str | None
    webhook_url: str | None
    locale: str | None
    template: str | None
    id: UUID
    version: int
    created_at: datetime
    updated_at: datetime
    events_moved: int
    events_skipped: int


class OccasionPage(Struct, frozen=True, kw_only=True):
    """All occasions of a person."""

    items: list[Occasion]


class Occasion(Struct, frozen=True, kw_only=True):
    """A message besides the birthday greeting: its kind, rule and text."""

    id: UUID
    kind: str
    message: str
    rule: dict[str, Any]
    template: str | None


class ScheduledEvent(Struct, frozen=True, kw_only=True):
    """A planned or past event.

    `target_local` and `moved_from` are local times of the person, without a zone. `moved_from` is the time computed
    from the rule, if an operator moved the event.
    """

    user_id: UUID
    kind: str
    target_utc: datetime
    target_local: datetime
    timezone: str
    idempotency_key: str
    id: UUID
    status: ScheduledEventStatus
    executed_at: datetime | None
    failure_reason: str | None
    retry_count: int
    version: int
    delivery_id: int | None
    moved_from: datetime | None
    created_at: datetime
    updated_at: datetime
    late: bool


class UsersApi(Resource[Kind]):
    """The endpoints of users."""

    @listing("/v1/users")
    def list(self, *, cursor: str | None = None, limit: int = 50) -> ResultPage[User]:
        """List people, newest first."""

    @call("POST", "/v1/users", body=True)
    def create(
        self,
        *,
        first_name: str,
        last_name: str,
        date_of_birth: date,
        timezone: str,
        email: str | None = None,
        webhook_url: str | None = None,
        locale: str | None = None,
        template: str | None = None,
    ) -> User:
        """Create a person and plan their next birthday greeting."""

    @call("GET", "/v1/users/{user_id}")
    def get(self, user_id: UUID | str) -> User:
        """Read a person."""

    @call("PUT", "/v1/users/{user_id}", body=True)
    def update(
        self,
        user_id: UUID | str,
        *,
        first_name: str = ...,
        last_name: str = ...,
        date_of_birth: date = ...,
        timezone: str = ...,
        email: str | None = ...,
        webhook_url: str | None = ...,
        locale: str | None = ...,
        template: str | None = ...,
        version: int = ...,
    ) -> ChangedUser:
        """Change a person and move their planned greetings accordingly."""

    @call("DELETE", "/v1/users/{user_id}")
    def delete(self, user_id: UUID | str) -> None:
        """Delete a person and everything planned for them."""

    @listing("/v1/users/{user_id}/occasions")
    def list_occasions(self, user_id: UUID | str) -> OccasionPage:
        """List the occasions of a person: messages besides the birthday greeting."""

    @call("POST", "/v1/users/{user_id}/occasions", body=True)
    def add_occasion(
        self, user_id: UUID | str, *, kind: str, rule: Mapping[str, Any], message: str = "", template: str | None = None
    ) -> Occasion:
        """Add an anniversary, a reminder or a recurring message, and plan it."""

    @call("DELETE", "/v1/users/{user_id}/occasions/{occasion_id}")
    def remove_occasion(self, user_id: UUID | str, occasion_id: UUID | str) -> None:
        """Delete an occasion and its planned events."""

    @listing("/v1/scheduled-events")
    def list_scheduled_events(
        self,
        *,
        cursor: str | None = None,
        limit: int = 50,
        status: ScheduledEventStatus | None = None,
        kind: str | None = None,
        user_id: UUID | None = None,
        due_from: datetime | None = None,
        due_before: datetime | None = None,
        late: bool | None = None,
        order: Literal["latest", "soonest"] = "latest",
    ) -> ResultPage[ScheduledEvent]:
        """List past and planned events, by status, kind, person, time or lateness."""

    @call("GET", "/v1/scheduled-events/{event_id}")
    def get_scheduled_event(self, event_id: UUID | str) -> ScheduledEvent:
        """Read a scheduled event."""

    @call("POST", "/v1/scheduled-events/{event_id}/move", body=True)
    def move_scheduled_event(self, event_id: UUID | str, *, at: datetime, version: int) -> ScheduledEvent:
        """Move a planned event to another local time, which later planning keeps."""

    @call("POST", "/v1/scheduled-events/{event_id}/cancel", body=True)
    def cancel_scheduled_event(self, event_id: UUID | str, *, version: int | None = None) -> ScheduledEvent:
        """Cancel a planned event and plan the next occurrence."""

    @listing("/v1/users/{user_id}/events")
    def list_events(
        self, user_id: UUID | str, *, cursor: str | None = None, limit: int = 50
    ) -> ResultPage[ScheduledEvent]:
        """List the past and planned events of a person, latest first."""
