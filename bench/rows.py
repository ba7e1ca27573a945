"""The rows of the benchmark. An experiment is one activity of a subject; it fills one or more rows of the report."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from bench.listings import listing_rows


class Unit(StrEnum):
    """The unit of a row's values."""

    PER_SECOND = "/s"
    MICROSECONDS = "µs"
    MILLISECONDS = "ms"
    BYTES = "B"
    MEGABYTES = "MB"
    RATIO = "×"
    COUNT = ""


@dataclass(frozen=True)
class Row:
    name: str
    title: str
    unit: Unit = Unit.PER_SECOND
    cost_of: str | None = None
    """The row beside whose rate this cost is shown, as a column."""


@dataclass(frozen=True)
class Experiment:
    """`first` is the size of the warm-up that decides how many make the round last; without it the size is fixed."""

    name: str
    rows: tuple[Row, ...]
    first: int | None = None
    full: int = 0
    quick: int = 0


COSTS: Mapping[str, tuple[str, Unit]] = {
    "postgresql": ("PostgreSQL CPU", Unit.MICROSECONDS),
    "python": ("Python CPU", Unit.MICROSECONDS),
    "wal": ("WAL", Unit.BYTES),
    "statements": ("statements", Unit.COUNT),
}
"""The cost of one operation, for every row that is a rate: see `cost.Spent`."""


def by_rate(name: str, title: str, first: int, *more: Row) -> Experiment:
    return Experiment(name, (Row(name, title), *cost_rows(name), *more), first=first)


def cost_rows(name: str) -> tuple[Row, ...]:
    return tuple(Row(f"{name}-{cost}", title, unit, cost_of=name) for cost, (title, unit) in COSTS.items())


def percentiles(name: str, title: str, *, full: int, quick: int) -> Experiment:
    """Rows of a latency: its median and its 99th percentile."""
    rows = (
        Row(f"{name}-p50", f"{title}: median", Unit.MILLISECONDS),
        Row(f"{name}-p99", f"{title}: 99th percentile", Unit.MILLISECONDS),
    )
    return Experiment(name, rows, full=full, quick=quick)


def memory_row(name: str, what: str) -> Row:
    return Row(f"{name}-memory", f"largest worker process while {what}", Unit.MEGABYTES)


LISTED = (
    "newest", "recipient", "part", "domain", "cancelled", "sent", "template", "source", "campaign", "lane", "sender",
    "tag", "custom-data", "key", "message-id", "reason", "time", "finished", "combined",
)  # fmt: skip
"""Filters of the listing of deliveries: see `growth.LISTINGS`. Those of all others are in `listings.LISTINGS`."""


def growth_rows() -> Iterator[Row]:
    """The time in a large room, its ratio to that in a room of 10,000, and the CPU of a page."""
    titles = {f"list-{name}": f"50 deliveries by {name}" for name in LISTED}
    titles |= {
        "grown-claim": "a claim of 100",
        "grown-append": "a conditional append",
        "grown-tick": "a tick that hands over 100 events",
    }
    titles |= {name: name for name in listing_rows()}
    for name, title in titles.items():
        yield Row(name, f"{title}, among 1,000,000 (--size)", Unit.MILLISECONDS)
        yield Row(f"{name}-growth", f"{title}: ÷ among 10,000", Unit.RATIO)
    for name in (*(f"list-{name}" for name in LISTED), *listing_rows()):
        yield Row(f"{name}-postgresql", f"{name}: CPU of PostgreSQL", Unit.MICROSECONDS, cost_of=name)
        yield Row(f"{name}-python", f"{name}: CPU of Python", Unit.MICROSECONDS, cost_of=name)


PAGES = {
    "overview": "/",
    "deliveries": "/deliveries",
    "statistics": "/statistics?days=30",
    "domains": "/statistics?by=domain&days=30",
    "tags": "/statistics?by=tag",
}
"""Pages of the dashboard that are measured, and their addresses."""


