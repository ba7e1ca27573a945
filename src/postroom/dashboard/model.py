"""The figures of the overview."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from postroom.delivery.model import DeadLetter, DeliveryState, Lane, LaneDepth


@dataclass(frozen=True, slots=True)
class EndedCount:
    """How many deliveries ended in one state within one hour."""

    hour: datetime
    state: DeliveryState
    count: int


@dataclass(frozen=True, slots=True)
class SeenWorker:
    """A worker and when it was last heard of; `asleep` names the lanes in which it waits for work."""

    id: int
    pid: int
    host: str
    started_at: datetime
    seen_at: datetime
    asleep: tuple[Lane, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OverviewFigures:
    """The overview at one moment."""

    at: datetime
    lanes: Sequence[LaneDepth]
    sending: dict[Lane, int]
    ended: Sequence[EndedCount]
    dead_letters: Sequence[DeadLetter]
    workers: Sequence[SeenWorker]
