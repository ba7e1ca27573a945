"""The performance targets as a literal table: the musts, and the moonshots beyond them.

A target is an absolute bound, or with `peer` a ratio to that subject's median in the same row of the same run.
"""

from dataclasses import dataclass
from enum import StrEnum

from bench.listings import listing_rows
from bench.rows import LISTED, PAGES

OURS = "postroom"


class Level(StrEnum):
    MUST = "must"
    MOONSHOT = "moonshot"


class Bound(StrEnum):
    AT_LEAST = "≥"
    AT_MOST = "≤"


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
        kept = reached >= self.value if self.bound is Bound.AT_LEAST else reached <= self.value
        return Verdict.MET if kept else Verdict.MISSED


MUST, MOONSHOT = Level.MUST, Level.MOONSHOT

TARGETS: tuple[Target, ...] = (
    Target("accept-open-postgresql", MUST, 4.0, peer="postgresql", bound=Bound.AT_MOST),
    Target("accept-open-postgresql", MOONSHOT, 2.5, peer="postgresql", bound=Bound.AT_MOST),
    Target("accept-open-python", MUST, 100, bound=Bound.AT_MOST),
    Target("accept-open-python", MOONSHOT, 60, bound=Bound.AT_MOST),
    Target("enqueue-1", MUST, 1.0, peer="pgqueuer"),
    Target("enqueue-1", MOONSHOT, 1.5, peer="pgqueuer"),
    Target("enqueue-10", MUST, 1.0, peer="pgqueuer"),
    Target("enqueue-10", MOONSHOT, 1.5, peer="pgqueuer"),
    Target("alone-1", MUST, 1.0, peer="pgqueuer"),
    Target("alone-1", MOONSHOT, 1.5, peer="pgqueuer"),
    Target("alone-10", MUST, 1.0, peer="pgqueuer"),
    Target("alone-10", MOONSHOT, 1.5, peer="pgqueuer"),
    Target("enqueue-batch", MUST, 0.6, peer="pgqueuer"),
    Target("enqueue-batch", MOONSHOT, 1.0, peer="pgqueuer"),
    Target("accept-http", MUST, 2_000),
    Target("accept-http", MOONSHOT, 4_000),
    Target("drain-python", MUST, 60, bound=Bound.AT_MOST),
    Target("drain-python", MOONSHOT, 35, bound=Bound.AT_MOST),
    Target("drain-postgresql", MUST, 50, bound=Bound.AT_MOST),
    Target("drain-postgresql", MOONSHOT, 35, bound=Bound.AT_MOST),
    Target("drain", MUST, 1.0, peer="pgqueuer-500"),
    Target("drain-memory", MUST, 100, bound=Bound.AT_MOST),
    Target("drain-memory", MOONSHOT, 80, bound=Bound.AT_MOST),
    Target("end-to-end-python", MUST, 150, bound=Bound.AT_MOST),
    Target("end-to-end-postgresql", MUST, 90, bound=Bound.AT_MOST),
    Target("end-to-end", MUST, 8.0, peer="django-post-office"),
    Target("end-to-end", MOONSHOT, 0.5, peer="postgresql"),
    Target("end-to-end-memory", MUST, 100, bound=Bound.AT_MOST),
    Target("end-to-end-memory", MOONSHOT, 80, bound=Bound.AT_MOST),
    Target("end-to-end-tls", MUST, 5.0, peer="django-post-office"),
    Target("end-to-end-tls", MOONSHOT, 7.0, peer="django-post-office"),
    Target("end-to-end-tls-plain", MUST, 2.0, bound=Bound.AT_MOST),
    Target("end-to-end-tls-plain", MOONSHOT, 1.5, bound=Bound.AT_MOST),
    Target("end-to-end-tls-memory", MUST, 100, bound=Bound.AT_MOST),
    Target("campaign", MUST, 4_000),  # 1.6 times the 2,500/s before waiting mail had its own table
    Target("campaign", MOONSHOT, 5_000),
    Target("wire-p50", MUST, 15, bound=Bound.AT_MOST),
    Target("wire-p50", MOONSHOT, 5, bound=Bound.AT_MOST),
    Target("wire-p99", MUST, 50, bound=Bound.AT_MOST),
    Target("code-p99", MUST, 1_000, bound=Bound.AT_MOST),
    Target("code-p99", MOONSHOT, 150, bound=Bound.AT_MOST),
    Target("kept-body", MUST, 1_400, bound=Bound.AT_MOST),
    Target("kept-body", MOONSHOT, 900, bound=Bound.AT_MOST),
    Target("kept-template", MUST, 1_400, bound=Bound.AT_MOST),
    Target("kept-template", MOONSHOT, 900, bound=Bound.AT_MOST),
    *(Target(f"page-{name}-p95", MUST, 50, bound=Bound.AT_MOST) for name in PAGES),
    *(Target(f"page-{name}-bytes", MUST, 100_000, bound=Bound.AT_MOST) for name in PAGES),
    Target("live-p95", MUST, 1_000, bound=Bound.AT_MOST),
    *(Target(f"list-{name}", MUST, 20, bound=Bound.AT_MOST) for name in LISTED),
    *(Target(name, MUST, 20 if "/v1/" in name else 50, bound=Bound.AT_MOST) for name in listing_rows()),
    # Only growth breaks the promise: a claim that gets cheaper with depth is noise, not a fault.
    *(
        Target(f"{name}-growth", level, value, bound=Bound.AT_MOST)
        for name in (*(f"list-{name}" for name in LISTED), *listing_rows(), "grown-claim", "grown-append", "grown-tick")
        for level, value in ((MUST, 1.20), (MOONSHOT, 1.05))
    ),
)
