"""Prometheus metrics of outages, measured by every API process at a scrape."""

from datetime import UTC, datetime, timedelta

from postroom.db.queries import Connection
from postroom.delivery.store import count_dead_letters
from postroom.delivery.ways_out import store
from postroom.delivery.ways_out.watch import SILENT
from postroom.runtime.metrics import gauge

OLDEST = gauge(
    "postroom_oldest_unfinished_seconds",
    "Time since the oldest unfinished mail of a lane was accepted or, if later, was to leave, by what it waits for "
    "(`turn`, `worker`, `relay`, `quota` …; `reply`: a worker has it); absent without such mail",
    ["lane", "waits_for"],
)
DEAD_LETTERS = gauge("postroom_dead_letters", "Dead letters by reason, counted up to 10,000", ["reason"])
LAST_SENT = gauge("postroom_last_sent_seconds", "Time since the last mail that a way out accepted", ["way_out"])
FAILING = gauge(
    "postroom_way_out_failing_seconds",
    "Time for which every attempt at a way out has ended before a mail was offered, and the stage; absent if it "
    "answers",
    ["way_out", "stage"],
)
LOGINS_REFUSED = gauge("postroom_logins_refused", "Logins that a way out has refused since its last mail", ["way_out"])
WORKERS = gauge("postroom_workers", "Workers of a room seen in the last two minutes", ["room"])

MEASURED = (OLDEST, DEAD_LETTERS, LAST_SENT, FAILING, LOGINS_REFUSED, WORKERS)
REASONS = ("attempts_exhausted", "max_age", "ambiguous")
"""Every `dead_letter_reason` of the schema."""
WORKER_SILENT = timedelta(minutes=2)  # as in waits_for.sql; a living one speaks every third of its lease


async def show_outages(connection: Connection, room: str, *, bound: int) -> None:
    """Measure the oldest mail, the dead letters and the ways out."""
    now = datetime.now(UTC)
    oldest, letters = await store.measure_oldest(connection), await count_dead_letters(connection, count_limit=bound)
    ways_out = await store.list_ways_out(connection, patience=SILENT)
    workers = await store.count_workers(connection, patience=WORKER_SILENT)
    clear_outages()
    WORKERS.labels(room).set(workers)
    for mail in oldest:
        OLDEST.labels(mail.lane.value, mail.waits_for).set(_seconds(now, mail.since))
    for reason in REASONS:  # zero too: an alert compares it with later counts
        DEAD_LETTERS.labels(reason).set(letters.get(reason, 0))
    for way_out in ways_out:
        LOGINS_REFUSED.labels(way_out.name).set(way_out.logins_refused)
        if way_out.last_sent_at is not None:
            LAST_SENT.labels(way_out.name).set(_seconds(now, way_out.last_sent_at))
        if way_out.failing_since is not None:
            FAILING.labels(way_out.name, way_out.stage or "").set(_seconds(now, way_out.failing_since))


def clear_outages() -> None:
    """Remove the series: the database does not answer, and old values would look current."""
    for metric in MEASURED:
        metric.clear()


def _seconds(now: datetime, since: datetime) -> float:
    return max((now - since).total_seconds(), 0.0)
