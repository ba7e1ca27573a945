"""Mass actions, and which deliveries each of them can change. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

import msgspec

from postroom.delivery.filter import DeliveryFilter
from postroom.delivery.model import ENDED, WAITING, DeliveryId, DeliveryState


class MassKind(StrEnum):
    """The change that a mass action makes to each delivery."""

    CANCEL = "cancel"
    RETRY = "retry"
    RESEND = "resend"


class Obstacle(StrEnum):
    """The reason why a delivery is skipped."""

    WAITING = "waiting"  # a resend repeats deliveries that have ended
    SENDING = "sending"
    ENDED = "ended"
    CONTENT_DELETED = "content_deleted"
    EXPIRED = "expired"
    RESENT = "resent"  # a resend has copied it: the copy is the one that leaves again
    CAMPAIGN_CANCELLED = "campaign_cancelled"


@dataclass(frozen=True, slots=True)
class Standing:
    """The facts about some deliveries that decide whether they can be changed."""

    ids: tuple[DeliveryId, ...]
    state: DeliveryState
    has_body: bool
    is_expired: bool
    is_campaign_cancelled: bool
    is_resent: bool = False
    is_withdrawn: bool = False  # a dead letter whose cause was deleted: it must not leave again


@dataclass(frozen=True, slots=True, kw_only=True)
class MassPreview:
    """The number of deliveries that an action would change, and of those it would skip, by reason.

    `is_complete` is False if the filter selects more than were examined.
    """

    changed: int
    skipped: Mapping[str, int]
    before_id: int  # deliveries from this id on were accepted later
    is_complete: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class MassAction:
    """An action on all deliveries of a filter, and its progress."""

    id: int
    kind: MassKind
    actor: str
    filter: DeliveryFilter
    changed: int
    skipped: Mapping[str, int]
    created_at: datetime
    finished_at: datetime | None  # None: steps remain, or mail that it covers can still leave


@dataclass(frozen=True, slots=True, kw_only=True)
class MassWork:
    """The next step of an unfinished action."""

    kind: MassKind
    filter: DeliveryFilter
    before_id: int  # 0: all deliveries of the filter were examined, and only `pending` are left
    from_id: int  # deliveries from this id on were accepted later
    pending: Sequence[DeliveryId]  # a cancel looks at these again: workers hold them, or they were locked

    @property
    def takes_back(self) -> bool:
        """True for a cancel of waiting mail: it also stops mail that returns to the queue from a worker."""
        state = self.filter.state
        return self.kind is MassKind.CANCEL and state is not None and state.states <= WAITING


def obstacle(kind: MassKind, delivery: Standing) -> Obstacle | None:
    """The reason why deliveries with these facts cannot be changed, None if they can."""
    if delivery.state is DeliveryState.SENDING:
        return Obstacle.SENDING
    if kind is MassKind.CANCEL:
        return None if delivery.state in WAITING else Obstacle.ENDED
    if kind is MassKind.RETRY and delivery.state in WAITING:
        return Obstacle.CAMPAIGN_CANCELLED if delivery.is_campaign_cancelled else None
    if kind is MassKind.RETRY and (delivery.is_withdrawn or delivery.state is not DeliveryState.DEAD_LETTER):
        return Obstacle.ENDED
    return _resend_obstacle(delivery, is_resend=kind is MassKind.RESEND)


def _resend_obstacle(delivery: Standing, *, is_resend: bool) -> Obstacle | None:
    """The obstacle of a delivery that leaves once more: a resent one, or a dead letter."""
    if delivery.state not in ENDED:
        return Obstacle.WAITING
    if delivery.is_campaign_cancelled:
        return Obstacle.CAMPAIGN_CANCELLED
    if not delivery.has_body:
        return Obstacle.CONTENT_DELETED
    if delivery.is_resent:
        return Obstacle.RESENT
    return Obstacle.EXPIRED if is_resend and delivery.is_expired else None


def write_filter(chosen: DeliveryFilter) -> dict[str, Any]:
    """The filter as JSON, without the fields that select all."""
    fields: dict[str, Any] = msgspec.to_builtins(chosen)
    return {name: value for name, value in fields.items() if value is not None}


def read_filter(written: str) -> DeliveryFilter:
    return msgspec.json.decode(written, type=DeliveryFilter)
