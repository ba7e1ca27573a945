"""The endpoints of malformed commands, and their types.

Generated from the table of endpoints by `./dev docs`: do not edit.
"""

from __future__ import annotations  # evaluated when an endpoint is first called

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from msgspec import Struct

from postroom.client.calls import Kind, Resource, call, listing


class MalformedPage(Struct, frozen=True, kw_only=True):
    """Malformed commands, newest first; `waiting` counts those neither resubmitted nor dismissed, up to 10,000."""

    items: list[MalformedSummary]
    next_cursor: str | None
    waiting: int


class MalformedSummary(Struct, frozen=True, kw_only=True):
    """One malformed command. `delivery_id` is its delivery after a resubmission."""

    id: int
    recorded_at: datetime
    resubmitted_at: datetime | None
    dismissed_at: datetime | None
    delivery_id: int | None
    source: str
    reason: str
    detail: str | None
    entry: str | None
    size: int


class MalformedDetail(Struct, frozen=True, kw_only=True):
    """One malformed command with its bytes in base64."""

    id: int
    recorded_at: datetime
    resubmitted_at: datetime | None
    dismissed_at: datetime | None
    delivery_id: int | None
    source: str
    reason: str
    detail: str | None
    entry: str | None
    size: int
    raw: str


class Resubmitted(Struct, frozen=True, kw_only=True):
    """The malformed command and its delivery."""

    id: int
    delivery_id: int
    status: str
    replayed: bool


class MalformedCommandsApi(Resource[Kind]):
    """The endpoints of malformed commands."""

    @listing("/v1/malformed-commands")
    def list(
        self,
        *,
        cursor: str | None = None,
        limit: int = 50,
        reason: str | None = None,
        source: str | None = None,
        resubmitted: bool | None = None,
        dismissed: bool | None = None,
    ) -> MalformedPage:
        """List commands from streams that could not be accepted, newest first."""

    @call("GET", "/v1/malformed-commands/{command_id}")
    def get(self, command_id: int) -> MalformedDetail:
        """Show a malformed command with its bytes, which may contain personal data or secrets."""

    @call("POST", "/v1/malformed-commands/{command_id}/resubmit", body=True)
    def resubmit(
        self, command_id: int, *, payload: Mapping[str, Any] | None = None, fields: Mapping[str, str | None] = ...
    ) -> Resubmitted:
        """Accept a malformed command; to change it first, the key also needs deliveries:write."""

    @call("POST", "/v1/malformed-commands/{command_id}/dismiss")
    def dismiss(self, command_id: int) -> MalformedSummary:
        """Dismiss a malformed command: it is kept, but no longer counted as waiting."""
