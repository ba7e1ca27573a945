"""The endpoints of mass actions, and their types.

Generated from the table of endpoints by `./dev docs`: do not edit.
"""

from __future__ import annotations  # evaluated when an endpoint is first called

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

from postroom.client.api.shared import Lane, StateFilter
from postroom.client.calls import Kind, Resource, ResultPage, call, listing

if TYPE_CHECKING:
    MassKind = Literal["cancel", "resend", "retry"]
else:  # a newer server may have more values
    MassKind = str


class MassAction(Struct, frozen=True, kw_only=True):
    """An action on all deliveries of a filter, and its progress."""

    id: int
    kind: MassKind
    actor: str
    filter: dict[str, Any]
    changed: int
    skipped: dict[str, int]
    created_at: datetime
    finished_at: datetime | None


class MassPreview(Struct, frozen=True, kw_only=True):
    """The number of deliveries that an action would change, and of those it would skip, by reason.

    `is_complete` is False if the filter selects more than were examined.
    """

    changed: int
    skipped: dict[str, int]
    before_id: int
    is_complete: bool


class MassActionsApi(Resource[Kind]):
    """The endpoints of mass actions."""

    @listing("/v1/mass-actions")
    def list(self, *, cursor: str | None = None, limit: int = 50) -> ResultPage[MassAction]:
        """List mass actions, newest first."""

    @call("POST", "/v1/mass-actions", body=True, keyed=True)
    def start(
        self,
        *,
        kind: MassKind,
        status: StateFilter | None = None,
        lane: Lane | None = None,
        recipient: str | None = None,
        recipient_contains: str | None = None,
        recipient_domain: str | None = None,
        template: str | None = None,
        source: str | None = None,
        idempotency_key_: str | None = None,
        message_id: str | None = None,
        tag: str | None = None,
        campaign_id: int | None = None,
        campaign: str | None = None,
        sender_account_id: int | None = None,
        created_from: datetime | None = None,
        created_before: datetime | None = None,
        finished_before: datetime | None = None,
        reason: str | None = None,
        custom_data: str | None = None,
        ids: Sequence[int] | None = None,
        before_id: int | None = None,
        idempotency_key: str | None = None,
    ) -> MassAction:
        """Cancel, retry or resend all deliveries that a filter selects. Workers continue what the request leaves."""

    @call("POST", "/v1/mass-actions/preview", body=True)
    def preview(
        self,
        *,
        kind: MassKind,
        status: StateFilter | None = None,
        lane: Lane | None = None,
        recipient: str | None = None,
        recipient_contains: str | None = None,
        recipient_domain: str | None = None,
        template: str | None = None,
        source: str | None = None,
        idempotency_key: str | None = None,
        message_id: str | None = None,
        tag: str | None = None,
        campaign_id: int | None = None,
        campaign: str | None = None,
        sender_account_id: int | None = None,
        created_from: datetime | None = None,
        created_before: datetime | None = None,
        finished_before: datetime | None = None,
        reason: str | None = None,
        custom_data: str | None = None,
        ids: Sequence[int] | None = None,
        before_id: int | None = None,
    ) -> MassPreview:
        """Count the deliveries that a mass action would change, and those it would skip by reason."""

    @call("GET", "/v1/mass-actions/{action_id}")
    def get(self, action_id: int) -> MassAction:
        """Show a mass action and its progress."""
