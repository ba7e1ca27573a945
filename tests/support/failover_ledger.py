"""The ledger of a run of failovers: acknowledged, found, sent, repeated, published, and the seconds until work resumed.

Copies of a mail are explained by the ambiguous attempts in the database: one that the worker wrote itself, or one that
a takeover wrote after the lease of a claim had expired. A repeated publication is explained by a failover between the
two: the batch was published, and its progress was not committed.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import pairwise

import asyncpg
import msgspec
from tests.support.failover_load import COUNTED, Acknowledged
from tests.support.patroni import Failure

from postroom.db.pool import Pool

RESUME_S = 15.0  # the limit for every kind of work, from the moment the new primary accepts writes
GRACE = timedelta(seconds=5)
STOP_S = GRACE.total_seconds() + 1.0  # a thread ends the process then; one second for the machine
BEFORE_S = 5.0  # a batch that was published so long before a failover may have lost its progress to it
KINDS = ("API", "transaction", "events", "worker", "outbox")


@dataclass
class Round:
    """One failover."""

    failure: Failure
    failed_at: float
    promoted_at: float = 0.0
    rejoined_at: float = 0.0
    stopped_s: float = 0.0  # a worker that got SIGTERM while there was no primary
    exit_code: int | None = None
    resumed: dict[str, float | None] = field(default_factory=dict)

    @property
    def slowest_s(self) -> float | None:
        """Seconds until all kinds of work went on; None if one never did."""
        times = [self.resumed.get(kind) for kind in KINDS]
        known = [each for each in times if each is not None]
        return max(known) - self.promoted_at if len(known) == len(times) else None


@dataclass(frozen=True)
class Delivery:
    """One delivery in the database."""

    id: int
    key: str
    state: str
    sent: int
    ambiguous: int
    taken_over: int


@dataclass(frozen=True)
class Published:
    """One line of the publisher `log`."""

    position: int
    at: float


@dataclass
class Ledger:
    """The result of a run. `problems` are violations; a run without them has passed."""

    rounds: list[Round]
    acknowledged: Acknowledged
    deliveries: list[Delivery]
    orders: set[int]
    copies: Counter[int]
    numbers: dict[int, int]  # the number of each event by its position, in the order of followers
    published: list[Published]
    exit_codes: list[int]

    @property
    def repeated(self) -> list[Delivery]:
        return [each for each in self.deliveries if self.copies[each.id] > 1]

    def problems(self) -> list[str]:
        ends = [f"a process ended with {code} after SIGTERM" for code in self.exit_codes if code]
        return [*self._lost(), *self._copies(), *self._events(), *self._outbox(), *ends]

    def slow(self) -> Iterator[str]:
        """Rounds in which work did not resume in time, or a worker did not stop in time."""
        for number, each in enumerate(self.rounds, 1):
            if each.slowest_s is None or each.slowest_s > RESUME_S:
                yield f"round {number}: work resumed after {_seconds(each.slowest_s)}, the limit is {RESUME_S:g} s"
            if each.stopped_s > STOP_S:
                yield f"round {number}: a worker stopped after {each.stopped_s:.1f} s, the limit is {STOP_S:g} s"

    def _lost(self) -> Iterator[str]:
        found = {each.id: each for each in self.deliveries}
        for delivery in self.acknowledged.deliveries:
            if delivery not in found:
                yield f"delivery {delivery} was acknowledged and is lost"
        for each in self.deliveries:
            if each.state != "sent" or not self.copies[each.id]:
                yield f"delivery {each.id} is {each.state} and was received {self.copies[each.id]} times"
        keys = {each.key for each in self.deliveries}
        for number in self.orders ^ {int(key[6:]) for key in keys if key.startswith("order-")}:
            yield f"order {number} and its delivery were not committed together"
        if len(keys) != len(self.deliveries):
            yield "one idempotency key has several deliveries"

    def _copies(self) -> Iterator[str]:
        known = {each.id for each in self.deliveries}
        for delivery in self.copies.keys() - known:
            yield f"delivery {delivery} was received and is not in the database"
        for each in self.repeated:
            if self.copies[each.id] > each.sent + each.ambiguous:
                yield f"delivery {each.id} was received {self.copies[each.id]} times without an ambiguous attempt"

    def _events(self) -> Iterator[str]:
        for position in self.acknowledged.events.keys() - self.numbers.keys():
            yield f"event {position} was acknowledged and is lost"
        if sorted(self.numbers.values()) != list(range(1, len(self.numbers) + 1)):
            yield "the numbers of the events have a gap or a duplicate: a condition did not hold"

    def _outbox(self) -> Iterator[str]:
        first = list(dict.fromkeys(each.position for each in self.published))
        for position in self.numbers.keys() - set(first):
            yield f"event {position} was skipped by the outbox"
        for position in set(first) - self.numbers.keys():
            yield f"event {position} was published and is not in the database"
        if first != [position for position in self.numbers if position in set(first)]:
            yield "the outbox published events out of order"
        for before, after in self._republished():
            if not any(_explains(each, before, after) for each in self.rounds):
                yield f"event {before.position} was published twice without a failover in between"

    def _republished(self) -> Iterator[tuple[Published, Published]]:
        times: dict[int, list[Published]] = defaultdict(list)
        for each in self.published:
            times[each.position].append(each)
        for publications in times.values():
            yield from pairwise(publications)

    def lines(self) -> Iterator[str]:
        """The ledger for people."""
        yield _row("round", "failure", "new primary", *KINDS, "rejoined", "SIGTERM")
        for number, each in enumerate(self.rounds, 1):
            yield _row(
                number,
                each.failure,
                _seconds(each.promoted_at - each.failed_at),
                *(_after(each.resumed.get(kind), each.promoted_at) for kind in KINDS),
                _seconds(each.rejoined_at - each.failed_at),
                f"{each.stopped_s:.1f} s ({each.exit_code})",
            )
        yield "new primary, rejoined: from the failure. API … outbox: from the new primary. SIGTERM: a worker's end."
        yield from self._totals()

    def _totals(self) -> Iterator[str]:
        known = self.acknowledged
        taken_over = sum(1 for each in self.repeated if each.taken_over)
        found = {each.id for each in self.deliveries} & known.deliveries.keys()
        yield (
            f"deliveries: {len(known.over_http)} acknowledged over HTTP, {len(known.in_transaction)} in a transaction; "
            f"{len(found)} of {len(known.deliveries)} found; {len(self.deliveries)} in the database"
        )
        yield (
            f"received: {sum(1 for number in self.copies.values() if number == 1)} once, {len(self.repeated)} more "
            f"often ({taken_over} after a lease takeover, {len(self.repeated) - taken_over} ambiguous)"
        )
        for each in self.repeated:
            why = "lease takeover" if each.taken_over else "ambiguous"
            yield f"  delivery {each.id}: {self.copies[each.id]} copies, {why}"
        yield (
            f"events: {len(known.events)} acknowledged, {len(known.events.keys() & self.numbers.keys())} found, "
            f"{len(self.numbers)} in the database; published {len({each.position for each in self.published})}, "
            f"{sum(1 for _ in self._republished())} of them again after a failover"
        )


def _explains(each: Round, before: Published, after: Published) -> bool:
    return each.failed_at - BEFORE_S <= before.at <= each.promoted_at + RESUME_S and after.at >= each.failed_at


def _row(*cells: object) -> str:
    widths = (6, 9, 12, *(12 for _ in KINDS), 9, 10)
    return " ".join(str(cell).ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()


def _seconds(value: float | None) -> str:
    return "never" if value is None else f"{value:.1f} s"


def _after(at: float | None, start: float) -> str:
    return _seconds(None if at is None else max(at - start, 0.0))


async def read_deliveries(pool: Pool) -> list[Delivery]:
    rows = await pool.fetch(
        """
        SELECT d.id, d.idempotency_key AS key, d.state::text,
            count(*) FILTER (WHERE a.outcome = 'sent') AS sent,
            count(*) FILTER (WHERE a.outcome = 'ambiguous') AS ambiguous,
            count(*) FILTER (WHERE a.outcome = 'ambiguous' AND a.transport IS NULL) AS taken_over
        FROM deliveries AS d
        LEFT JOIN attempts AS a ON a.delivery_id = d.id
        GROUP BY d.id
        ORDER BY d.id
        """
    )
    return [Delivery(**row) for row in rows]


async def read_numbers(pool: Pool) -> dict[int, int]:
    rows: list[asyncpg.Record] = await pool.fetch(
        "SELECT position, (data ->> 'number')::int AS number FROM events WHERE type = $1"
        " ORDER BY transaction_id, position",
        COUNTED,
    )
    return {row["position"]: row["number"] for row in rows}


def read_published(logs: Iterable[str]) -> list[Published]:
    """Every publication in the logs of the workers, in the order of time."""
    found = []
    for log in logs:
        for line in log.splitlines():
            if '"event": "event_published"' in line:
                entry = msgspec.json.decode(line)
                found.append(Published(entry["position"], datetime.fromisoformat(entry["timestamp"]).timestamp()))
    return sorted(found, key=lambda each: each.at)
