"""The performance targets as a literal table: the musts, and the moonshots beyond them.

A target is an absolute bound, or with `peer` a ratio to that subject's median in the same row of the same run.
"""

from dataclasses import dataclass
from enum import StrEnum

OURS = "postroom"


class Level(StrEnum):
    MUST = "must"
    MOONSHOT = "moonshot"


class Bound(StrEnum):
    AT_LEAST = "≥"
    BELOW = "<"


class Verdict(StrEnum):
    MET = "met"
    MISSED = "missed"
    UNKNOWN = "not measured"


@dataclass(frozen=True)
class Target:
    row: str
    level: Level
    value: float
    peer: str | None = None
    bound: Bound = Bound.AT_LEAST

    def judge(self, ours: float | None, peers: float | None) -> Verdict:
        """Whether our median keeps the promise; unknown when one side of the comparison was not measured."""
        if ours is None or (self.peer is not None and not peers):
            return Verdict.UNKNOWN
        reached = ours / peers if self.peer is not None and peers else ours
        kept = reached >= self.value if self.bound is Bound.AT_LEAST else reached < self.value
        return Verdict.MET if kept else Verdict.MISSED


MUST, MOONSHOT = Level.MUST, Level.MOONSHOT

TARGETS: tuple[Target, ...] = (
    Target("enqueue-batch", MUST, 15_000),
    Target("enqueue-batch", MOONSHOT, 30_000),
    Target("enqueue-batch", MOONSHOT, 1.0, peer="pgqueuer"),
    Target("enqueue-bodies", MUST, 8_000),
    Target("enqueue-bodies", MOONSHOT, 15_000),
    Target("enqueue-10", MUST, 2_500),
    Target("enqueue-10", MOONSHOT, 0.5, peer="postgresql"),
    Target("accept-http", MUST, 2_000),
    Target("accept-http", MOONSHOT, 4_000),
    Target("drain", MUST, 12_000),
    Target("drain", MUST, 1.0, peer="pgqueuer-500"),
    Target("drain", MUST, 20.0, peer="procrastinate"),
    Target("drain", MOONSHOT, 25_000),
    Target("drain", MOONSHOT, 0.8, peer="postgresql"),
    Target("drain-memory", MUST, 150, bound=Bound.BELOW),
    Target("drain-memory", MOONSHOT, 80, bound=Bound.BELOW),
    Target("end-to-end", MUST, 4_000),
    Target("end-to-end", MUST, 4.0, peer="django-post-office"),
    Target("end-to-end", MUST, 5.0, peer="postfix"),
    Target("end-to-end", MOONSHOT, 8_000),
    Target("end-to-end", MOONSHOT, 0.7, peer="postgresql"),
    Target("campaign", MUST, 2_500),
    Target("campaign", MOONSHOT, 5_000),
    Target("open-pixel", MUST, 8_000),
    Target("open-pixel", MOONSHOT, 0.5, peer="bare-pixel"),
    Target("code-p99", MUST, 1_000, bound=Bound.BELOW),
    Target("code-p99", MOONSHOT, 150, bound=Bound.BELOW),
    # Only growth breaks the promise: a claim that gets cheaper with depth is noise, not a fault.
    Target("claim-flatness", MUST, 1.20, bound=Bound.BELOW),
    Target("claim-flatness", MOONSHOT, 1.05, bound=Bound.BELOW),
)
