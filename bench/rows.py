"""The rows of the benchmark. An experiment is one thing a subject does; it fills one or more rows of the report."""

from dataclasses import dataclass
from enum import StrEnum


class Unit(StrEnum):
    """How a row's value reads, and by that which direction is good."""

    PER_SECOND = "/s"
    MILLISECONDS = "ms"
    MEGABYTES = "MB"
    RATIO = "×"


@dataclass(frozen=True)
class Row:
    name: str
    title: str
    unit: Unit = Unit.PER_SECOND

    @property
    def more_is_better(self) -> bool:
        return self.unit is Unit.PER_SECOND


@dataclass(frozen=True)
class Experiment:
    """`first` is the size of the warm-up that tells how many make the round last; without it the size is fixed."""

    name: str
    rows: tuple[Row, ...]
    first: int | None = None
    full: int = 0
    quick: int = 0


def by_rate(name: str, title: str, first: int, *more: Row) -> Experiment:
    return Experiment(name, (Row(name, title), *more), first=first)


EXPERIMENTS: tuple[Experiment, ...] = (
    by_rate("enqueue-1", "enqueue one by one, 1 client", 100),
    by_rate("enqueue-10", "enqueue one by one, 10 clients", 500),
    by_rate("enqueue-batch", "enqueue in batches of 1,000: template and variables", 2_000),
    by_rate("enqueue-bodies", "enqueue in batches of 1,000: a 4 KB body each", 2_000),
    by_rate("accept-http", "accept one over HTTP, 32 clients", 500),
    by_rate(
        "drain",
        "drain into a no-op, 2 processes",
        2_000,
        Row("drain-memory", "largest worker process while draining", Unit.MEGABYTES),
    ),
    by_rate(
        "end-to-end",
        "queue to SMTP sink, 5 KB multipart, 2 processes",
        1_000,
        Row("end-to-end-memory", "largest worker process while sending", Unit.MEGABYTES),
    ),
    Experiment(
        "claim",
        (
            Row("claim-shallow", "claim 100 with 1,000 waiting", Unit.MILLISECONDS),
            Row("claim-deep", "claim 100 with 1,000,000 waiting (20,000 if quick)", Unit.MILLISECONDS),
            Row("claim-flatness", "deep claim ÷ shallow claim", Unit.RATIO),
        ),
        full=1_000_000,
        quick=20_000,
    ),
    Experiment(
        "code",
        (
            Row("code-p50", "one-time code, accepted to wire, bulk waiting: median", Unit.MILLISECONDS),
            Row("code-p99", "one-time code, accepted to wire, bulk waiting: 99th percentile", Unit.MILLISECONDS),
        ),
        full=1_000_000,
        quick=10_000,
    ),
)

ROWS: dict[str, Row] = {row.name: row for experiment in EXPERIMENTS for row in experiment.rows}


def chosen_experiments(names: list[str]) -> tuple[Experiment, ...]:
    """The named experiments in the order of the report; all of them when none is named."""
    known = {experiment.name for experiment in EXPERIMENTS}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ValueError(f"no such row: {', '.join(unknown)} (there are {', '.join(sorted(known))})")
    return tuple(experiment for experiment in EXPERIMENTS if not names or experiment.name in names)
