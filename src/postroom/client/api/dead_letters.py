"""The endpoints of dead letters, and their types.

Generated from the table of endpoints by `./dev docs`: do not edit.
"""

from __future__ import annotations  # evaluated when an endpoint is first called

from datetime import datetime
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from postroom.client.api.shared import Channel, Lane
from postroom.client.calls import Kind, Resource, ResultPage, call, listing

if TYPE_CHECKING:
    Reason = Literal["ambiguous", "attempts_exhausted", "max_age"]
else:  # a newer server may have more values
    Reason = str


class DeadLetter(Struct, frozen=True, kw_only=True):
    """A delivery given up, with the reason. The subject of the lane `auth`, which can contain a code, is hidden."""

    lane: Lane
    channel: Channel
    source: str
    template: str | None
    campaign_name: str | None
    subject: str | None
    attempt_count: int
    created_at: datetime
    reason: str
    delivery_id: int
    detail: str | None
    recipients: list[str]


class Settled(Struct, frozen=True, kw_only=True):
    """An ambiguous delivery that an operator has marked as sent."""

    id: int
    status: str


class DeadLettersApi(Resource[Kind]):
    """The endpoints of dead letters."""

    @listing("/v1/dead-letters")
    def list(
        self, *, cursor: str | None = None, limit: int = 50, reason: Reason | None = None
    ) -> ResultPage[DeadLetter]:
        """List deliveries that were given up, newest first."""

    @call("POST", "/v1/dead-letters/{delivery_id}/settle")
    def settle(self, delivery_id: int) -> Settled:
        """Mark an ambiguous dead letter as sent: it did arrive, and is not sent again."""
