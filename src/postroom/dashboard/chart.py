"""The day as bars: pure geometry, drawn by `templates/parts/day.html`."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from postroom.dashboard.model import EndedCount
from postroom.delivery.model import DeliveryState

STATES = (
    DeliveryState.SENT,
    DeliveryState.SUPPRESSED,
    DeliveryState.CANCELLED,
    DeliveryState.FAILED,
    DeliveryState.DEAD_LETTER,
)
"""From the ground up: what went well carries what did not."""

HEIGHT = 120
SLOT = 26
BAR = 20
_GAP = 1
_LEAST = 2  # one failure among thousands is still seen


@dataclass(frozen=True, slots=True)
class Block:
    """One state's share of one hour."""

    state: DeliveryState
    count: int
    x: int
    y: int
    height: int


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar."""

    at: datetime
    x: int
    total: int
    blocks: tuple[Block, ...]


@dataclass(frozen=True, slots=True)
class DayChart:
    """The bars, the totals beside them, and the height of the tallest."""

    hours: tuple[Bar, ...]
    totals: dict[DeliveryState, int]
    tallest: int
    height: int = HEIGHT
    slot: int = SLOT
    bar: int = BAR

    @property
    def width(self) -> int:
        return len(self.hours) * SLOT

    @property
    def total(self) -> int:
        return sum(self.totals.values())


def draw_day(ended: Sequence[EndedCount], *, first: datetime, hours: int) -> DayChart:
    """A bar per hour from `first` on; counts outside are left out."""
    counts = {(entry.hour, entry.state): entry.count for entry in ended}
    moments = [first + timedelta(hours=index) for index in range(hours)]
    sums = [sum(counts.get((moment, state), 0) for state in STATES) for moment in moments]
    tallest = max(sums, default=0)
    drawn = tuple(
        Bar(moment, index * SLOT, sums[index], _blocks(counts, moment, x=index * SLOT, tallest=tallest))
        for index, moment in enumerate(moments)
    )
    totals = {state: sum(counts.get((moment, state), 0) for moment in moments) for state in STATES}
    return DayChart(drawn, totals, tallest)


def _blocks(
    counts: dict[tuple[datetime, DeliveryState], int], moment: datetime, *, x: int, tallest: int
) -> tuple[Block, ...]:
    present = [(state, counts[moment, state]) for state in STATES if counts.get((moment, state))]
    # Gaps and least heights must not push a full bar out of the picture.
    room = HEIGHT - len(STATES) * (_GAP + _LEAST)
    blocks, ground = [], HEIGHT
    for state, count in present:
        height = max(_LEAST, round(room * count / tallest))
        blocks.append(Block(state, count, x + (SLOT - BAR) // 2, ground - height, height))
        ground -= height + _GAP
    return tuple(blocks)
