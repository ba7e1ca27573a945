"""A filter of deliveries, by which listings and mass actions choose. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from postroom.delivery.model import WAITING, DeliveryState, Lane


class StateFilter(StrEnum):
    """A state to select deliveries by; `waiting` is queued or rendered."""

    WAITING = "waiting"
    QUEUED = "queued"
    RENDERED = "rendered"
    SENDING = "sending"
    SENT = "sent"
    FAILED = "failed"
    DEAD_LETTER = "dead_letter"
    CANCELLED = "cancelled"
    SUPPRESSED = "suppressed"

    @property
    def states(self) -> frozenset[DeliveryState]:
        """The states that it selects."""
        return WAITING if self is StateFilter.WAITING else frozenset({DeliveryState(self.value)})


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryFilter:
    """A filter of deliveries; None selects all."""

    state: StateFilter | None = None
    lane: Lane | None = None
    recipient: str | None = None
    recipient_contains: str | None = None  # a part of an address, case-insensitive
    recipient_domain: str | None = None
    template_id: str | None = None
    source: str | None = None
    idempotency_key: str | None = None
    message_id: str | None = None
    campaign_id: int | None = None
    endpoint_id: int | None = None
    sender_account_id: int | None = None  # the account of the last claim
    tags: Mapping[str, str] | None = None
    custom_data: Mapping[str, Any] | None = None
    created_from: datetime | None = None
    created_before: datetime | None = None
    finished_before: datetime | None = None
    reason: str | None = None  # of its last attempt or its end; of a dead letter, why it was given up
    ids: tuple[int, ...] | None = None