def page_rows() -> Iterator[Row]:
    for name in PAGES:
        title = f"page {name}, 1,000,000 deliveries (--size)"
        yield Row(f"page-{name}-p50", f"{title} and 10,000 a minute: median", Unit.MILLISECONDS)
        yield Row(f"page-{name}-p95", f"{title} and 10,000 a minute: 95th percentile", Unit.MILLISECONDS)
        yield Row(f"page-{name}-python", f"{title}: CPU of Python", Unit.MICROSECONDS)
        yield Row(f"page-{name}-postgresql", f"{title}: CPU of PostgreSQL", Unit.MICROSECONDS)
        yield Row(f"page-{name}-bytes", f"{title}: size", Unit.BYTES)
    yield Row("live-p50", "commit to the live overview: median", Unit.MILLISECONDS)
    yield Row("live-p95", "commit to the live overview: 95th percentile", Unit.MILLISECONDS)


EXPERIMENTS: tuple[Experiment, ...] = (
    by_rate("accept-open", "accept one inside one open transaction", 300),
    by_rate("enqueue-1", "accept one in the caller's transaction, 1 client", 100),
    # Peers run `enqueue-1` again, for a ratio within the same rounds.
    by_rate("enqueue-1-role", "accept one in the caller's transaction, 1 client, role of an application", 100),
    by_rate("enqueue-10", "accept one in the caller's transaction, 10 clients", 500),
    by_rate("alone-1", "accept one in a statement of its own, 1 client", 100),
    by_rate("alone-10", "accept one in a statement of its own, 10 clients", 500),
    by_rate("enqueue-batch", "accept in batches of 1,000: template and variables", 2_000),
    by_rate("enqueue-bodies", "accept in batches of 1,000: a 4 KB body each", 2_000),
    by_rate("accept-http", "accept one over HTTP, 32 clients", 500),
    # Starting the processes, 1.5 s, must be less than half of the first round: it chooses the size of the others.
    by_rate("drain", "drain into a no-op, 2 processes", 10_000, memory_row("drain", "draining")),
    by_rate(
        "end-to-end",
        "queue to SMTP sink, 5 KB from a template, 2 processes",
        5_000,
        memory_row("end-to-end", "sending"),
    ),
    by_rate(
        "end-to-end-tls",
        "queue to SMTP sink over STARTTLS, 5 KB from a template, 2 processes",
        5_000,
        memory_row("end-to-end-tls", "sending over STARTTLS"),
        Row("end-to-end-tls-plain", "CPU of Python over STARTTLS: ÷ without TLS, same round", Unit.RATIO),
    ),
    Experiment(
        "campaign",
        (
            Row("campaign", "campaign with tracking, unsubscribe and Ed25519 to SMTP sink, 2 processes"),
            *cost_rows("campaign"),
            memory_row("campaign", "sending a campaign"),
        ),
        full=20_000,
        quick=500,
    ),
    percentiles("latency", "accept in the caller's transaction, the call alone", full=2_000, quick=200),
    percentiles("wire", "accepted to wire, idle system", full=200, quick=20),
    percentiles("code", "one-time code, accepted to wire, bulk waiting", full=1_000_000, quick=10_000),
    Experiment(
        "kept",
        (
            Row("kept-body", "kept per finished mail, a short body, facts on", Unit.BYTES),
            Row("kept-template", "kept per finished mail, template and variables, facts on", Unit.BYTES),
        ),
        full=20_000,
        quick=1_000,
    ),
    Experiment("growth", tuple(growth_rows()), full=1_000_000, quick=20_000),
    Experiment("dashboard", tuple(page_rows()), full=1_000_000, quick=20_000),
)

ROWS: dict[str, Row] = {row.name: row for experiment in EXPERIMENTS for row in experiment.rows}


def chosen_experiments(names: list[str]) -> tuple[Experiment, ...]:
    """The named experiments in the order of the report; all of them when none is named."""
    known = {experiment.name for experiment in EXPERIMENTS}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ValueError(f"no such row: {', '.join(unknown)} (there are {', '.join(sorted(known))})")
    return tuple(experiment for experiment in EXPERIMENTS if not names or experiment.name in names)
